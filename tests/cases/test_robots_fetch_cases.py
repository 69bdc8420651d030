"""Acceptance cases on how robots.txt is fetched; those on its rules are in `test_robots_cases`."""

from __future__ import annotations

from tests.fetch_world import fetch_world
from tests.raw_site import redirect, response


async def test_rob_03_rules_reached_by_a_redirect_belong_to_the_host_that_was_asked():
    """RFC 9309 2.3.1.2: cached for the target, they would replace its own, and open a closed site."""
    closed = response(b"User-agent: *\nDisallow: /")
    for target in ("/band/robots.txt", "/robots.txt?from=band"):
        async with fetch_world() as world:
            world.site.answers |= {
                "band.site.test/robots.txt": redirect(world.site.url(target, "social.site.test"), status="301 x"),
                f"social.site.test{target}": response(b""),
                "social.site.test/robots.txt": closed,
            }
            verdicts = [
                await world.handle("/a", host="band.site.test"),
                await world.handle("/x", host="social.site.test"),
            ]
        assert [("FETCHED", ""), ("ROBOTS_DENIED", "disallowed:2")] == [verdict.kind for verdict in verdicts]


async def test_rob_11_what_is_left_out_of_a_long_file_is_said(caplog):
    """RFC 9309 2.5: cutting must keep the rules that fit, and a person must be able to learn of it."""
    rules = b"User-agent: *\n" + b"".join(b"Disallow: /p%d/\n" % number for number in range(30_000))
    async with fetch_world() as world:
        world.site.answers["/robots.txt"] = response(rules + b"Disallow: /late/\n")
        assert ("ROBOTS_DENIED", "disallowed:20002") == (await world.handle("/p20000/x")).kind
        assert ("FETCHED", "") == (await world.handle("/a")).kind
    assert "are left out" in caplog.text
