from __future__ import annotations

from datetime import UTC, datetime

import pytest
from pydantic import ValidationError

from pipeline.tasks.model import FIELDS, Limits, WrittenTask, wanted
from pipeline.tasks.problems import problems_of, shown
from pipeline.tasks.records import Defaults, task_id, wish_of
from pipeline.topics import TASKS, TASKS_URGENT

URL = "http://a.test/"
DEFAULTS = Defaults("default", "cli", 4)
SECRETS = [
    "Authorization: Bearer abc",
    "Bearer abc",
    "a=b",
    "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxIn0.c2lnbmF0dXJl",
    "sk_live_4eC39HqLyjWDarjtT1zdp7dc",
    "9f86d081884c7d659a2feaa0c55ad015",
    "A" * 41,
    "",
]


def check(limits=None, *, texts=False, **fields):
    """Validate as a reader does."""
    return WrittenTask.model_validate({"url": URL, **fields}, strict=not texts, context=limits)


def problems(limits=None, **fields):
    """Return field and text of what is wrong."""
    with pytest.raises(ValidationError) as wrong:
        check(limits, **fields)
    return {problem.field: problem.text for problem in problems_of(wrong.value, 1, {})}


BOUNDS = {
    "priority": (1, 5, 0, 6),
    "timeout_s": (0.1, 300, 0.09, 300.1),
    "concurrency": (1, 100, 0, 101),
    "depth": (0, 1000, -1, 1001),
    "interval_s": (10, 366 * 86_400, 9.9, 366 * 86_400 + 1),
}


@pytest.mark.parametrize("field", BOUNDS)
def test_the_bounds_of_each_number_are_kept_on_both_sides(field):
    """What the frontier and the fetcher can't do must not be promised."""
    least, most, *outside = BOUNDS[field]
    for value in (least, most):
        assert value == getattr(check(Limits(min_interval_s=10), **{field: value}), field)
    for value in outside:
        assert [field] == list(problems(Limits(min_interval_s=10), **{field: value}))


@pytest.mark.parametrize("field", ["priority", "timeout_s", "concurrency", "depth", "interval_s", "render"])
@pytest.mark.parametrize("value", ["3", "x", True, 2.5, float("nan"), float("inf"), [1], {"a": 1}], ids=str)
def test_nothing_is_converted_in_silence(field, value):
    """`true` is no priority and `"3"` no number: whoever wrote it meant something else."""
    right = (field == "render" and value is True) or (field in {"timeout_s", "interval_s"} and value == 2.5)
    if right:
        assert value == getattr(check(**{field: value}), field)
    else:
        assert wanted(field) in problems(**{field: value})[field]


@pytest.mark.parametrize(("field", "text", "value"), [
    ("priority", "2", 2), ("timeout_s", "0.5", 0.5), ("render", "true", True), ("render", "no", False),
    ("depth", "0", 0),
])  # fmt: skip
def test_cells_of_csv_are_converted(field, text, value):
    """There everything is text."""
    assert value == getattr(check(texts=True, **{field: text}), field)


@pytest.mark.parametrize("text", ["2026-05-04T08:30:00+02:00", "2026-05-04t06:30:00z", "2026-05-04 06:30:00.000Z"])
def test_a_time_is_one_moment_however_its_zone_is_written(text):
    """RFC 3339 5.6."""
    assert datetime(2026, 5, 4, 6, 30, tzinfo=UTC) == check(not_before=text).not_before


@pytest.mark.parametrize("text", [
    "2026-05-04T08:30:00", "2026-05-04", "1777876200", 1_777_876_200, "2026-02-30T00:00:00Z", "1969-12-31T23:59:59Z",
    "2026-05-04T24:00:00Z", "2026-05-04T08:30Z", "0001-01-01T00:00:00+23:59", "tomorrow", None.__class__,
])  # fmt: skip
def test_a_time_without_its_zone_is_refused(text):
    """It would be another moment on another machine."""
    assert wanted("not_before") in problems(not_before=text)["not_before"]


@pytest.mark.parametrize("value", SECRETS)
def test_the_value_of_a_header_is_refused_and_never_repeated(value):
    """Tasks travel through topics and logs, where no password belongs; so do messages."""
    text = problems(headers=value)["headers"]
    assert "looks like a header or a secret" in text
    assert not value or value not in text


def test_the_name_of_headers_is_taken():
    """That is what travels."""
    assert "exchange-login_2" == check(headers="exchange-login_2").headers


