from __future__ import annotations

import json

import pytest
from click.testing import CliRunner

from pipeline.cli import submit as command
from pipeline.cli.submit import submit
from pipeline.errors import BrokerError, InputError


class Writer:
    """Notes what would be written."""

    made = None
    error = None

    def __init__(self, options, codecs, transactional_id, timeout_s):
        self.transactional_id = transactional_id
        self.timeout_s = timeout_s
        self.wishes = []
        Writer.made = self

    def write(self, wishes):
        if Writer.error:
            raise Writer.error
        self.wishes = list(wishes)

    @classmethod
    def written(cls):
        """URL, crawl and priority of each task."""
        return [(wish.url, wish.record["crawl"], wish.record["priority"]) for wish in cls.made.wishes]


@pytest.fixture
def run(monkeypatch, tmp_path):
    """Run the command in an empty directory with a broker that is not asked: `run("http://a.test/", input=…)`."""
    monkeypatch.setattr(Writer, "made", None)
    monkeypatch.setattr(Writer, "error", None)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HEADRACE_BROKER__BOOTSTRAP", "nobody.test:9092")
    monkeypatch.setattr(command, "verify", lambda settings, names: None)
    monkeypatch.setattr(command, "TaskWriter", Writer)
    return lambda *arguments, **options: CliRunner().invoke(submit, arguments, **options)


def test_urls_of_the_command_line_and_of_a_file_are_submitted_together(run, tmp_path):
    """A file for the many, a word for the one that was forgotten; comments explain a file to its next reader."""
    file = tmp_path / "urls"
    file.write_text("# the first ones\nhttp://b.test/\n\n  http://c.test/ä \n", encoding="utf-8")
    answer = run("http://a.test/", "--file", str(file), "--crawl", "c", "--priority", "1")
    assert 0 == answer.exit_code
    assert "3 tasks submitted to crawl c\n" == answer.stdout
    urls = ["http://a.test/", "http://b.test/", "http://c.test/%C3%A4"]
    assert [(url, "c", 1) for url in urls] == Writer.written()


def test_files_are_named_like_urls(run, tmp_path):
    """`headrace submit tasks.yaml` is what one tries first; what a task says comes before what the command says."""
    (tmp_path / "a.yaml").write_text("- url: http://a.test/\n  crawl: mine\n- url: http://b.test/\n")
    (tmp_path / "b.csv").write_text("url,priority\nhttp://c.test/,5\n")
    answer = run("a.yaml", "http://d.test/", "b.csv", "--priority", "2")
    assert "4 tasks submitted to 2 crawls\n" == answer.stdout
    assert [
        ("http://d.test/", "default", 2), ("http://a.test/", "mine", 2), ("http://b.test/", "default", 2),
        ("http://c.test/", "default", 5),
    ] == Writer.written()  # fmt: skip


@pytest.mark.parametrize("arguments", [("-",), ("--file", "-")])
def test_standard_input_is_a_file_too(run, arguments):
    """The end of a pipe, in any format."""
    assert 0 == run(*arguments, input="http://a.test/\n").exit_code
    assert [("http://a.test/", "default", 3)] == Writer.written()
    assert 0 == run(*arguments, "--format", "json", input='{"url": "http://b.test/", "priority": 4}').exit_code
    assert [("http://b.test/", "default", 4)] == Writer.written()


def test_each_bad_url_is_named_and_nothing_is_submitted(run):
    """Who corrects a list of ten thousand wants all its faults in one go."""
    answer = run("http://a.test/", "nonsense", "mailto:x@y.test")
    assert 2 == answer.exit_code
    assert "argument 2: 'nonsense' is neither an absolute URL nor a file that is there\n" in answer.stderr
    assert "argument 3: url: 'mailto' is not http or https\n" in answer.stderr
    assert "2 of 3 tasks are wrong (2 problems); nothing was submitted\n" in answer.stderr
    assert "" == answer.stdout
    assert None is Writer.made


def test_each_problem_has_file_line_and_field(run, tmp_path):
    """An editor jumps to `file:line`."""
    (tmp_path / "a.yaml").write_text("- url: http://a.test/\n  priority: 9\n  depht: 1\n- url: http://b.test/\n")
    answer = run("a.yaml")
    assert 2 == answer.exit_code
    assert [
        "a.yaml:2: priority: 9 is not right; wanted is a whole number from 1 (urgent) to 5 (bulk)",
        "a.yaml:3: depht: there is no such field; the nearest is 'depth'",
        "1 of 2 tasks are wrong (2 problems); nothing was submitted",
    ] == answer.stderr.splitlines()


