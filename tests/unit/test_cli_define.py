from __future__ import annotations

import pytest
from click.testing import CliRunner

from pipeline.cli import define as command
from pipeline.cli.define import define


@pytest.fixture
def written(monkeypatch):
    """Definitions in the order in which they were written."""
    made = []

    class Written:
        def __init__(self, options, codecs):
            del options, codecs

        def define(self, definition):
            made.append(definition["crawl"])

        def flush(self):
            made.append("flush")

    monkeypatch.setenv("HEADRACE_BROKER__BOOTSTRAP", "127.0.0.1:9")
    monkeypatch.setattr(command, "Submission", Written)
    monkeypatch.setattr(command, "verify", lambda settings, names: None)
    monkeypatch.setattr(command, "with_local_addresses", lambda settings: settings)
    return made


@pytest.fixture
def files(tmp_path):
    """Two right definitions and a wrong one."""
    texts = {"one": "crawl: one", "two": '{"crawl": "two", "rules": [{"deny": "*.pdf"}]}', "wrong": "crawl: ''"}
    texts["empty"] = ""
    for name, text in texts.items():
        (tmp_path / name).write_text(text)
    return [str(tmp_path / name) for name in texts]


def test_crawls_are_defined_and_told(written, files):
    """In the order of the files."""
    answer = CliRunner().invoke(define, files[:2])
    assert (0, "one: defined, 0 rules\ntwo: defined, 1 rules\n") == (answer.exit_code, answer.output)
    assert ["one", "two", "flush"] == written


def test_nothing_is_written_when_one_file_is_wrong_or_none_shall_be(written, files):
    """Half a set of crawls is nothing that anybody wished."""
    refused = CliRunner().invoke(define, files)
    assert all(f"{file}: " in str(refused.exception) for file in files[2:])
    assert "one: right, 0 rules\n" == CliRunner().invoke(define, [files[0], "--dry-run"]).output
    assert [] == written
