from __future__ import annotations

import csv
import io
import json
import random
import string
from datetime import UTC, datetime

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from pipeline.errors import InputError
from pipeline.tasks.checking import Checker, Repeated, Right, Wrong
from pipeline.tasks.formats import READERS, format_of
from pipeline.tasks.model import FIELDS, Limits
from pipeline.tasks.records import Defaults
from pipeline.tasks.rows import decode
from pipeline.tasks.sources import open_file

DEFAULTS = Defaults("default", "cli")


def verdicts(data, format_name):
    """Read and check bytes or text."""
    text, unusable = decode(data if isinstance(data, bytes) else data.encode())
    return list(Checker(Limits(), DEFAULTS).check(READERS[format_name](text), unusable))


def wrong(data, format_name):
    """Return (line, field) of every problem."""
    found = [verdict for verdict in verdicts(data, format_name) if isinstance(verdict, Wrong)]
    return [(problem.line, problem.field) for verdict in found for problem in verdict.problems]


def right(data, format_name):
    """Return (line, canonical URL) of every task."""
    return [(found.line, found.wish.url) for found in verdicts(data, format_name) if isinstance(found, Right)]


# Each ends with where "{}" stands for the number of the task; the second: how a value is written.
SLIPS = [
    ("priority", 9), ("priority", "high"), ("timeout_s", 0), ("concurrency", 101), ("depth", -1), ("interval_s", 0.5),
    ("not_before", "2026-13-01T00:00:00Z"), ("render", 7), ("headers", "Cookie: a=b"), ("url", "ftp://a.test/"),
]  # fmt: skip


def written(task, format_name, columns=()):
    """Write one task over several lines where the format has them; the second result tells the line of each field."""
    if format_name == "json":
        return json.dumps(task), dict.fromkeys(task, 0)
    if format_name == "csv":
        text = io.StringIO()
        csv.DictWriter(text, columns, lineterminator="").writerow(task)
        return text.getvalue(), dict.fromkeys(task, 0)
    lines = [f"{name}: {json.dumps(value)}" for name, value in task.items()]
    return "- " + "\n  ".join(lines), {name: number for number, name in enumerate(task)}


@pytest.mark.parametrize("format_name", ["json", "csv", "yaml", "array"])
def test_of_1000_tasks_all_40_that_are_wrong_are_told_with_line_and_field(format_name):
    """Who corrects a file wants all its faults in one go, and to find them."""
    dice = random.Random(7)
    chosen = set(dice.sample(range(1_000), 40))
    kind = "json" if format_name == "array" else format_name
    columns = ["url", *dict.fromkeys(field for field, _ in SLIPS if field != "url")]
    lines = [",".join(columns)] if kind == "csv" else ["["] if format_name == "array" else []
    expected = []
    for number in range(1_000):
        task = {"url": f"http://a.test/{number}", "priority": 3}
        if number in chosen:
            field, value = dice.choice(SLIPS)
            task[field] = value
        text, places = written(task, kind, columns)
        if number in chosen:
            expected.append((len(lines) + 1 + places[field], field))
        if format_name == "array":
            text += "," if number < 999 else "]"
        lines += text.split("\n")
    found = verdicts("\n".join(lines), kind)
    assert 40 == len(expected)
    assert expected == wrong("\n".join(lines), kind)
    assert 960 == sum(isinstance(verdict, Right) for verdict in found)
    assert 1_000 == len(found)


def test_lines_are_real_in_yaml():
    """Comments, blank lines, flow mappings and documents shift what counts rows."""
    text = """\
# tasks of the mill

- url: http://a.test/
  priority: 3     # ordinary

- {url: http://b.test/,
   priority: 0}
-
  url: http://c.test/
  source: >
    folded
    text
---
url: http://d.test/
depht: 1
...
"""
    assert [(7, "priority"), (10, "source"), (15, "depht")] == wrong(text, "yaml")
    assert [(3, "http://a.test/")] == right(text, "yaml")


def test_lines_are_real_in_json():
    """An array is written by a program, on one line or on many."""
    text = (
        '[\n  {\n    "url": "http://a.test/",\n    "priority": 0\n  },\n {"url": "http://b.test", "x": 1}, 7,\n []\n]\n'
    )
    assert [(4, "priority"), (6, "x"), (6, ""), (7, "")] == wrong(text, "json")


