from __future__ import annotations

import base64
import json

import pytest
from click.testing import CliRunner

from pipeline import topics
from pipeline.cli import dlq as command
from pipeline.cli.dlq import dlq
from pipeline.contracts import load_codec
from pipeline.delivery.dead_letters import dead_letter
from pipeline.errors import ConfigurationError, InputError
from pipeline.ops.dead_letter_origins import Refusal
from pipeline.ops.dead_letter_reader import Part
from pipeline.ops.dead_letter_replay import Outcome
from pipeline.ops.dead_letters import Filters, State, read_letter
from tests.fakes import FakeRecord
from tests.frontier_world import make_task

AT_MS = 1_700_000_000_123
VALUE = load_codec().encode(topics.TASKS.subject, make_task("http://a.test/", source="desk\x1b[2J"))


def letter(topic=topics.TASKS, value=VALUE, reason="invalid_task", *, offset=0, key=b"a.test", message="no good"):
    """A letter as a reader returns it."""
    source = FakeRecord(topic.name, value, key, 2, offset, AT_MS, (("trace", b"7"),))
    made = dead_letter(source, InputError(reason, message), group="g", stage="frontier")
    return read_letter(FakeRecord(made.topic, made.value, made.key, 2, offset, AT_MS, made.headers))


A = letter()
B = letter(topics.LINKS, b"\0\xffjunk", "undecodable", offset=1, key=None, message="bad\x1b[31m\nbytes " + "x" * 200)
DONE = letter(offset=2)
object.__setattr__(DONE, "state", State.PURGED)


class Reader:
    """Has the letters A, B and one that is done."""

    asked = None

    def __init__(self, options, names):
        Reader.asked = list(names)

    def __enter__(self):
        return self

    def __exit__(self, *exc_info):
        pass

    def parts(self):
        yield Part("any", 0, 0, 3)

    def letters(self, part):
        yield from (A, B, DONE)


class Office:
    """Does A, refuses B, and notes what it was asked for."""

    made = None

    def __init__(self, options, names, *, by, dry, transaction_timeout_s, own_transactions):
        assert own_transactions is not None
        self.names, self.by, self.dry, self.settled = list(names), by, dry, False
        Office.made = self

    def __enter__(self):
        return self

    def __exit__(self, *exc_info):
        pass

    def _act(self, filters, limit, tell):
        self.filters, self.limit = filters, limit
        outcome = Outcome(done_before=4, left=5)
        if filters.match(A):
            outcome.done = 1
            tell(A, None)
        if filters.match(B):
            outcome.refused["undecodable"] = 1
            tell(B, Refusal("undecodable", "still bad"))
        return outcome

    def replay(self, filters, limit, restore, tell):
        self.output = restore(A)
        return self._act(filters, limit, tell)

    def purge(self, filters, limit, tell):
        return self._act(filters, limit, tell)

    def settle(self):
        self.settled = True
        return {("t-dlq", 0): 7}


@pytest.fixture
def run(monkeypatch):
    """Run the command with a broker that is not asked: `run("list", "--json")`."""
    Reader.asked = Office.made = None
    monkeypatch.setenv("HEADRACE_BROKER__BOOTSTRAP", "nobody.test:9092")
    monkeypatch.setattr(command, "verify", lambda settings, names: None)
    monkeypatch.setattr(command, "DeadLetterReader", Reader)
    monkeypatch.setattr(command, "DeadLetterOffice", Office)
    return lambda *arguments: CliRunner().invoke(dlq, arguments)


def objects(answer):
    """The JSON objects of an answer, one a line."""
    assert 0 == answer.exit_code, answer.output
    return [json.loads(line) for line in answer.stdout.splitlines()]


# ---- list


def test_a_list_has_a_line_a_letter_and_counts_by_reason_and_stage(run):
    """What somebody on call sees first."""
    lines = run("list").stdout.splitlines()
    assert (
        f"{A.id}  open  invalid_task  frontier  crawl.tasks.v1/2/0  a.test  2023-11-14T22:13:20.123Z  attempts 1  "
        "replays 0  no good"
    ) == lines[0]
    assert "2 dead letters" == lines[2]
    assert [["invalid_task", "frontier", "1", "open"], ["undecodable", "frontier", "1", "open"]] == [
        line.split() for line in lines[3:]
    ]


def test_what_senders_wrote_can_not_steer_a_terminal(run):
    """A message may hold anything; it stays on its line, and is cut."""
    line = run("list").stdout.splitlines()[1]
    assert r"bad\x1b[31m\nbytes xx" in line
    assert line.endswith("…")
    assert "\x1b" not in run("show", A.id).stdout


