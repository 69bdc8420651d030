from __future__ import annotations

import asyncio
import gzip
import hashlib
import json
import re
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from urllib.parse import urlsplit

import pytest
from click.testing import CliRunner

from pipeline.cli import cli
from pipeline.cli.fetch import fetch
from tests.raw_site import SITE_PEM, RawSite, redirect, response, server_tls

FIELDS = [
    "url", "final_url", "outcome", "status", "reason", "redirects", "address", "content_type", "bytes_wire",
    "bytes_decoded", "truncated", "body_sha256", "elapsed_ms",
]  # fmt: skip
PAGE = b"<p>" * 1000


@contextmanager
def served(made: RawSite, tls: ssl.SSLContext | None = None) -> Iterator[RawSite]:
    """A site with a loop and a thread of its own: the command has its own loop."""
    made.tls = tls
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    asyncio.run_coroutine_threadsafe(made.__aenter__(), loop).result(5)
    yield made
    asyncio.run_coroutine_threadsafe(made.__aexit__(), loop).result(5)
    loop.call_soon_threadsafe(loop.stop)
    thread.join(5)
    loop.close()


@pytest.fixture
def site():
    """A site without TLS."""
    with served(RawSite()) as made:
        yield made


@pytest.fixture(autouse=True)
def _no_configuration(monkeypatch, tmp_path):
    """The machine's own settings must not matter."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("HEADRACE_CONFIG", raising=False)
    monkeypatch.setenv("HEADRACE_POLITENESS__DELAY_S", "0")


def run(*arguments: str):
    """Run the command."""
    return CliRunner().invoke(fetch, list(arguments))


def look(url: str, *arguments: str) -> dict[str, Any]:
    """The one object that is printed, on a machine whose loopback may be reached."""
    done = run(url, "--json", "--allow-address", "127.0.0.0/8", *arguments)
    assert 0 == done.exit_code, done.output
    (line,) = done.stdout.splitlines()
    row = json.loads(line)
    assert [*FIELDS, "steps"] == list(row)
    return row


def steps(row: dict[str, Any], *names: str) -> list[dict[str, Any]]:
    """The steps of these names, in order."""
    return [step for step in row["steps"] if step["step"] in names]


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
    } == {name: row[name] for name in FIELDS if name not in {"bytes_wire", "elapsed_ms"}}
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


def named(tmp_path, *lines: str) -> tuple[str, str]:
    """Arguments that name a configuration in which site.test is on this machine."""
    file = tmp_path / "named.toml"
    file.write_text("\n".join(["[fetch]", 'resolve = {"*site.test" = "127.0.0.1"}', *lines]), encoding="utf-8")
    return ("--config", str(file))


def test_every_step_is_told_in_its_order(tmp_path):
    """Robots first, each request by its gate, name, address, connection and body; the result at last."""
    answers = {
        "/robots.txt": response(b"User-agent: *\nDisallow: /private # ours", content_type="text/plain"),
        "/a": redirect("/b"),
        "/b": response(gzip.compress(PAGE), "Content-Encoding: gzip"),
    }
    with served(RawSite(answers, keep_alive=True)) as site:
        row = look(site.url("/a", "www.site.test"), *named(tmp_path))
    asked = ["gate", "request", "connection", "response", "body"]
    first = ["gate", "request", "dns", "guard", *asked[2:]]
    assert [*first, "robots", *asked, "hop", "robots", *asked, "result"] == [step["step"] for step in row["steps"]]
    assert [False, True, True] == [step["reused"] for step in steps(row, "connection")]
    assert {"host": "www.site.test", "addresses": ["127.0.0.1"], "configured": True} == facts(steps(row, "dns")[0])
    assert ["/robots.txt", "/a", "/b"] == [urlsplit(step["url"]).path for step in steps(row, "request")]
    robots = steps(row, "robots")[0]
    assert ("rules", True, None) == (robots["state"], robots["allowed"], robots["line"])
    body = steps(row, "body")[-1]
    assert (["gzip"], len(PAGE), None, 64 << 20) == (
        body["codings"],
        body["bytes_decoded"],
        body["truncated"],
        body["limits"]["decoded_bytes"],
    )
    (hop,) = steps(row, "hop")
    assert ("redirect", 1, row["final_url"]) == (hop["kind"], hop["number"], hop["url"])
    assert {"outcome": "fetched", "reason": ""} == facts(row["steps"][-1])
    moments = [step["at_ms"] for step in row["steps"]]
    assert sorted(moments) == moments


def facts(step: dict[str, Any]) -> dict[str, Any]:
    """A step without its name and moment."""
    return {name: value for name, value in step.items() if name not in {"step", "at_ms"}}


def test_robots_txt_is_obeyed_and_the_line_is_named(site):
    """One page by hand is a page; a person's own site can be looked at in spite of it."""
    site.answers |= {"/robots.txt": response(b"User-agent: *\n\nDisallow: /a"), "/a": response(PAGE)}
    row = look(site.url("/a"))
    assert ("robots_denied", "disallowed:3", None) == (row["outcome"], row["reason"], row["status"])
    assert ["/robots.txt"] == site.targets
    assert "Disallow: /a" == steps(row, "robots")[0]["rule"]
    row = look(site.url("/a"), "--no-robots")
    assert ("fetched", []) == (row["outcome"], steps(row, "robots"))


