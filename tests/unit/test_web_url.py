from __future__ import annotations

import hashlib
import string

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from pipeline.errors import InputError
from pipeline.web.tracking import TRACKING_PARAMETERS
from pipeline.web.url import CanonicalUrl, RefusedUrl, canonical_form, canonicalize, resolve, url_key

URL_LIKE = st.text(alphabet=string.printable + "%%%%&&==??##//::@[].é例\u00ad\ud800\ufeff", max_size=60)
TAIL = st.text(alphabet="abAB019%%%2eE5f7c^~-._/?&=;#utm_gclid|'\" \\", max_size=60)


def href(url: str, base: str | None = None) -> str:
    """The canonical form alone."""
    return canonicalize(url, base).href


def refusal(url: str, base: str | None = None, **limits: int) -> str:
    """Why the URL is refused."""
    with pytest.raises(RefusedUrl) as caught:
        canonicalize(url, base, **limits)
    return caught.value.refusal


def test_the_parts_of_a_url_come_with_it():
    """Fetch connects by them and must not parse again."""
    assert CanonicalUrl(
        href="https://example.com:8443/a?b=1", host="example.com", port=8443, scheme="https",
        wire="https://example.com:8443/a?utm_id=x&b=%31",
    ) == canonicalize("HTTPS://Example.COM:8443/a?utm_id=x&b=%31#c")  # fmt: skip
    assert ("http://[::1]/", "::1", 80) == canonicalize("http://[0:0::1]:80")[:3]
    assert ("http://[::1]:8080/", "::1", 8080) == canonicalize("http://[0:0::1]:8080")[:3]


@pytest.mark.parametrize(
    ("written", "canonical"),
    [
        ("http://h.example/a#part", "http://h.example/a"),
        ("http://h.example/a#?x=1", "http://h.example/a"),
        ("http://h.example", "http://h.example/"),
        ("http://h.example:80/", "http://h.example/"),
        ("https://h.example:80/", "https://h.example:80/"),
        (" \n\x00http://h.example/a\tb\n ", "http://h.example/ab"),
        ("http://h.example/a/./b/../c", "http://h.example/a/c"),
        ("http://h.example/a/%2e%2E/c", "http://h.example/c"),
        ("http://bücher.example/ü?ü", "http://xn--bcher-kva.example/%C3%BC?%C3%BC"),
        ("http://0x7f.1/", "http://127.0.0.1/"),
        ("http://h.example./a", "http://h.example./a"),
        ("http://@h.example/", "http://h.example/"),
        ("http:h.example/a", "http://h.example/a"),
        ("http:\\\\h.example\\a", "http://h.example/a"),
    ],
)
def test_one_page_has_one_form(written, canonical):
    """The rules of the URL Standard, and the dropped fragment: otherwise a page is fetched once per spelling."""
    assert canonical == href(written)


@pytest.mark.parametrize(
    ("written", "canonical"),
    [
        ("/%7euser/%c3%a9", "/~user/%C3%A9"),
        ("/a%2Fb%3f%25", "/a%2Fb%3F%25"),
        ("/?%61=%62%26", "/?a=b%26"),
        ("/%2541", "/%2541"),
        ("/a^b?^", "/a%5Eb?^"),
        ("/a%5eb", "/a%5Eb"),
    ],
)
def test_escapes_are_brought_to_one_form_and_data_stays_data(written, canonical):
    """Escapes of unreserved characters are the characters; a decoded reserved one would be another page."""
    assert f"http://h.example{canonical}" == href(f"http://h.example{written}")


def test_a_percent_sign_that_starts_no_escape_stops_decoding_around_it():
    """`%%341` would become the escape `%41`, and another page with the next decoding."""
    assert "http://h.example/%%341?a&%61%&b" == href("http://h.example/%%341?%61&%61%&%62")


@pytest.mark.parametrize(
    ("written", "canonical"),
    [
        ("?utm_source=x&id=5&utm_medium=y", "?id=5"),
        ("?utm_source=x", ""),
        ("?UTM_Source=x&FBCLID=1&a", "?a"),
        ("?utm%5Fsource=x&a=1", "?a=1"),
        ("?a=utm_source", "?a=utm_source"),
        ("?myutm_source=1", "?myutm_source=1"),
        ("?gclid", ""),
        ("?gclids=1", "?gclids=1"),
        ("?a=1&&fbclid=2&", "?a=1&&"),
        ("?next=/p?gclid=2", "?next=/p?gclid=2"),
    ],
)
def test_tracking_parameters_are_removed_and_nothing_else(written, canonical):
    """They multiply one page by every campaign; a name that only resembles one may choose the page."""
    assert f"http://h.example/a{canonical}" == href(f"http://h.example/a{written}")


