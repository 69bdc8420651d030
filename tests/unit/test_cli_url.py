from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest
from click.testing import CliRunner

from pipeline.cli import cli
from pipeline.web.partition import partition_for
from pipeline.web.url import url_key


@pytest.fixture
def run(monkeypatch, tmp_path):
    """Call `headrace url` in an empty directory; gives the rows of --json."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("HEADRACE_CONFIG", raising=False)

    def call(*arguments, stdin=b""):
        result = CliRunner().invoke(cli, ["url", "--json", *arguments], input=stdin)
        assert 0 == result.exit_code, result.output
        return [json.loads(line) for line in result.stdout.splitlines()]

    return call


def test_a_url_is_shown_as_the_pipeline_sees_it(run):
    """These fields are a contract: people compare them with keys and partitions in topics."""
    assert [
        {
            "input": "HTTP://www.Example.com/a?utm_source=x#b",
            "canonical": "http://www.example.com/a",
            "wire": "http://www.example.com/a?utm_source=x",
            "key": url_key("http://www.example.com/a").hex(),
            "registrable_domain": "example.com",
            "partition": partition_for(b"example.com", 12),
            "refused": None,
        }
    ] == run("HTTP://www.Example.com/a?utm_source=x#b", "--partitions", "12")


def test_a_refusal_is_an_answer(run):
    """A list with one bad URL is still shown to its end, and the exit status is 0."""
    rows = run("ftp://h.example/", "http://h.example/")
    nothing = dict.fromkeys(("canonical", "wire", "key", "registrable_domain", "partition"))
    assert {"input": "ftp://h.example/", **nothing, "refused": "scheme"} == rows[0]
    assert rows[1]["refused"] is None


def test_relative_urls_are_resolved_against_the_base(run):
    """So that a link can be looked at as it stands in a page."""
    assert ["http://h.example/b"] == [row["canonical"] for row in run("../b", "--base", "http://h.example/a/c")]


def test_urls_are_read_from_standard_input(run):
    """One a line, in their place among the arguments; bytes that are no UTF-8 stop nothing."""
    rows = run("/1", "-", "/4", "--base", "http://h.example", stdin=b"/2\r\n\n/\xff\n")
    assert ["/1", "/2", "/%EF%BF%BD", "/4"] == [row["canonical"][16:] for row in rows]
    assert "/\ufffd" == rows[2]["input"]


def test_configured_values_hold(run, tmp_path):
    """The answer is that of the configured cluster, not of some other."""
    (tmp_path / "headrace.toml").write_text("[topics]\npartitions = 1\n[frontier]\nmax_url_bytes = 64\n")
    rows = run("http://h.example/", "http://h.example/".ljust(65, "a"))
    assert [0, None] == [row["partition"] for row in rows]
    assert "too_long" == rows[1]["refused"]


def test_people_get_lines(monkeypatch, tmp_path):
    """Without --json: the URL, and below it what is known of it."""
    monkeypatch.chdir(tmp_path)
    result = CliRunner().invoke(cli, ["url", "http://h.example/", "mailto:x"])
    lines = result.stdout.splitlines()
    assert ["http://h.example/", "  canonical           http://h.example/"] == lines[:2]
    assert ["mailto:x", "  refused             scheme"] == lines[-2:]


def test_without_a_url_the_command_says_so():
    """An empty answer would look like success."""
    assert 2 == CliRunner().invoke(cli, ["url"]).exit_code


@pytest.fixture
def western():
    """Run `headrace url` where the terminal knows western letters only; gives what is written."""

    def call(*arguments):
        environ = {**os.environ, "PYTHONIOENCODING": "latin-1", "HEADRACE_CONFIG": os.devnull}
        command = [sys.executable, "-m", "pipeline.cli", "url", *arguments]
        done = subprocess.run(command, env=environ, capture_output=True, timeout=60, check=True)
        return done.stdout.decode("latin-1")

    return call


def test_a_terminal_that_lacks_a_character_ends_no_command(western):
    """What senders wrote stands in what commands print."""
    assert ["http://b\u00fccher.test/\\u20ac"] == western("http://b\u00fccher.test/\u20ac").splitlines()[:1]


def test_json_is_json_whatever_the_terminal_lacks(western):
    """A script reads it."""
    url = "http://b\u00fccher.test/\u20ac"
    assert url == json.loads(western("--json", url))["input"]


def test_an_object_is_one_line_by_any_rule(run):
    """What a sender wrote must not break it in two for whoever splits by Unicode's line ends."""
    (row,) = run("http://a.test/\u2028\u2029\x85x")
    assert "http://a.test/\u2028\u2029\x85x" == row["input"]