def test_a_robots_txt_that_can_not_be_had_closes_its_site(site):
    """RFC 9309 2.3.1.4; and what was wrong is told."""
    site.answers |= {"/robots.txt": response(b"", status="500 x"), "/a": response(PAGE)}
    row = look(site.url("/a"))
    assert ("robots_unreachable", "http_500", 500) == (row["outcome"], row["reason"], row["status"])
    row = look("http://127.0.0.1:1/", "--allow-address", "127.0.0.1:1")
    assert ("robots_unreachable", "connect", None) == (row["outcome"], row["reason"], row["status"])
    assert "connect" == steps(row, "response")[0]["error"]


def test_a_domain_s_pace_is_kept(site, monkeypatch):
    """Who looks at one page is a visitor as any other."""
    monkeypatch.setenv("HEADRACE_POLITENESS__DELAY_S", "0.2")
    site.answers |= {"/a": redirect("/b"), "/b": response(PAGE)}
    row = look(site.url("/a"))
    assert "fetched" == row["outcome"]
    first, second, third = (request.at for request in site.requests)
    assert min(second - first, third - second) >= 0.2
    assert [True, False, False] == [step["waited_ms"] < 100 for step in steps(row, "gate")]


def test_a_pace_that_is_too_slow_for_a_person_is_told(site):
    """The page is not asked for; when it could be is."""
    site.answers |= {"/robots.txt": response(b"User-agent: *\nCrawl-delay: 600"), "/a": response(PAGE)}
    row = look(site.url("/a"))
    assert ("deferred", "gate", ["/robots.txt"]) == (row["outcome"], row["reason"], site.targets)
    assert 590 < steps(row, "gate")[-1]["come_again_s"] <= 600


def test_refused_addresses_are_told_with_what_they_are(site):
    """The one thing that a person who tests on this machine must find out."""
    row = json.loads(run(site.url("/a"), "--json").stdout)
    assert ["loopback"] == [step["kind"] for step in steps(row, "guard")]
    assert "--allow-address" in run("--help").stdout


def test_a_connection_over_tls_is_told_with_its_certificate(tmp_path, monkeypatch):
    """By which version, cipher and name the site is known to be itself."""
    (tmp_path / "trusted.pem").write_text(SITE_PEM[SITE_PEM.index("-----BEGIN CERT") :], encoding="ascii")
    monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "trusted.pem"))
    with served(RawSite({"/a": response(PAGE)}), server_tls(tmp_path)) as site:
        row = look(site.url("/a", "site.test"), *named(tmp_path))
        assert "fetched" == row["outcome"]
        tls = steps(row, "connection")[-1]["tls"]
        assert ("TLSv1.3", ["site.test"], "site.test") == (tls["version"], tls["names"], tls["issuer"])
        row = look(site.url("/a", "other.site.test"), *named(tmp_path))
        assert ("robots_unreachable", "tls") == (row["outcome"], row["reason"])


def test_what_only_the_site_should_know_is_hidden(site):
    """Output is pasted into reports."""

    async def gate(request, writer):
        passed = "cookie" in request.headers
        writer.write(response(PAGE) if passed else redirect("/gate", "Set-Cookie: pass=secret"))

    site.answers["/gate"] = gate
    for arguments in ((), ("--json",)):
        done = run(site.url("/gate"), "--allow-address", "127.0.0.1", *arguments)
        assert "secret" not in done.stdout
        assert "(hidden)" in done.stdout


def test_refusals_in_disguise_are_told_with_their_rule(site, tmp_path):
    """As the stage would take them."""
    site.answers["/a"] = response(b"<title>Slow down", status="403 Forbidden")
    rule = 'told_limits = {mine = {statuses = [403], contains = ["slow down"]}}'
    row = look(site.url("/a"), *named(tmp_path, rule))
    assert ("rate_limited", "told:mine", 403) == (row["outcome"], row["reason"], row["status"])
    assert {"rule": "mine"} == facts(steps(row, "limit")[0])


def test_pages_that_lead_on_by_themselves_are_followed(site):
    """As redirects, with their kind."""
    site.answers |= {"/a": response(b"<meta http-equiv=refresh content='0;/b'>"), "/b": response(PAGE)}
    row = look(site.url("/a"))
    assert ("fetched", [site.url("/a")], site.url("/b")) == (row["outcome"], row["redirects"], row["final_url"])
    assert ["refresh"] == [hop["kind"] for hop in steps(row, "hop")]


def test_people_get_lines(site):
    """One a field."""
    site.answers["/a"] = response(PAGE)
    done = run(site.url("/a"), "--allow-address", "127.0.0.1")
    lines = [line.split() for line in done.stdout.splitlines()]
    assert ["outcome", "fetched"] in lines
    said = [" ".join(line[2:]) for line in lines if line[1:2] == ["ms"]]
    assert said[0] == "gate 127.0.0.1 may be asked, after 0 ms"
    assert f"request GET {site.url('/a')}" in said
    assert f"guard 127.0.0.1 port {site.port} may be connected to" in said
    assert f"robots http://127.0.0.1:{site.port}: has none (status 404), so everything may be asked for" in said
    assert re.fullmatch(r"body 3000 bytes received, 3000 decoded, \d+ ms \(at most .*\)", said[-2])
    assert "result fetched" == said[-1]


def test_a_site_s_words_do_no_harm_in_a_terminal(site):
    """A header may hold what a terminal would obey."""
    site.answers["/a"] = response(PAGE, "Server: \x9b31mred")
    assert "\x9b" not in run(site.url("/a"), "--allow-address", "127.0.0.1").stdout


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