def test_the_line_of_a_csv_row_is_its_first():
    """A quoted field may hold line ends; in a URL they are the trace of a quote left open."""
    text = 'url,source\n"http://a.test/",x\n"http://b.\ntest/",x\n\nhttp://c.test/,"a\nb"\nhttp://d.test/,x\n'
    assert [(3, "url"), (6, "source")] == wrong(text, "csv")
    assert [(2, "http://a.test/"), (8, "http://d.test/")] == right(text, "csv")


@pytest.mark.parametrize(("text", "expected"), [
    ("url,prio\nhttp://a.test/,1\n", [(1, "prio")]),
    ("url,url\nhttp://a.test/,http://b.test/\n", [(1, "url")]),
    ("priority\n9\n", [(1, "url"), (2, "priority"), (2, "url")]),
    ("http://a.test/\nhttp://b.test/\n", [(1, "")]),
    ("url;priority\nhttp://a.test/;1\n", [(1, "")]),
    ("url,priority\nhttp://a.test/\nhttp://b.test/,1,2\n", [(2, ""), (3, "")]),
    ('url\n"http://a.test/"x\nhttp://b.test/\n', [(2, "")]),
    ('url\nhttp://a.test/\n"http://b.test/\nhttp://c.test/\n', [(3, "")]),
    ("url\n" + "x" * 200_000 + "\n", [(2, "")]),
], ids=str)  # fmt: skip
def test_csv_that_is_wrong_as_a_whole_is_told_once(text, expected):
    """A column with a wrong name is one slip, not one of every row."""
    assert expected == [(line, field) for line, field in wrong(text, "csv")]


def test_no_row_below_a_wrong_header_is_usable():
    """`--skip-wrong` would submit them without what the column was to say."""
    assert [] == right("url,prio\nhttp://a.test/,1\n", "csv")


@pytest.mark.parametrize(("text", "lines", "rest"), [
    ('{"url": "http://a.test/"\n{"url": "http://b.test/"}\n', [1], 1),
    ('{"url": "http://a.test/",}\n{"url": "http://b.test/"}\n', [1], 1),
    ('{"url": "http://a.test/" "priority": 1}\nnonsense\n{"url": "http://b.test/"}\n', [1], 1),
    ('{"url": NaN}\n{"url": ' + "9" * 5_000 + '}\n{"url": "http://b.test/"}\n', [1, 2], 1),
    ("[" * 100_000, [1], 0),
    ('{"url": ' + "[" * 100_000 + '\n{"url": "http://b.test/"}', [1], 1),
    ('[{"url": "http://a.test/"},\n {"url": "http://b.test/"}\n {"url": "http://c.test/"}]', [2], 2),
    ('[{"url": "http://a.test/"},\n]', [2], 1),
    ('[{"url": "http://a.test/"}]\n[]', [2], 1),
    ('[{"url": "http://a.test/"}', [1], 1),
    ("{url: http://a.test/}", [1], 0),
    ('{"url" "http://a.test/"}', [1], 0),
    ("tasks", [1], 0),
], ids=lambda value: str(value)[:40])  # fmt: skip
def test_what_is_not_json_is_told_with_its_line(text, lines, rest):
    """JSON lines go on at the next line; an array can't, but what stood before is checked."""
    assert lines == [line for line, _ in wrong(text, "json")]
    assert rest == len(right(text, "json"))


@pytest.mark.parametrize(("text", "line"), [
    ("a: &a [x]\nb: *a\n", 1),
    ("- url: http://a.test/\n- &x {url: http://b.test/}\n- *x\n", 2),
    ("- url: !!python/object:os.system x\n", 1),
    ("- url: http://a.test/\n\tpriority: 1\n", 2),
    ("- url: 'http://a.test/\n- url: http://b.test/\n", 3),
    ("[" * 100_000, 1),
    ("- {? [a, b] : 1, url: http://a.test/}\n- *x", 2),
], ids=lambda value: str(value)[:40])  # fmt: skip
def test_what_is_not_plain_yaml_is_told_with_its_line(text, line):
    """Ten lines of aliases are gigabytes; a tag may name code."""
    assert line == wrong(text, "yaml")[-1][0]
    assert "what follows was not read" in verdicts(text, "yaml")[-1].problems[-1].text


