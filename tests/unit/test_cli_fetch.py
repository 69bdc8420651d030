from __future__ import annotations

import asyncio
import gzip
import hashlib
import json
import threading

import pytest
from click.testing import CliRunner

from pipeline.cli import cli
from pipeline.cli.fetch import fetch
from tests.raw_site import RawSite, redirect, response

FIELDS = {
    "url", "final_url", "outcome", "status", "reason", "redirects", "address", "content_type", "bytes_wire",
    "bytes_decoded", "truncated", "body_sha256", "elapsed_ms",
}  # fmt: skip
PAGE = b"<p>" * 1000


@pytest.fixture
def site():
    """A site with a loop and a thread of its own: the command has its own loop."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    made = RawSite()
    asyncio.run_coroutine_threadsafe(made.__aenter__(), loop).result(5)
    yield made
    asyncio.run_coroutine_threadsafe(made.__aexit__(), loop).result(5)
    loop.call_soon_threadsafe(loop.stop)
    thread.join(5)
    loop.close()


@pytest.fixture(autouse=True)
def _no_configuration(monkeypatch, tmp_path):
    """The machine's own settings must not matter."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("HEADRACE_CONFIG", raising=False)


def run(*arguments: str):
    """Run the command."""
    return CliRunner().invoke(fetch, list(arguments))


def look(url: str, *arguments: str) -> dict[str, object]:
    """The one object that is printed, on a machine whose loopback may be reached."""
    done = run(url, "--json", "--allow-address", "127.0.0.0/8", *arguments)
    assert 0 == done.exit_code, done.output
    (line,) = done.stdout.splitlines()
    row = json.loads(line)
    assert row.keys() >= FIELDS
    return row


def test_a_page_is_shown_with_all_that_is_known(site):
    """The fields are a contract."""
    site.answers["/a"] = response(gzip.compress(PAGE), "Content-Encoding: gzip", content_type="text/html; charset=x")
    row = look(site.url("/a"))
    assert {
        "url": site.url("/a"),
        "final_url": site.url("/a"),
        "outcome": "fetched",
        "status": 200,
        "reason": "",
        "redirects": [],
        "address": "127.0.0.1",
        "content_type": "text/html; charset=x",
        "bytes_decoded": len(PAGE),
        "truncated": None,
        "body_sha256": hashlib.sha256(PAGE).hexdigest(),
    } == {name: row[name] for name in FIELDS - {"bytes_wire", "elapsed_ms"}}
    assert 0 < row["bytes_wire"] < len(PAGE)
    assert isinstance(row["elapsed_ms"], int)


def test_redirects_are_followed_hop_by_hop(site):
    """The way is shown, and a hop may lead to another host."""
    site.answers["/a"] = redirect("/b#x")
    site.answers["/b"] = redirect(site.url("/c", "127.0.0.2").replace("127.0.0.2", "localhost"))
    site.answers["/c"] = response(PAGE)
    row = look(site.url("/a"))
    assert ("fetched", [site.url("/a"), site.url("/b")], site.url("/c", "localhost")) == (
        row["outcome"],
        row["redirects"],
        row["final_url"],
    )


def test_a_hop_to_a_private_address_is_not_followed(site):
    """Every hop passes the guard."""
    site.answers["/a"] = redirect("http://169.254.169.254/latest/meta-data/")
    row = look(site.url("/a"))
    assert ("refused", "blocked_address", None, [site.url("/a")], "http://169.254.169.254/latest/meta-data/") == (
        row["outcome"],
        row["reason"],
        row["status"],
        row["redirects"],
        row["final_url"],
    )


@pytest.mark.parametrize("allow", [[], ["--allow-address", "127.0.0.1:1"], ["--allow-address", "10.0.0.0/8"]])
def test_loopback_is_reached_only_by_wish(site, allow):
    """The guard is on by default."""
    row = json.loads(run(site.url("/a"), "--json", *allow).stdout)
    assert ("refused", "blocked_address", 0) == (row["outcome"], row["reason"], site.connections)


def test_circles_and_cookie_gates_are_told_apart(site):
    """As the stage tells them."""

    async def gate(request, writer):
        passed = "cookie" in request.headers
        writer.write(response(PAGE) if passed else redirect("/gate", "Set-Cookie: a=b"))

    site.answers |= {"/a": redirect("/b"), "/b": redirect("/a"), "/gate": gate}
    row = look(site.url("/a"))
    assert ("http_error", "redirect_loop", 302) == (row["outcome"], row["reason"], row["status"])
    row = look(site.url("/gate"))
    assert ("fetched", []) == (row["outcome"], row["redirects"])


def test_the_body_is_kept_decoded(site, tmp_path):
    """What parse would see, to be looked at; of errors too."""
    site.answers["/a"] = response(gzip.compress(PAGE), "Content-Encoding: gzip")
    look(site.url("/a"), "--body", str(tmp_path / "body"))
    assert PAGE == (tmp_path / "body").read_bytes()
    row = look(site.url("/missing"), "--body", str(tmp_path / "missing"))
    assert ("http_error", "http_404", b"none") == (row["outcome"], row["reason"], (tmp_path / "missing").read_bytes())


def test_a_cut_body_says_so(site):
    """Half an article must not pass for the article."""
    site.answers["/a"] = response(b"<p>half", length=100)
    row = look(site.url("/a"))
    assert ("fetched", "content_length", 7) == (row["outcome"], row["truncated"], row["bytes_decoded"])


def test_limits_come_from_the_configuration(site, tmp_path):
    """The very ones of the stage."""
    site.answers["/a"] = response(PAGE)
    file = tmp_path / "other.toml"
    file.write_text("[fetch]\nmax_wire_bytes = 100\n", encoding="utf-8")
    row = look(site.url("/a"), "--config", str(file))
    assert ("too_large", "wire_bytes", None) == (row["outcome"], row["reason"], row["body_sha256"])


def test_people_get_lines(site):
    """One a field."""
    site.answers["/a"] = response(PAGE)
    done = run(site.url("/a"), "--allow-address", "127.0.0.1")
    assert ["outcome", "fetched"] in [line.split() for line in done.stdout.splitlines()]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["ftp://site.test/"], "not http or https"),
        (["http://site.test/", "--allow-address", "nonsense"], "fetch.allow_addresses"),
        (["http://site.test/", "--config", "missing.toml"], "no such file"),
    ],
)
def test_a_wrong_call_ends_with_what_is_wrong(arguments, message):
    """A plain message, no traceback; `headrace` turns it into its exit status."""
    done = CliRunner().invoke(cli, ["fetch", *arguments])
    assert message in str(done.exception)
