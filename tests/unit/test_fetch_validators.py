from __future__ import annotations

import calendar

import pytest

from pipeline.fetch.body import Body
from pipeline.fetch.client import Response
from pipeline.fetch.validators import MAX_CHARACTERS, NO_VALIDATORS, Validators, validators_of

NOW = calendar.timegm((2024, 5, 1, 12, 0, 0))
DATE = "Wed, 01 May 2024 12:00:00 GMT"
MORNING = "Wed, 01 May 2024 08:00:00 GMT"


def answer(*fields: tuple[str, str], body: Body | None = None) -> Response:
    """A page with these fields."""
    headers = [(name.lower().encode(), value.encode("latin-1")) for name, value in fields]
    return Response(200, headers, body or Body(b"<p>", 3))


def etag(*lines: str) -> str | None:
    """The entity tag that is kept of these lines."""
    return validators_of(answer(*(("ETag", line) for line in lines)), NOW).etag


def modified(line: str, date: str | None = DATE) -> str | None:
    """The Last-Modified that is kept."""
    fields = [("Last-Modified", line), *([("Date", date)] if date else [])]
    return validators_of(answer(*fields), NOW).last_modified


def test_what_an_answer_says_is_sent_back_as_it_came():
    """RFC 9110 13.1.2 and 13.1.3: both may go, the tag decides."""
    known = validators_of(answer(("ETag", 'W/"v1"'), ("Last-Modified", MORNING), ("Date", DATE)), NOW)
    assert Validators('W/"v1"', MORNING) == known
    assert {"If-None-Match": 'W/"v1"', "If-Modified-Since": MORNING} == known.headers()
    assert {} == NO_VALIDATORS.headers()


@pytest.mark.parametrize("tag", ['"v1"', 'W/"v1"', 'w/"v1"', '""', '"a,b"', '"two words"', "v1", "5f-60a;gzip", "v1=="])
def test_tags_are_kept_as_their_site_writes_them(tag):
    """Many are written without quotes; a site compares texts."""
    assert tag == etag(tag)
    assert tag == etag(f"  {tag}\t")


@pytest.mark.parametrize(
    "tag", ["", "*", '"*', '"a", "b"', "a,b", "a b", '"é"', '"a\x00"', '"' + "a" * MAX_CHARACTERS + '"']
)
def test_tags_that_would_do_harm_are_not_kept(tag):
    """`*` is met by any page, so a site would say for ever that nothing is new; a list by any of its tags."""
    assert etag(tag) is None


def test_lines_that_contradict_each_other_say_nothing():
    """Two caches, or two servers, each with its own idea."""
    assert etag('"a"', '"b"') is None
    assert '"a"' == etag('"a"', '"a"')


@pytest.mark.parametrize(
    ("line", "kept"),
    [
        (MORNING, True),
        ("Wednesday, 01-May-24 08:00:00 GMT", True),
        ("Wed May  1 08:00:00 2024", True),
        ("Wed, 01 May 2024 11:59:59 GMT", True),
        ("Wed, 01 May 2024 12:00:00 GMT", False),
        ("Wed, 01 May 2024 12:00:01 GMT", False),
        ("Fri, 01 May 2054 08:00:00 GMT", False),
        ("Wed, 01 May 2024 08:00:00 CET", False),
        ("2024-05-01T08:00:00Z", False),
        ("0", False),
        ("", False),
        ("now", False),
    ],
)
def test_only_a_past_date_is_kept(line, kept):
    """In the same second the page may change again; by a date in the future nothing would be new until then."""
    assert (line if kept else None) == modified(line)
    assert (line if kept else None) == modified(line, date=None)


def test_past_is_what_is_past_by_the_site_s_own_clock():
    """Its clock wrote both dates."""
    ahead = "Wed, 01 May 2024 12:20:00 GMT"
    assert "Wed, 01 May 2024 12:10:00 GMT" == modified("Wed, 01 May 2024 12:10:00 GMT", ahead)
    behind = "Wed, 01 May 2024 11:40:00 GMT"
    assert modified("Wed, 01 May 2024 11:50:00 GMT", behind) is None


def test_what_is_not_whole_is_asked_for_again():
    """A validator vouches for all of a page: with it the rest would never come."""
    page = answer(("ETag", '"v1"'), ("Last-Modified", MORNING), body=Body(b"<p>ha", 5, "content_length"))
    assert NO_VALIDATORS == validators_of(page, NOW)


def test_what_is_no_header_is_not_sent():
    """Records may hold what an earlier version kept."""
    assert {} == Validators('"é\r\nX: 1"', "\r\n").headers()