def test_scalars_of_yaml_are_those_of_its_second_version():
    """By 1.1 `no` is false, `1:30` ninety and a time an object."""
    [found] = verdicts(
        "url: http://a.test/\nsource: no\nparser: 1e3\ncrawl: 08\nnot_before: 2026-05-04T06:30:00Z\n", "yaml"
    )
    assert ("no", "1e3", "08", 1_777_876_200_000) == tuple(
        found.wish.record[name] for name in ("source", "parser", "crawl", "not_before_ms")
    )
    [found] = verdicts("url: http://a.test/\ndepth: ~\nrender: TRUE\ntimeout_s: .5\npriority: +2\n", "yaml")
    assert (None, True, 500, 2) == tuple(
        found.wish.record[name] for name in ("max_depth", "render", "timeout_ms", "priority")
    )


@pytest.mark.parametrize("format_name", ["json", "yaml"])
def test_a_field_that_stands_twice_is_wrong(format_name):
    """One of the two would win in silence."""
    assert [(1, "priority")] == wrong('{"url": "http://a.test/", "priority": 1, "priority": 2}', format_name)


def test_lists_of_urls_have_comments_and_blank_lines():
    """A comment explains a list to its next reader."""
    assert [(2, "http://a.test/"), (5, "http://b.test/%C3%A4")] == right(
        "# first\n  http://a.test/ \n\n   \nhttp://b.test/ä", "urls"
    )


@pytest.mark.parametrize("ends", ["\n", "\r\n", "\r"])
@pytest.mark.parametrize("mark", [b"", b"\xef\xbb\xbf"])
def test_line_ends_and_a_byte_order_mark_are_of_no_importance(ends, mark):
    """The same list comes from other systems."""
    data = mark + ends.join(["http://a.test/", "x", "http://b.test/", ""]).encode()
    assert [(2, "url")] == wrong(data, "urls")
    assert [(1, "http://a.test/"), (3, "http://b.test/")] == right(data, "urls")


@pytest.mark.parametrize("bad", [b"\xff", b"\x00", b"\xed\xa0\x80", b"\xc3"])
def test_each_line_that_is_no_text_is_told_and_its_task_is_not_taken(bad):
    """A replacement character would become a URL that nobody wished; the other lines are checked all the same."""
    data = b"http://a.test/\n# " + bad + b"\nhttp://b.test/" + bad + b"\nx\nhttp://c.test/\n"
    assert [(2, ""), (3, ""), (4, "url")] == sorted(wrong(data, "urls"))
    assert [(1, "http://a.test/"), (5, "http://c.test/")] == right(data, "urls")
    data = b"- url: http://a.test/\n  source: x" + bad + b"\n- url: http://b.test/\n"
    assert [(2, "")] == wrong(data, "yaml")
    assert [(3, "http://b.test/")] == right(data, "yaml")


def test_utf_16_is_told_as_such():
    """It is what some editors call Unicode."""
    [found] = verdicts("http://a.test/".encode("utf-16"), "urls")
    assert "UTF-16" in found.problems[0].text


@pytest.mark.parametrize("format_name", READERS)
def test_a_line_of_ten_megabytes_is_one_short_message(format_name):
    """It must cost neither the memory of its copies nor a screen."""
    found = verdicts("url\n" * (format_name == "csv") + "http://a.test/" + "x" * 10_000_000, format_name)
    assert all(isinstance(verdict, Wrong) for verdict in found)
    assert 200 > max(len(problem.text) for verdict in found for problem in verdict.problems)


@pytest.mark.parametrize("format_name", READERS)
@pytest.mark.parametrize("text", ["", "\n\n", "\ufeff"])
def test_an_empty_file_holds_no_task(format_name, text):
    """Neither a task nor a fault."""
    assert [] == verdicts(text, format_name)


def test_the_same_task_twice_is_one():
    """Its id decides, not how it is written; where the two say different things the first counts, and that is told."""
    text = "- url: http://a.test/\n- url: HTTP://A.test:80/#x\n- {url: http://a.test/, priority: 1}\n"
    text += "- {url: http://a.test/, crawl: c}\n"
    found = verdicts(text, "yaml")
    assert [Right, Repeated, Repeated, Right] == [type(verdict) for verdict in found]
    assert [(("", 1), True), (("", 1), False)] == [(found[1].first, found[1].same), (found[2].first, found[2].same)]


