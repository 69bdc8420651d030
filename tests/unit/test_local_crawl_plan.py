from __future__ import annotations

import pytest

from pipeline.contracts.codec import load_codec
from pipeline.errors import ConfigurationError, InputError
from pipeline.fetch.guard import AddressGuard, RefusedAddress
from pipeline.frontier.scope import Scope
from pipeline.local.crawl_plan import LOOPBACK_DELAY_S, plan_crawl
from pipeline.topics import CRAWLS


def plan(*urls, **options):
    """Work out a crawl with no options but those given."""
    usual = {"include": (), "exclude": (), "max_depth": None, "delay_s": None, "now": 1.5}
    return plan_crawl(urls, **(usual | options))


def allows(made, url, source=""):
    """Ask the scope as the frontier does."""
    return Scope(made.definition["scope"]).refusal(url, source) is None


def reaches(made, address, port):
    """Ask the address guard as a fetch worker does."""
    try:
        AddressGuard(made.allow_addresses).check(address, port)
    except RefusedAddress:
        return False
    return True


def test_a_crawl_stays_on_the_hosts_of_its_start_points():
    """A person who names a site means that site; the rest of the web is a link away."""
    made = plan("http://a.test/docs/start", "https://b.test:8443")
    assert ["http://a.test/docs/start", "https://b.test:8443/"] == made.start_urls
    for inside in ("http://a.test/", "http://a.test/other?x=*", "https://b.test:8443/x"):
        assert allows(made, inside)
    for outside in ("http://a.test.evil.test/", "https://b.test/x", "http://b.test:8443/", "http://news.a.test/"):
        assert not allows(made, outside)


def test_start_points_are_fetched_as_they_are_written():
    """The same page in another spelling makes the same crawl, and no second task."""
    made = plan("http://a.test/%7ex?utm_source=1", "http://a.test/~x", "http://a.test/b")
    assert ["http://a.test/b", "http://a.test/%7ex?utm_source=1"] == made.start_urls
    assert ["http://a.test/b", "http://a.test/~x"] == made.definition["start_urls"]
    assert plan("http://a.test/~x", "http://a.test/b").definition["crawl"] == made.definition["crawl"]


@pytest.mark.parametrize("start", ["http://a.test/", "https://www.a.test/x"])
def test_a_site_is_its_host_with_and_without_www_by_either_scheme(start):
    """A start point often redirects to the other form; the crawl must not end there."""
    made = plan(start)
    for form in ("http://a.test/y", "https://a.test/y", "http://www.a.test/y", "https://www.a.test/y"):
        assert allows(made, form)
    assert not allows(made, "https://www.a.test:8443/y")


def test_include_narrows_or_widens_what_is_followed():
    """Both a part of the site and another host are common wishes; the start point itself is always fetched."""
    made = plan("http://a.test/start", include=["/blog/*", "https://cdn.test/*"])
    for inside in ("http://a.test/start", "http://a.test/blog/1", "https://cdn.test/x"):
        assert allows(made, inside)
    assert not allows(made, "http://a.test/about")


def test_exclude_wins_over_include_but_not_over_a_start_point():
    """Who names a URL as start point wants that page at least."""
    made = plan("http://a.test/blog/0", include=["/blog/*"], exclude=["/blog/*"])
    assert allows(made, "http://a.test/blog/0")
    assert not allows(made, "http://a.test/blog/1")


def test_rules_of_a_file_stand_between_what_is_excluded_and_what_is_included():
    """Denying rules narrow the start points' own sites; one that allows something takes their place."""
    deny = {"action": "DENY", "pattern": "*/old/*", "source": "news.*"}
    narrowed = plan("http://a.test/", rules=[deny])
    assert allows(narrowed, "http://a.test/x")
    assert not allows(narrowed, "http://a.test/old/x", "news.reuters")
    moved = plan("http://a.test/", rules=[{"action": "ALLOW", "pattern": "http://b.test/*", "source": ""}])
    assert allows(moved, "http://b.test/x")
    assert not allows(moved, "http://a.test/x")
    assert narrowed.definition["crawl"] != plan("http://a.test/").definition["crawl"]


def test_a_pattern_that_could_never_match_is_refused_before_anything_starts():
    """Who writes a host in capitals would otherwise crawl nothing and not know why."""
    with pytest.raises(
        ConfigurationError, match=r"scope rule 2, pattern: 'http://B.test/\*' is wrong; right is http://b"
    ):
        plan("http://a.test/", include=["http://B.test/*"])