def test_every_listed_tracking_parameter_is_removed():
    """A name in the list that is not in lower case would never match."""
    query = "&".join(f"{name}=1" for name in TRACKING_PARAMETERS)
    assert "http://h.example/" == href(f"http://h.example/?{query}")


@pytest.mark.parametrize(
    ("written", "wire"),
    [
        ("/a?utm_source=x&id=5", "/a?utm_source=x&id=5"),
        ("/a?gclid=x", "/a?gclid=x"),
        ("/%7euser/%c3%a9?%61", "/%7euser/%c3%a9?%61"),
        ("/a?b=2&A=1&b=1#top", "/a?b=2&A=1&b=1"),
        ("/a?#", "/a?"),
        ("/a b?c d|é", "/a%20b?c%20d|%C3%A9"),
        ("/x/../a^", "/a%5E"),
    ],
)
def test_the_wire_url_is_what_a_browser_would_ask_for(written, wire):
    """Which spellings are one page is our guess; a site that reads them otherwise must still be asked rightly."""
    assert f"http://h.example{wire}" == canonicalize(f"http://h.example{written}").wire


def test_order_and_case_of_parameters_are_kept():
    """A signed or positional query answers differently when sorted."""
    assert "http://h.example/P?b=2&A=1&b=1" == href("http://h.example/P?b=2&A=1&b=1")


def test_an_empty_query_is_kept_where_it_was_written():
    """RFC 3986 6.2.3: the delimiter of an empty part is not to be removed."""
    assert "http://h.example/a?" == href("http://h.example/a?#x")


@pytest.mark.parametrize(
    ("written", "canonical"),
    [
        ("c", "http://h.example/a/c"),
        ("../c?x", "http://h.example/c?x"),
        ("?x=1", "http://h.example/a/b?x=1"),
        ("", "http://h.example/a/b?q"),
        ("#top", "http://h.example/a/b?q"),
        ("//o.example/", "http://o.example/"),
        ("https://o.example", "https://o.example/"),
        (" /c ", "http://h.example/c"),
    ],
)
def test_a_relative_url_is_resolved_against_its_base(written, canonical):
    """Links of a page and Location headers are mostly relative."""
    assert canonical == href(written, "http://h.example/a/b?q#f")


@pytest.mark.parametrize(
    ("written", "reason"),
    [
        ("ftp://h.example/", "scheme"),
        ("mailto:a@h.example", "scheme"),
        ("javascript:void(0)", "scheme"),
        ("javascript://%zz", "scheme"),
        ("data:text/html,x", "scheme"),
        ("www.h.example/a", "scheme"),
        ("", "scheme"),
        ("http://user@h.example/", "credentials"),
        ("http://:secret@h.example/", "credentials"),
        ("http://", "no_host"),
        ("http:///?x", "no_host"),
        ("https://:443/", "no_host"),
        ("http://user@/", "no_host"),
        ("http://./", "no_host"),
        ("http://h.example:0/", "port"),
        ("http://h.example:65536/", "port"),
        ("http://h.example:" + "9" * 5_000 + "/", "port"),
        ("http://h.example:8a/", "port"),
        ("http://h.example:\u0668/", "port"),
        ("http://[::1]:99999/", "port"),
        ("http://[::1/", "unparsable"),
        ("http://a b/", "unparsable"),
        ("http://256.256.256.256/", "unparsable"),
        ("http://xn--a.\u00df/", "unparsable"),
        ("http://h\udc80.example/", "unparsable"),
    ],
)
def test_a_refusal_says_why(written, reason):
    """Refusals are counted by reason; a wrong one sends people looking in the wrong place."""
    assert reason == refusal(written)


def test_a_base_cannot_smuggle_in_what_is_refused():
    """Credentials and schemes come through the base too."""
    assert "credentials" == refusal("/a", "http://user:pw@h.example/")
    assert "scheme" == refusal("/a", "ftp://h.example/")
    assert "unparsable" == refusal("/a", "about:blank")
    assert "unparsable" == refusal("/a", "no base")
    assert "unparsable" == refusal("/a", "\ud800")


def test_length_is_counted_in_bytes_of_the_wire_url():
    """What is stored and sent is bounded, not what a page wrote: a long fragment costs nothing."""
    assert 2_048 == len(href("http://h.example/".ljust(2_048, "a")))
    assert "too_long" == refusal("http://h.example/".ljust(2_049, "a"))
    assert "http://h.example/" == href("http://h.example/#" + "a" * 3_000)
    assert "too_long" == refusal("http://h.example/" + "é" * 400)
    assert "too_long" == refusal("http://h.example/abc", max_bytes=19)
    assert "too_long" == refusal("http://h.example/?utm_id=x", max_bytes=20)