@pytest.mark.parametrize("url", [
    "ftp://a.test/", "http://", "//a.test/", "http://u:p@a.test/", "http://a.test:0/", "http://a.test/\n", "http://a\tb/",
    "http://a.test/\ud800", "http://a.test/" + "x" * 2_048, "http://a.test/#" + "x" * 10_000, 3, "",
])  # fmt: skip
def test_a_url_that_is_not_fetched_is_refused(url):
    """Later it would be a dead letter, which its sender never sees."""
    if url == "http://a.test/\n":
        assert URL == check(url=url).url  # white space around it is nobody's intention
    else:
        assert ["url"] == list(problems(url=url))


def test_a_url_that_is_too_long_as_it_is_written_is_told_as_such():
    """It may be right but for its length."""
    assert "longer than 8192 characters" == problems(url="http://a.test/#" + "x" * 10_000)["url"]


def test_the_configured_length_of_urls_holds():
    """What passes here must pass in the frontier, and the other way round."""
    long = "http://a.test/" + "x" * 3_000
    assert "url" in problems(url=long)
    limits = Limits(max_url_bytes=4_000)
    task = check(limits, url=long)
    assert long == wish_of(task, DEFAULTS, limits).url


@pytest.mark.parametrize(("name", "nearest"), [
    ("prioritiy", "priority"), ("timeout", "timeout_s"), ("Interval", "interval_s"), ("notBefore", "not_before"),
    ("header", "headers"), ("x" * 1_000_000, FIELDS[0]),
])  # fmt: skip
def test_an_unknown_field_comes_with_the_nearest_right_one(name, nearest):
    """A slip must not be a default in silence, and not a search in the manual."""
    with pytest.raises(ValidationError) as wrong:
        check(**{name: 1})
    [problem] = problems_of(wrong.value, 7, {name: 9})
    assert (9, "there is no such field") == (problem.line, problem.text)
    assert nearest == problem.nearest or len(name) > 100
    assert len(str(problem)) < 200


@pytest.mark.parametrize("field", ["crawl", "source", "parser"])
@pytest.mark.parametrize("value", ["", "a b", "ä", "-a", "a/b", "x" * 129, "a\n", 3])
def test_names_are_plain(field, value):
    """They stand in keys, series and file names."""
    assert field in problems(**{field: value})


def test_every_field_reaches_the_record():
    """A wish that is dropped on the way is a broken promise."""
    task = check(
        url="HTTP://A.test:80/x?utm_source=y", crawl="c", source="news.a", parser="p", priority=1, timeout_s=0.1,
        concurrency=7, depth=0, interval_s=60, not_before="1970-01-01T00:00:01.5Z", render=True, headers="h",
    )  # fmt: skip
    wish = wish_of(task, DEFAULTS, Limits())
    assert (TASKS_URGENT, b"a.test", "http://a.test/x") == (wish.topic, wish.key, wish.url)
    assert {
        "crawl": "c", "url": "http://a.test/x?utm_source=y", "priority": 1, "depth": 0, "source": "news.a",
        "submitted_at_ms": 0, "not_before_ms": 1_500, "timeout_ms": 100, "parser": "p", "concurrency": 7,
        "max_depth": 0, "interval_ms": 60_000, "poll": 0, "render": True, "headers_ref": "h", "redirects": [],
        "replay": False, "withdraw": False,
    } == wish.record  # fmt: skip


def test_what_is_left_out_is_the_submitters_default():
    """`--crawl` and `--priority` are of tasks that do not say."""
    wish = wish_of(check(), DEFAULTS, Limits())
    assert ("default", "cli", 4, TASKS) == (
        wish.record["crawl"], wish.record["source"], wish.record["priority"], wish.topic,
    )  # fmt: skip
    assert wish.record["max_depth"] is None


def test_the_id_of_a_task_is_its_crawl_and_canonical_url():
    """It is a promise to programs that keep it: the same wish has the same id in every release."""
    one = wish_of(check(url="http://A.test/#x", priority=1), DEFAULTS, Limits())
    other = wish_of(check(url=URL), DEFAULTS, Limits())
    assert one.id == other.id == task_id("default", URL) == "0b9118442b09eb527a7908391b5b2627"
    assert one.id != task_id("other", URL)


@pytest.mark.parametrize(("value", "text"), [
    ("a\n\x1b[31m", r"'a\n\x1b[31m'"), (None, "null"), (True, "true"), ([1], "a list"), ({}, "an object"), (1.5, "1.5"),
])  # fmt: skip
def test_values_in_messages_can_not_play_with_a_terminal(value, text):
    """Escapes of a file are no orders to the one who reads about them."""
    assert text == shown(value)
    assert 60 >= len(shown("x" * 10_000_000))