@pytest.mark.parametrize("glob", ["*.pdf", ".pdf", "/*.pdf", "http://a.test/*.pdf"])
def test_a_glob_is_looked_for_in_paths_of_the_own_host(glob):
    """Joined to the host without a slash, an included `*.pdf` would match on `a.test.evil.test` too."""
    made = plan("http://a.test/", include=[glob])
    assert allows(made, "http://a.test/deep/x.pdf")
    assert allows(made, "http://a.test/x.pdf")
    assert not allows(made, "http://a.test.evil.test/x.pdf")
    assert not allows(made, "http://a.test/x.pdf.html")


def test_a_glob_in_any_script_matches_canonical_urls():
    """Canonical URLs are percent-encoded; people type what they read."""
    made = plan("http://a.test/", include=["/über uns/*"])
    assert allows(made, "http://a.test/%C3%BCber%20uns/x")


def test_question_marks_and_brackets_are_themselves():
    """They are common in URLs; only a star is a wildcard."""
    made = plan("http://a.test/?page=[1]", include=["/?page=[1]&*"])
    assert allows(made, "http://a.test/?page=[1]&x=2")
    assert not allows(made, "http://a.test/Xpage=1&x=2")


@pytest.mark.parametrize(
    ("url", "address"),
    [
        ("http://127.0.0.1:8000/", "127.0.0.1"),
        ("http://127.8.9.1:8000/", "127.8.9.1"),
        ("http://[::1]:8000/", "::1"),
        ("http://[::ffff:127.0.0.1]:8000/", "::ffff:127.0.0.1"),
        ("http://localhost:8000/", "127.0.0.1"),
        ("http://localhost:8000/", "::1"),
        ("http://app.localhost:8000/", "127.0.0.1"),
    ],
)
def test_a_start_point_on_this_machine_is_reached_on_its_own_port_alone(url, address):
    """A person's own site; what else listens on the machine is nobody's business."""
    made = plan(url)
    assert reaches(made, address, 8000)
    assert not reaches(made, address, 8001)
    assert LOOPBACK_DELAY_S == made.delay_s


@pytest.mark.parametrize("url", ["http://192.168.1.5/", "http://10.0.0.1:8000/", "http://a.test/", "http://[fe80::1]/"])
def test_no_other_address_is_let_through_because_it_was_named(url):
    """A private network needs a word of its own: `--allow-address`."""
    made = plan(url)
    assert [] == made.allow_addresses
    assert None is made.delay_s


def test_a_public_start_point_keeps_the_usual_pause_for_all():
    """The short pause is for one's own machine; a crawl has one pause."""
    assert None is plan("http://127.0.0.1:8000/", "http://a.test/").delay_s
    assert 0.5 == plan("http://127.0.0.1:8000/", delay_s=0.5).delay_s


def test_the_same_command_is_the_same_crawl():
    """That is how it resumes; budgets and pace may change in between."""
    first = plan("http://a.test/", "http://b.test/", exclude=["/x"], max_depth=3)
    again = plan(
        "http://B.test", "http://a.test/#top", exclude=["/x"], max_depth=3, budgets={"max_pages": 9}, delay_s=1, now=2.0
    )
    assert first.definition["crawl"] == again.definition["crawl"]
    others = [
        plan("http://a.test/", exclude=["/x"], max_depth=3),
        plan("http://a.test/", "http://b.test/", max_depth=3),
        plan("http://a.test/", "http://b.test/", exclude=["/x"]),
        plan("http://a.test/", "http://b.test/", include=["/x"], max_depth=3),
    ]
    assert 5 == len({made.definition["crawl"] for made in (first, *others)})


def test_the_definition_fits_its_contract():
    """It is written to a topic as it is."""
    made = plan("http://a.test/", budgets={"max_pages": 7}, max_depth=2, exclude=["*.pdf"])
    codecs = load_codec()
    decoded = codecs.decode(CRAWLS.subject, codecs.encode(CRAWLS.subject, made.definition))
    assert made.definition == decoded
    assert (7, 2, 1500) == (decoded["max_pages"], decoded["max_depth"], decoded["created_at_ms"])


@pytest.mark.parametrize("url", ["a.test", "ftp://a.test/", "http://user:secret@a.test/", "http://", ""])
def test_an_unusable_start_point_is_refused(url):
    """Before a broker is started for it."""
    with pytest.raises(InputError):
        plan("http://a.test/", url)


def test_a_crawl_without_start_points_is_refused():
    """It would end at once with nothing, which looks like success."""
    with pytest.raises(ConfigurationError, match="at least one URL"):
        plan()
