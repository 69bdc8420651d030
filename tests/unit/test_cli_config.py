"""`headrace config`: every value in effect, where it came from, and no secret."""

from __future__ import annotations

import json
import tomllib

import pytest
from click.testing import CliRunner

from pipeline.cli import cli
from pipeline.config import known_keys
from pipeline.errors import ConfigurationError


@pytest.fixture
def run(monkeypatch, tmp_path):
    """Run the command in an empty directory with an environment of its own."""
    monkeypatch.chdir(tmp_path)

    def call(*arguments: str, **environment: str):
        env = {"HEADRACE_CONFIG": "", **environment}
        return CliRunner().invoke(cli, ["config", *arguments], env=env, catch_exceptions=False)

    return call


def rows(result):
    """Read --json output: key → row."""
    return {row["key"]: row for row in map(json.loads, result.stdout.splitlines())}


def test_every_key_is_shown_with_its_origin(run, tmp_path):
    """Who wonders why a value is in effect finds the place to change it."""
    (tmp_path / "headrace.toml").write_text("[fetch]\ntotal_s = 20\nconcurrency = 64\n")
    shown = rows(run("--json", HEADRACE_FETCH__TOTAL_S="30"))
    assert known_keys() == list(shown)
    assert {"key": "fetch.total_s", "value": 30.0, "origin": "HEADRACE_FETCH__TOTAL_S"} == shown["fetch.total_s"]
    assert {"key": "fetch.concurrency", "value": 64, "origin": "headrace.toml"} == shown["fetch.concurrency"]
    assert {"key": "fetch.idle_s", "value": 15.0, "origin": "default"} == shown["fetch.idle_s"]


def test_a_named_file_is_read(run, tmp_path):
    """A deployment keeps its file elsewhere."""
    (tmp_path / "other.toml").write_text('[worker]\nname = "7"\n')
    shown = rows(run("--config", "other.toml", "--json"))
    assert {"key": "worker.name", "value": "7", "origin": "other.toml"} == shown["worker.name"]


def test_a_named_file_that_is_not_there_is_an_error(run):
    """Defaults in its place would be a silent mistake."""
    with pytest.raises(ConfigurationError, match=r"other\.toml: no such file"):
        run("--config", "other.toml")


@pytest.mark.parametrize("form", [[], ["--json"]])
def test_no_secret_is_printed(run, form):
    """The output is pasted into tickets."""
    secret = "hunter2"
    result = run(
        *form,
        HEADRACE_BROKER__PASSWORD=secret,
        HEADRACE_BROKER__OPTIONS=(
            f'{{"sasl.password" = "{secret}", "ssl.key.pem" = "{secret}", "ssl.keystore.password" = "{secret}", '
            f'"sasl.oauthbearer.client.secret" = "{secret}", "ssl.key.location" = "/etc/key"}}'
        ),
        HEADRACE_REGISTRY__URL=f"https://me:{secret}@registry.example/",
    )
    assert secret not in result.output
    assert "/etc/key" in result.output
    assert "(hidden)@registry.example" in result.output


def test_the_text_form_is_a_configuration_file(run, tmp_path):
    """It is the easiest start for one: what is printed can be read back to the same values."""
    environment = {
        "HEADRACE_FETCH__RESOLVE": '{"*.demo.test" = "127.0.0.1"}',
        "HEADRACE_FRONTIER__RETRY_PAUSES_S": "[0.5, 2]",
        "HEADRACE_STORE__DIRECTORY": "/data/out",
    }
    text = run(**environment).stdout
    assert {"*.demo.test": "127.0.0.1"} == tomllib.loads(text)["fetch"]["resolve"]
    (tmp_path / "headrace.toml").write_text(text)
    values = {key: row["value"] for key, row in rows(run("--json")).items()}
    assert {key: row["value"] for key, row in rows(run("--json", **environment)).items()} == values


def test_an_unknown_key_names_the_nearest(run):
    """A misspelt key must not be a setting that is silently not in effect."""
    with pytest.raises(ConfigurationError, match=r"HEADRACE_FETCH__TOTALS: .*'fetch\.totals'.*'fetch\.total_s'"):
        run(HEADRACE_FETCH__TOTALS="30")
