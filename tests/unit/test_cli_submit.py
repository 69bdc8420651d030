from __future__ import annotations

import pytest
from click.testing import CliRunner

from pipeline.cli import submit as command
from pipeline.cli.submit import submit
from pipeline.errors import InputError


class Submission:
    """Notes what would be submitted."""

    made = None

    def __init__(self, options, codecs):
        self.submitted = []
        self.flushed = False
        Submission.made = self

    def submit(self, urls, crawl, priority, now, source):
        self.submitted.append((list(urls), crawl, priority, source))
        return len(urls)

    def flush(self):
        self.flushed = True


@pytest.fixture
def run(monkeypatch):
    """Run the command with a broker that is not asked: `run("http://a.test/", input=…)`."""
    Submission.made = None
    monkeypatch.setenv("HEADRACE_BROKER__BOOTSTRAP", "nobody.test:9092")
    monkeypatch.setattr(command, "verify", lambda settings, names: None)
    monkeypatch.setattr(command, "Submission", Submission)
    return lambda *arguments, **options: CliRunner().invoke(submit, arguments, **options)


def test_urls_of_the_command_line_and_of_a_file_are_submitted_together(run, tmp_path):
    """A file for the many, a word for the one that was forgotten; comments explain a file to its next reader."""
    file = tmp_path / "urls"
    file.write_text("# the first ones\nhttp://b.test/\n\n  http://c.test/ä \n", encoding="utf-8")
    answer = run("http://a.test/", "--file", str(file), "--crawl", "c", "--priority", "1")
    assert 0 == answer.exit_code
    assert "3 tasks submitted to crawl c" in answer.output
    expected = [(["http://a.test/", "http://b.test/", "http://c.test/ä"], "c", 1, "cli")]
    assert expected == Submission.made.submitted
    assert Submission.made.flushed


def test_standard_input_is_a_file_too(run):
    """The end of a pipe."""
    assert 0 == run("--file", "-", input="http://a.test/\n").exit_code
    assert [(["http://a.test/"], "default", 3, "cli")] == Submission.made.submitted


def test_each_bad_url_is_named_and_nothing_is_submitted(run):
    """Who corrects a list of ten thousand wants all its faults in one go."""
    answer = run("http://a.test/", "nonsense", "mailto:x@y.test")
    assert 2 == answer.exit_code
    assert "2: nonsense: " in answer.output
    assert "3: mailto:x@y.test: " in answer.output
    assert "2 of 3 URLs can't be used; nothing was submitted" in answer.output
    assert None is Submission.made


def test_a_file_that_is_no_text_is_refused_with_its_name(run, tmp_path):
    """Replacement characters would become URLs that nobody wished."""
    file = tmp_path / "urls.gz"
    file.write_bytes(b"http://a.test/\n\x1f\x8b\xff\xfe\n")
    answer = run("--file", str(file))
    assert isinstance(answer.exception, InputError)
    assert f"{file}: not UTF-8" in str(answer.exception)
    assert None is Submission.made


@pytest.mark.parametrize(
    "arguments", [(), ("--file", "-"), ("--priority", "6", "http://a.test/"), ("--file", "nowhere")]
)
def test_a_command_that_names_no_work_explains_itself(run, arguments):
    """Nothing to submit is a slip, not a success."""
    answer = run(*arguments, input="# nothing\n")
    assert 2 == answer.exit_code
    assert "Usage: " in answer.output
    assert None is Submission.made