def test_a_refusal_is_the_senders_error():
    """In a task it becomes an `invalid_task` dead letter that names the field."""
    with pytest.raises(InputError, match=r"^url: 'ftp' is not http or https$") as caught:
        canonicalize("ftp://h.example/")
    assert ("invalid_task", "url") == (caught.value.reason, caught.value.field)


def test_a_refusals_message_is_bounded_and_printable():
    """It goes into headers and logs; a page chooses the text."""
    with pytest.raises(RefusedUrl) as caught:
        canonicalize("http://\x1b[31m" + "a" * 100_000)
    assert 200 > len(str(caught.value))
    assert str(caught.value).isprintable()


def test_a_lone_surrogate_is_the_replacement_character():
    """JSON can carry one; the Standard works on scalar values, the parser's binding takes neither."""
    assert "http://h.example/%EF%BF%BD%F0%9F%98%80" == href("http://h.example/\ud800\ud83d\ude00")
    assert "http://h.example/%EF%BF%BD/x" == href("x", "http://h.example/\udfff/")


ANY_TEXT = st.text() | URL_LIKE | URL_LIKE.map("http://{}".format) | TAIL.map("http://h.example/{}".format)


@given(ANY_TEXT)
@example("http://h.example/%%341")
@example("http://h.example/?%&utm_x=1&41")
@example("http://h.example/.%2e%2541/?utm_%")
@example("http://h.example/?utm_a?#")
def test_any_text_gives_a_stable_url_or_a_refusal(text):
    """A key that changes when taken twice splits one page into two; any other exception would stop a stage."""
    try:
        url = canonicalize(text)
    except RefusedUrl:
        return
    assert url == canonicalize(url.wire)
    assert url._replace(wire=url.href) == canonicalize(url.href)
    assert url.href == canonical_form(url.wire) == canonical_form(url.href)
    assert url.href.isascii()
    assert url.wire.isascii()
    assert "#" not in url.wire
    assert len(url.href) <= len(url.wire)


@given(ANY_TEXT)
@example("http:%41")
@example("http://%41")
@example("%41?%42&utm_a")
def test_the_canonical_form_of_what_is_no_wire_url_is_some_text(text):
    """A record of another program may hold anything where a URL should stand: it is refused, and stops nothing."""
    assert isinstance(canonical_form(text), str)


@pytest.mark.parametrize(
    "text",
    [
        "\x00" * 100_000,
        "\ud800" * 100_000,
        "http://" + "a" * 100_000,
        "http://" + "a." * 50_000,
        "http://h.example/" + "%" * 100_000,
        "http://h.example/?" + "&" * 100_000,
        "http://h.example/" + "../" * 33_000,
        "http://[" + ":" * 100_000,
        "http://" + "@" * 100_000,
        "http://" + "\u3002" * 100_000,
        "http:" + "/" * 100_000,
        " " * 100_000,
    ],
    ids=lambda text: ascii(text[:12]),
)
def test_a_huge_text_is_only_a_url_or_a_refusal(text):
    """Pages hold anything in an attribute; none of it may stop a stage."""
    try:
        url = canonicalize(text, max_bytes=1 << 20)
    except RefusedUrl:
        return
    assert url == canonicalize(url.wire, max_bytes=1 << 20)


@given(TAIL, st.sampled_from(["http://h.example/a/b?q", "https://[::1]:8443/", "http://h.example/%zz/"]))
def test_a_link_resolves_to_the_same_url_as_its_absolute_form(link, base):
    """Which page a link stood on must not show in its key."""
    try:
        url = canonicalize(link, base)
    except RefusedUrl:
        return
    assert url == canonicalize(url.wire, base)


def test_urls_of_other_schemes_are_resolved_too():
    """A base element may name any scheme; whether its links are fetched is decided for each link."""
    assert "ftp://u@h.example/b#c" == resolve("../b#c", "ftp://u@h.example/a/")
    assert "http://h.example/%EF%BF%BD" == resolve("\ud800", "http://h.example/")
    with pytest.raises(ValueError, match="Invalid URL"):
        resolve("//h.example/", "about:blank")


def test_a_key_is_the_16_byte_blake2b_of_the_canonical_url():
    """Keys are in the seen table of running clusters: the function never changes."""
    assert "a90283127be7c963c8d6a1495bd4a546" == url_key("http://h.example/").hex()
    assert hashlib.blake2b(b"http://h.example/a", digest_size=16).digest() == url_key("http://h.example/a")