def test_the_same_task_twice_on_one_line_is_one():
    """Programs write arrays without line ends."""
    found = verdicts('[{"url": "http://a.test/"}, {"url": "http://a.test/"}]', "json")
    assert [Right, Repeated] == [type(verdict) for verdict in found]


def test_the_same_task_in_two_files_is_one():
    """Two lists of two colleagues overlap."""
    checker = Checker(Limits(), DEFAULTS)
    first = list(checker.check(READERS["urls"]("http://a.test/"), {}, "one"))
    [again] = checker.check(READERS["urls"]("\nhttp://a.test/"), {}, "two")
    assert (Right, Repeated, ("one", 1), 2) == (type(first[0]), type(again), again.first, again.line)


@pytest.mark.parametrize(("name", "format_name"), [
    ("a.yaml", "yaml"), ("a.YML", "yaml"), ("a.json", "json"), ("b/a.jsonl", "json"), ("a.ndjson", "json"),
    ("a.csv", "csv"), ("a.txt", "urls"), ("a", "urls"), ("-", "urls"),
])  # fmt: skip
def test_the_ending_of_a_name_tells_the_format(name, format_name):
    """And `--format` where it doesn't."""
    assert format_name == format_of(name)


def test_a_file_is_bounded(tmp_path):
    """Of an endless one, too, such as a device."""
    (tmp_path / "urls").write_text("http://a.test/\n")
    assert 1 == len(list(open_file(str(tmp_path / "urls"), None, 15).rows))
    for name in (str(tmp_path / "urls"), "/dev/zero"):
        with pytest.raises(InputError, match="more than 14 bytes"):
            open_file(name, None, 14)
    with pytest.raises(InputError, match="No such file"):
        open_file(str(tmp_path / "nowhere"), None, 14)


NAMES = st.text(string.ascii_letters + string.digits, min_size=1, max_size=12)
HOSTS = st.text(string.ascii_lowercase, min_size=1, max_size=10).map(lambda name: f"http://{name}.test/")
MOMENTS = st.datetimes(datetime(1970, 1, 1), datetime(9000, 1, 1), timezones=st.just(UTC)).map(  # noqa: DTZ001
    lambda moment: moment.replace(microsecond=0).isoformat()
)
TASKS = st.fixed_dictionaries(
    {"url": HOSTS},
    optional={
        "crawl": NAMES, "source": NAMES, "parser": NAMES, "priority": st.integers(1, 5),
        "timeout_s": st.floats(0.1, 300), "concurrency": st.integers(1, 100), "depth": st.integers(0, 1_000),
        "interval_s": st.floats(1, 1e6), "not_before": MOMENTS, "render": st.booleans(),
        "headers": st.text(string.ascii_letters, min_size=1, max_size=12),
    },
)  # fmt: skip


def as_csv(tasks):
    """Write tasks as a spreadsheet does."""
    text = io.StringIO()
    writer = csv.DictWriter(text, FIELDS)
    writer.writeheader()
    writer.writerows(tasks)
    return text.getvalue()


WRITERS = {
    "json lines": ("json", lambda tasks: "".join(json.dumps(task) + "\n" for task in tasks)),
    "json": ("json", lambda tasks: json.dumps(tasks, indent=2)),
    "yaml": ("yaml", yaml.safe_dump),
    "csv": ("csv", as_csv),
}


@given(
    st.lists(TASKS, max_size=5, unique_by=lambda task: (task.get("crawl"), task["url"])), st.sampled_from([*WRITERS])
)
def test_what_other_programs_write_is_read_as_it_was_meant(tasks, name):
    """The same tasks in every format are the same records."""
    format_name, write = WRITERS[name]
    plain = [verdict.wish for verdict in verdicts(json.dumps(tasks), "json") if isinstance(verdict, Right)]
    assert len(plain) == len({(task.get("crawl", "default"), task["url"]) for task in tasks})
    assert plain == [verdict.wish for verdict in verdicts(write(tasks), format_name) if isinstance(verdict, Right)]


@given(st.text(), st.sampled_from([*READERS]))
def test_no_text_raises(text, format_name):
    """A reader answers any text with rows."""
    list(Checker(Limits(), DEFAULTS).check(READERS[format_name](decode(text.encode("utf-8", "surrogatepass"))[0]), {}))


@given(st.binary(), st.sampled_from([*READERS]))
def test_no_bytes_raise(data, format_name):
    """Nor do bytes."""
    verdicts(data, format_name)