def test_the_right_ones_are_submitted_where_that_is_asked_for(run, tmp_path):
    """A feed of a partner has always a few that are wrong."""
    (tmp_path / "urls").write_text("http://a.test/\nx\nhttp://b.test/\n")
    answer = run("urls", "--skip-wrong")
    assert 0 == answer.exit_code
    assert "1 of 3 tasks are wrong (1 problems); the others are right\n" in answer.stderr
    assert "2 tasks submitted to crawl default\n" == answer.stdout
    assert 2 == len(Writer.written())


def test_the_same_task_twice_is_no_mistake(run, tmp_path):
    """Lists overlap."""
    (tmp_path / "a.json").write_text('{"url": "http://a.test/"}\n{"url": "http://A.test", "priority": 1}\n')
    answer = run("http://a.test/#x", "a.json")
    assert 0 == answer.exit_code
    assert "a.json:1: the same task as argument 1\n" in answer.stderr
    assert "a.json:2: the same task as argument 1, in other words: the first counts\n" in answer.stderr
    assert "1 tasks submitted to crawl default\n" == answer.stdout


def test_a_dry_run_asks_nobody(run, tmp_path):
    """To check a file needs no cluster."""
    assert "1 tasks could be submitted\n" == run("http://a.test/", "--dry-run").stdout
    assert 2 == run("http://a.test/", "x", "--dry-run").exit_code
    assert None is Writer.made


def test_programs_read_problems_as_json(run, tmp_path):
    """One object a line: problems, tasks that stood there before, and at the end the counts."""
    (tmp_path / "a.csv").write_text("url,priority\nhttp://a.test/,9\nhttp://b.test/,\nhttp://b.test,\n")
    answer = run("a.csv", "--json", "--skip-wrong")
    problem, repeated, counts = map(json.loads, answer.stdout.splitlines())
    assert {
        "file": "a.csv", "line": 2, "task": 1, "field": "priority", "nearest": None,
        "problem": "'9' is not right; wanted is a whole number from 1 (urgent) to 5 (bulk)",
    } == problem | {"task": 1}  # fmt: skip
    assert {
        "file": "a.csv", "line": 4, "task": 2, "same_as": {"file": "a.csv", "line": 3}, "differs": False,
    } == repeated  # fmt: skip
    assert {"rows": 3, "wrong": 1, "problems": 1, "repeated": 1, "right": 1, "submitted": 1} == counts


def test_two_people_may_submit_at_once(run):
    """A transactional id that both had would end the first one's transaction."""
    run("http://a.test/")
    first = Writer.made
    run("http://a.test/")
    assert first.transactional_id != Writer.made.transactional_id
    assert first.transactional_id.startswith("headrace-submit-")


def test_a_broker_that_does_not_take_it_is_told(run):
    """Silence would be taken for success."""
    Writer.error = BrokerError("nothing was written")
    answer = run("http://a.test/")
    assert isinstance(answer.exception, BrokerError)
    assert "submitted" not in answer.output


def test_a_file_that_is_no_text_is_refused_with_its_lines(run, tmp_path):
    """Replacement characters would become URLs that nobody wished."""
    (tmp_path / "urls.gz").write_bytes(b"http://a.test/\n\x1f\x8b\xff\xfe\n")
    answer = run("urls.gz")
    assert 2 == answer.exit_code
    assert "urls.gz:2: not UTF-8: byte 0x8b" in answer.stderr
    assert None is Writer.made


@pytest.mark.parametrize(
    "arguments", [(), ("--file", "-"), ("--priority", "6", "http://a.test/"), ("-", "--format", "x")]
)
def test_a_command_that_names_no_work_explains_itself(run, arguments):
    """Nothing to submit is a slip, not a success."""
    answer = run(*arguments, input="# nothing\n")
    assert 2 == answer.exit_code
    assert "Usage: " in answer.output
    assert None is Writer.made


def test_a_file_that_is_not_there_or_too_large_is_refused(run, tmp_path, monkeypatch):
    """With the name, and the key that says how large one may be."""
    (tmp_path / "urls").write_text("http://a.test/\n")
    assert "nowhere: No such file" in str(run("--file", "nowhere").exception)
    monkeypatch.setenv("HEADRACE_TASKS__MAX_FILE_BYTES", "14")
    answer = run("urls")
    assert isinstance(answer.exception, InputError)
    assert "urls: more than 14 bytes; tasks.max_file_bytes" in str(answer.exception)


def test_tasks_are_withdrawn_as_they_were_submitted(run, tmp_path):
    """The same file takes back what it has brought: recurring work would go on for ever else."""
    file = tmp_path / "tasks.yaml"
    file.write_text("- url: http://a.test/feed\n  interval_s: 60\n", encoding="utf-8")
    answer = run(str(file), "--withdraw")
    assert (0, "1 tasks withdrawn from crawl default\n") == (answer.exit_code, answer.stdout)
    assert [True] == [wish.record["withdraw"] for wish in Writer.made.wishes]
