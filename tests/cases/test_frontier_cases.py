"""Faults of other crawlers that the frontier must not have: what it decides about URLs, redirects, traps and delays."""

from __future__ import annotations

import pytest

from pipeline.errors import InputError
from tests.frontier_world import START, Bench, Page, World, make_stage

START_MS = int(START * 1000)


@pytest.fixture
def bench():
    """A partition whose domains wait for nothing."""
    return Bench(make_stage(delay_s=0))


def given_out(bench, *urls):
    """Submit URLs. Return those given out, in order."""
    for url in urls:
        bench.task(url)
    return bench.urls()


def test_fro_01_a_url_is_done_by_its_outcome_not_by_having_been_asked_for(bench):
    """A page that sets a cookie and redirects to itself: the hop stays inside one fetch, which ends with the page.

    Until an outcome comes the URL is not done: a fetch that was cut off is repeated, whoever asked meanwhile.
    """
    start = "http://site.test/start"
    bench.task(start)
    (lane,) = bench.emitted()
    bench.task(start, redirects=[start])
    bench.outcome(lane, "NETWORK_ERROR", requests=1)
    (again,) = bench.emitted(after_s=1)
    bench.outcome(again, "FETCHED", requests=2)
    assert (1, 1, 0) == tuple(bench.progress()[name] for name in ("done", "pages_fetched", "failed"))
    assert [] == bench.emitted(after_s=100)


def test_fro_04_scheme_less_links_on_a_site_that_answers_any_path_come_to_an_end():
    """Every page under /docs/ offers one longer URL of the same page; the run of segments that repeats is refused."""

    def site(url: str) -> Page:
        if not url.startswith("http://site.test/docs/"):
            return Page(ends="HTTP_ERROR")
        return Page(links=["www.partner.example/policies/", "/docs/real"])

    world = World(site, delay_s=0)
    world.submit("http://site.test/docs/a/")
    world.run()
    asked = [url for _, url in world.delivered if url.startswith("http://site.test/docs/")]
    assert "http://site.test/docs/real" in asked
    assert 40 >= len(asked)
    assert 2 == sum(row["refused"].get("path_repetition", 0) for row in world.progress.values())


def test_fro_06_a_long_crawl_delay_slows_a_host_down_and_loses_nothing():
    """A delay of two minutes is obeyed: the second URL was out before it was known, comes back and waits."""
    bench = Bench(make_stage())
    bench.task("http://site.test/1")
    bench.task("http://site.test/2")
    first, second = bench.emitted()
    bench.outcome(first, "FETCHED", crawl_delay_ms=120_000)
    bench.outcome(second, "DEFERRED", requests=0, not_before_ms=START_MS + 120_000, crawl_delay_ms=120_000)
    assert [] == bench.emitted(after_s=119.999)
    (again,) = bench.emitted(after_s=0.001)
    assert ("http://site.test/2", 120_000, 0) == (again["url"], again["delay_ms"], again["attempt"])
    bench.outcome(again, "FETCHED", crawl_delay_ms=120_000)
    assert (2, 0) == (bench.progress()["done"], bench.progress()["failed"])
    assert not bench.stage.counters["dead_tasks"]


def test_url_01_a_port_stays_out_of_the_host_and_user_information_is_refused(bench):
    """What the sender wrote before the @ must not end up in a host, nor be sent anywhere."""
    assert ["https://xn--e1afmkfd.xn--80akhbyknj4f:8443/a"] == given_out(bench, "https://пример.испытание:8443/a")
    with pytest.raises(InputError) as caught:
        bench.task("https://user@пример.испытание:8443/a")
    assert ("invalid_task", "url") == (caught.value.reason, caught.value.field)


@pytest.mark.parametrize("path", ["artist/_/100%+Pure", "a%zz", "a%", "q?x=50%"])
def test_url_04_a_url_with_a_lone_percent_sign_is_one_page_however_often_it_comes_round(bench, path):
    """A key that changed when made canonical again would split the page into two."""
    (href,) = given_out(bench, f"https://music.example/{path}")
    assert [] == given_out(bench, href)
    bench.links([href])
    assert [] == bench.urls()


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        pytest.param(
            "https://example.org/a%2db/c%2dd/?k=v", "https://example.org/a-b/c-d/?k=v", True, id="url-05-path"
        ),
        pytest.param("https://example.org/%41%42%43?%61=%62", "https://example.org/ABC?a=b", True, id="url-05-query"),
        pytest.param("https://example.com/Item/AbC", "https://example.com/item/abc", False, id="url-06-path"),
        pytest.param(
            "https://example.com/?token=SeCrEt", "https://example.com/?token=secret", False, id="url-06-query"
        ),
        pytest.param("HTTPS://EXAMPLE.com/x", "https://example.com/x", True, id="url-06-host"),
        pytest.param(
            "http://bank.example/ab%5Ccd.nsf/Page?OpenDocument",
            "http://bank.example/ab\\cd.nsf/Page?OpenDocument",
            False,
            id="url-08",
        ),
    ],
)
def test_two_spellings_of_a_page_are_fetched_once_and_two_pages_twice(bench, one, other, same):
    """The seen table works on canonical URLs: as tasks and as links alike."""
    assert (1 if same else 2) == len(given_out(bench, one, other))
    bench.links([one, other])
    assert [] == bench.urls()


@pytest.mark.parametrize(
    ("written", "asked"),
    [
        ("http://bank.example/ab\\cd.nsf/Page?OpenDocument", "http://bank.example/ab/cd.nsf/Page?OpenDocument"),
        ("http://10.2.3.4/hello", "http://10.2.3.4/hello"),
        ("https://h.example:443/x", "https://h.example/x"),
        ("https://h.example:80/x", "https://h.example:80/x"),
        ("http://h.example:443/x", "http://h.example:443/x"),
        ("http://h.example:00080/x", "http://h.example/x"),
        ("http://state.example/r&d/report_fy18.pdf", "http://state.example/r&d/report_fy18.pdf"),
        ("http://state.example/a&b=c", "http://state.example/a&b=c"),
    ],
)
def test_url_08_10_12_what_is_asked_for_is_what_was_written(bench, written, asked):
    """Ports, addresses and ampersands: nothing is guessed and repaired on the way to fetch."""
    assert [asked] == given_out(bench, written)