def test_done_letters_are_hidden_unless_asked_for(run):
    """Who looks wants to see what is left."""
    assert [A.id, B.id] == [row["id"] for row in objects(run("list", "--json"))]
    rows = objects(run("list", "--json", "--all"))
    assert [("open"), ("open"), ("purged")] == [row["state"] for row in rows]
    assert "1 purged" in run("list", "--all").stdout


def test_a_limit_cuts_the_list_and_not_the_counts(run):
    """A thousand lines are enough to read, and the summary must still be true."""
    answer = run("list", "--limit", "1")
    assert B.id not in answer.stdout
    assert "2 dead letters" in answer.stdout
    assert "1 more match" in answer.stderr


def test_a_row_for_programs_has_everything_but_the_bytes(run):
    """Its names are a contract."""
    first, second = objects(run("list", "--json"))
    assert {
        "id", "state", "reason", "error", "message", "stage", "version", "topic", "partition", "offset", "time",
        "origin", "domain", "value_bytes", "attempts", "replays", "cut_bytes", "done_by", "done_at",
    } == first.keys()  # fmt: skip
    assert ("crawl.tasks.v1", "a.test", len(VALUE)) == (first["topic"], first["domain"], first["value_bytes"])
    assert None is second["domain"]
    assert {
        "topic": "crawl.tasks.v1", "partition": 2, "offset": 0, "timestamp_ms": AT_MS,
        "time": "2023-11-14T22:13:20.123Z",
    } == first["origin"]  # fmt: skip


# ---- filters


def test_filters_reach_the_letters(run):
    """One that were lost on the way would replay too much."""
    places = ("--topic", "crawl.links.v1-dlq", "--topic", "crawl.tasks.v1", "--origin", "crawl.tasks.v1/2/17")
    kinds = ("--reason", "policy", "--stage", "parse", "--domain", "a.test", "--id", A.id.upper(), "--limit", "3")
    times = ("--since", "2023-11-14T22:13:20Z", "--until", "2023-11-14T23:13:21+01:00")
    run("replay", *places, *kinds, *times)
    assert ["crawl.tasks.v1-dlq", "crawl.links.v1-dlq"] == Office.made.names
    assert 3 == Office.made.limit
    assert (
        Filters(
            ids=frozenset({A.id}),
            reasons=frozenset({"policy"}),
            stages=frozenset({"parse"}),
            keys=frozenset({b"a.test"}),
            since_ms=1_700_000_000_000,
            until_ms=1_700_000_001_000,
            origin_topic="crawl.tasks.v1",
            origin_partition=2,
            origin_offset=17,
        )
        == Office.made.filters
    )


def test_without_filters_every_topic_is_read_and_a_thousand_are_the_limit(run):
    """Bounded by default."""
    run("list")
    assert [topic.dlq for topic in topics.TABLE if topic.dead_letters] == Reader.asked
    run("purge")
    assert (Filters(), 1_000) == (Office.made.filters, Office.made.limit)


def test_an_age_is_counted_from_now(run, monkeypatch):
    """Three days back, as one thinks at night."""
    monkeypatch.setattr("pipeline.cli.dlq_filters.time.time", lambda: 1_000_000.0)
    run("purge", "--since", "3d", "--until", "90s")
    assert ((1_000_000 - 3 * 86_400) * 1_000, (1_000_000 - 90) * 1_000) == (
        Office.made.filters.since_ms,
        Office.made.filters.until_ms,
    )


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--reason", "parse-crash"), "'parse_crash'"),
        (("--stage", "parser"), "'parse'"),
        (("--topic", "crawl.task.v1"), "'crawl.tasks.v1'"),
        (("--topic", "crawl.robots.v1"), "the nearest is"),
        (("--origin", "crawl.pages/1"), "'crawl.pages.v1'"),
        (("--origin", "crawl.pages.v1"), "TOPIC/PARTITION"),
        (("--origin", "crawl.pages.v1/-1"), "TOPIC/PARTITION"),
        (("--since", "yesterday"), "2h or 3d"),
        (("--since", "2026-05-04T06:30:00"), "no zone"),
        (("--since", "1h", "--until", "2h"), "--since is not before --until"),
        (("--id", "1"), "no id of a dead letter"),
        (("--limit", "0"), "limit"),
    ],
)
@pytest.mark.parametrize("name", ["list", "replay", "purge"])
def test_a_filter_that_can_not_be_right_names_what_is(run, name, arguments, said):
    """A typing error must not look like an empty result, nor replay everything."""
    answer = run(name, *arguments)
    assert 2 == answer.exit_code
    assert said in answer.stderr
    assert None is Reader.asked is Office.made


# ---- show and export


def test_a_letter_is_shown_with_its_headers_and_its_decoded_value(run):
    """To mend the cause one must see what was sent."""
    shown = run("show", A.id).stdout
    assert "  trace: 7" in shown
    assert '"url": "http://a.test/"' in shown
    (row,) = objects(run("show", A.id, "--json"))
    assert ("http://a.test/", "", "crawl.tasks.v1-dlq") == (row["decoded"]["url"], row["fault"], row["dlq_topic"])


def test_a_value_that_can_not_be_decoded_is_shown_as_far_as_it_can_be_read(run):
    """The beginning of foreign bytes often says who sent them."""
    shown = run("show", B.id).stdout
    assert r"6 bytes: \x00\xffjunk" in shown.replace("ÿ", r"\xff")
    assert "can't be decoded: schema id" in shown
    (row,) = objects(run("show", B.id, "--json"))
    assert (None, base64.b64encode(b"\0\xffjunk").decode()) == (row["decoded"], row["value_base64"])


def test_a_letter_that_there_is_not_is_said(run):
    """An id from yesterday's alert may be purged and deleted."""
    answer = run("show", A.id.replace(A.id[0], "0" if A.id[0] != "0" else "1"))
    assert isinstance(answer.exception, ConfigurationError)


def test_an_export_has_all_that_is_needed_to_write_the_letters_elsewhere(run, tmp_path):
    """Bytes are base64: JSON has none."""
    file = tmp_path / "letters.jsonl"
    answer = run("export", "--to", str(file))
    assert (0, f"2 dead letters written to {file}\n") == (answer.exit_code, answer.stdout)
    rows = [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]
    assert [VALUE, b"\0\xffjunk"] == [base64.b64decode(row["value_base64"]) for row in rows]
    assert [base64.b64encode(b"a.test").decode(), None] == [row["key_base64"] for row in rows]
    assert ("crawl.tasks.v1-dlq", 2, 0, AT_MS) == tuple(
        rows[0][name] for name in ("dlq_topic", "partition", "offset", "timestamp_ms")
    )
    assert A.headers == tuple((name, base64.b64decode(value)) for name, value in rows[0]["headers"])


def test_an_export_never_overwrites_another(run, tmp_path):
    """It may be all that is left of purged letters."""
    file = tmp_path / "letters.jsonl"
    file.write_text("precious", encoding="utf-8")
    assert isinstance(run("export", "--to", str(file)).exception, ConfigurationError)
    assert "precious" == file.read_text(encoding="utf-8")


# ---- replay and purge


@pytest.mark.parametrize("name", ["replay", "purge"])
def test_without_yes_it_is_said_what_would_be_done(run, name):
    """Dry run by default."""
    answer = run(name)
    assert (True, False) == (Office.made.dry, Office.made.settled)
    assert f"would be {name}" in answer.stdout
    assert f"refused: undecodable: still bad: {B.id}" in answer.stdout
    assert "1 refused (undecodable 1), 5 beyond --limit, 4 done before; nothing was written: --yes does it" in (
        answer.stdout
    )
    assert 0 == answer.exit_code


def test_with_yes_it_is_done_and_the_offsets_are_settled(run):
    """The counts are exact, and who did it is in the marker."""
    answer = run("replay", "--yes")
    assert (False, True) == (Office.made.dry, Office.made.settled)
    assert "@" in Office.made.by
    assert "1 replayed, 1 refused (undecodable 1)" in answer.stdout
    assert (topics.TASKS.name, VALUE) == Office.made.output[:2]


def test_replay_and_purge_speak_json(run):
    """A line a letter, and one with the counts."""
    first, second, last = objects(run("purge", "--yes", "--json"))
    assert (A.id, "purged", False, None) == tuple(first[name] for name in ("id", "action", "dry_run", "refusal"))
    assert (B.id, "refused", "undecodable", "still bad") == tuple(
        second[name] for name in ("id", "action", "refusal", "why")
    )
    assert {"done": 1, "refused": {"undecodable": 1}, "left": 5, "done_before": 4} == last["summary"]


def test_a_letter_that_is_named_and_can_not_be_had_is_a_failure(run):
    """A script that names one must not go on as if it had been done."""
    assert 0 == run("replay", "--id", A.id).exit_code
    assert 2 == run("replay", "--id", B.id).exit_code
    unknown = A.id[:-1] + ("0" if A.id[-1] != "0" else "1")
    answer = run("replay", "--id", A.id, "--id", unknown)
    assert 2 == answer.exit_code
    assert f"no dead letter {unknown}" in answer.stderr


def test_records_are_deleted_only_where_that_is_asked_for_too(run, monkeypatch):
    """A mark can be looked at afterwards, a deletion can't."""
    deleted = []
    monkeypatch.setattr(command, "delete_before", lambda options, positions, wait_s: deleted.append(positions))
    run("purge", "--yes")
    run("purge", "--delete-records")
    assert [] == deleted
    answer = run("purge", "--yes", "--delete-records")
    assert [{("t-dlq", 0): 7}] == deleted
    assert "deleted from the beginning of 1 partitions" in answer.stdout
