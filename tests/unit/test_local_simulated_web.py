"""The simulated web knows what a right crawl publishes; these tests hold its knowledge against other judges."""

from __future__ import annotations

import gzip
import random
import subprocess
import sys

import pytest
from lxml import etree, html

from pipeline.config import load
from pipeline.errors import ConfigurationError
from pipeline.local.simulated_plan import ARTICLE_TRAITS, month_number, month_target
from pipeline.local.simulated_web import SimulatedWeb, crawler_options
from pipeline.web.domains import registrable_domain
from pipeline.web.robots import RobotsRules
from pipeline.web.url import canonicalize

PORT = 8080
FOOTER_LINKS = 3  # mailto:, javascript:, a fragment
DEPTH = 6


@pytest.fixture(scope="module")
def web():
    """A web of a dozen sites with every trap."""
    return SimulatedWeb(seed=7, hosts=12, pages=40, port=PORT)


@pytest.fixture(scope="module")
def answers(web):
    """Its prepared answers."""
    return web.answers()


def all_resources(web):
    """Everything that stands at a URL of its own, months apart."""
    return [resource for site in web.sites for resource in site.resources.values()]


def crawl_in_any_order(web, max_depth, rng):
    """Crawl in random order, by what holds of every order.

    The links of a page to one domain are found together. A URL is claimed once, at the depth it is first found at
    within the bound; found too deep it is refused, which a nearer find undoes.
    """
    found = [{url: 0} for url in web.start_urls]  # URL -> depth, found together
    to_fetch = []
    claimed, published = set(), set()
    domains = web.expectation(max_depth).domains
    while found or to_fetch:
        if found and (not to_fetch or rng.random() < 0.5):
            for url, depth in found.pop(rng.randrange(len(found))).items():
                if depth <= max_depth and url not in claimed:
                    claimed.add(url)
                    to_fetch.append((url, depth))
            continue
        url, depth = to_fetch.pop(rng.randrange(len(to_fetch)))
        resource = web.resource(url)
        if resource is None or url in web.disallowed:
            continue
        if resource.is_page:
            published.add(url)
        if resource.leads_to:
            found.append({resource.leads_to: depth})
        by_domain = {}
        for link in resource.links:
            by_domain.setdefault(domains[canonicalize(link.url).host], {})[link.url] = depth + 1
        found += by_domain.values()
    return published


@pytest.mark.parametrize("seed", range(6))
def test_what_a_right_crawl_publishes_does_not_depend_on_its_order(seed):
    """Else a kill, which changes the order, would be taken for a loss, or a loss for a matter of order."""
    web = SimulatedWeb(seed, hosts=3 + seed, pages=8 + 7 * seed, port=PORT)
    for depth in (web.depth, web.depth + 3):
        expected = set(web.expected_documents(depth))
        for order in range(4):
            assert expected == crawl_in_any_order(web, depth, random.Random(order))


def test_depth_bounds_the_calendars_and_nothing_else(web):
    """Every site has its pages, and each open calendar one month more for each link that is followed."""
    open_calendars = sum(site.calendar == "open" for site in web.sites)
    assert open_calendars > 0
    for depth in (web.depth, 9):
        assert 12 * 40 + open_calendars * depth == len(web.expected_documents(depth))


def test_a_set_that_cannot_be_known_is_refused(web):
    """An expectation that depends on luck is none."""
    with pytest.raises(ConfigurationError, match="3 deep"):
        web.expected_documents(web.depth - 1)
    with pytest.raises(ConfigurationError, match="endless"):
        web.expected_documents(None)


def test_urls_are_canonical_and_links_mean_what_the_plan_says(web):
    """The expectation is compared with published URLs letter by letter, and links are written in many ways."""
    written = 0
    for resource in all_resources(web):
        assert resource.url == canonicalize(resource.url).href
        for link in resource.links:
            assert link.url == canonicalize(link.href, resource.url).href
            written += link.href != link.url
        if resource.location:
            assert resource.leads_to == canonicalize(resource.location, resource.url).href
    assert written > 1000
    forms = [link.href for resource in all_resources(web) for link in resource.links]
    for sign in ("utm_source=", "fbclid=", "#comments", "/x/../", "HTTP://SITE", "//site"):
        assert any(sign in form for form in forms)


def test_hosts_belong_to_the_domains_that_the_plan_says(web):
    """Politeness is judged by registrable domain."""
    domains = web.expectation(DEPTH).domains
    assert {"www", "news"} <= {host.partition(".")[0] for host in domains}
    for host, domain in domains.items():
        assert domain == registrable_domain(host)


def test_robots_files_mean_what_the_plan_says(web):
    """A parser that knows nothing of the plan must come to the same verdict on every URL that is linked."""
    expectation = web.expectation(DEPTH)
    rules = {host: RobotsRules.parse(site.robots or b"") for site in web.sites for host in site.hosts}
    linked = {link.url for resource in all_resources(web) for link in resource.links}
    linked |= {resource.leads_to for resource in all_resources(web) if resource.leads_to}
    denied = set()
    for url in linked:
        parts = canonicalize(url)
        if not rules[parts.host].verdict("headrace", url).allowed:
            denied.add(url)
        host_and_port, _, path = url.removeprefix("http://").partition("/")
        assert (url in denied) == expectation.is_disallowed(host_and_port, f"/{path}")
    assert denied == set(web.disallowed)
    for site in web.sites:
        assert site.crawl_delay_s == RobotsRules.parse(site.robots or b"").crawl_delay_s("headrace")


def test_a_small_web_has_every_trap():
    """A demo on five sites must still mean something."""
    web = SimulatedWeb(seed=3, hosts=5, pages=30, port=PORT)
    resources = all_resources(web)
    answers = web.answers().values()
    first = [answer for resource in resources for answer in resource.first_answers]
    assert {500, 429, 503} == {answer.status for answer in first}
    assert {"seconds", "date"} == {answer.retry_after[0] for answer in first if answer.retry_after}
    assert {"utf-8", "gb18030-meta", "gb18030-silent", "gb18030-lying"} == {resource.charset for resource in resources}
    assert {200, 301, 404, 500} == {answer.status for answer in answers}
    assert {"open", "hidden", "none"} == {site.calendar for site in web.sites}
    assert any(0.5 <= answer.delay_s <= 2 for answer in answers)
    assert any(site.crawl_delay_s for site in web.sites)
    robots = [site.robots for site in web.sites]
    assert robots.count(None) == 1
    for text in (b"User-agent: otherbot", b"/*?print=", b"Allow: /archive/open/", b"Crawl-delay: "):
        assert any(text in body for body in robots if body)
    targets = {resource.target for resource in resources}
    assert {"/loop/a", "/hop/1", "/out/1", "/r/1", "/go/private", "/broken", "/feed.xml", "/sitemap.xml"} <= targets
    assert any(
        resource.leads_to.split("/")[2] != resource.url.split("/")[2] for resource in resources if resource.leads_to
    )
    assert len(web.failing) == 1
    assert len(ARTICLE_TRAITS) >= 11


def test_documents_behind_redirects_are_linked_nowhere_else(web):
    """They prove that redirects are followed: they would be found anyway otherwise."""
    linked = {link.url for resource in all_resources(web) for link in resource.links}
    behind = {url for site in web.sites for url in site.entrances}
    assert len(behind) > 12
    assert not behind & linked
    assert behind <= set(web.expected_documents(DEPTH))


def test_titles_are_unique_and_stand_in_the_bytes(web, answers):
    """By its title a body is known that was published under another page's URL."""
    documents = web.expected_documents(DEPTH)
    titles = [title for title in documents.values() if title]
    assert len(titles) == len(set(titles))
    for url, title in documents.items():
        answer = answers[url.removeprefix("http://").encode()]
        body = answer.response[answer.head_bytes :]
        if b"Content-Encoding: gzip" in answer.response[: answer.head_bytes]:
            body = gzip.decompress(body)
        assert f"<title>{title}</title>".encode() in body if title else b"<title>" in body


def test_the_bytes_hold_the_links_of_the_plan(web, answers):
    """The plan is what counts, the bytes are what is crawled; read here by a parser that is no part of the pipeline."""
    files = 0
    for site in web.sites:
        for resource in site.resources.values():
            answer = answers[resource.url.removeprefix("http://").encode()]
            body = answer.response[answer.head_bytes :]
            if resource.kind == "file":
                files += 1
                found = [node.text for node in etree.fromstring(body).iter("{*}loc", "link")]
                assert {page.url for page in site.landing} == set(found) - {site.front.url}
            elif resource.is_page:
                body = gzip.decompress(body) if resource.gzip else body
                hrefs = [href for _, _, href, _ in html.iterlinks(body.decode("utf-8", "replace"))]
                assert [link.href for link in resource.links] == list(hrefs[:-FOOTER_LINKS])
    assert 2 * len(web.sites) == files


def test_a_silent_page_says_nothing_of_its_charset_and_a_lying_one_the_wrong(web, answers):
    """The traps are what they are called."""
    said = {}
    for resource in all_resources(web):
        if resource.charset != "utf-8":
            answer = answers[f"{resource.host}:{PORT}{resource.target}".encode()]
            head, body = answer.response[: answer.head_bytes], answer.response[answer.head_bytes :]
            body = gzip.decompress(body) if resource.gzip else body
            assert "今天早晨河边起了薄雾" in body.decode("gb18030") or "的" in body.decode("gb18030")
            said[resource.charset] = (b"charset=utf-8" in head, b'charset="gb18030"' in body)
    expected = {"gb18030-meta": (False, True), "gb18030-silent": (False, False), "gb18030-lying": (True, True)}
    assert expected == said


def test_equal_seeds_give_equal_bytes_in_every_process():
    """The crawl's process and the server's each make the web for themselves."""
    code = (
        "import hashlib; from pipeline.local.simulated_web import SimulatedWeb\n"
        "web = SimulatedWeb(5, 6, 20, 8080); made = sorted(web.answers().items())\n"
        "parts = [k + a.response + repr((a.delay_s, a.first_answers)).encode() for k, a in made]\n"
        "print(hashlib.sha256(b''.join(parts)).hexdigest())"
    )
    runs = [
        subprocess.run(
            [sys.executable, "-c", code], env={"PYTHONHASHSEED": seed}, capture_output=True, text=True, check=True
        ).stdout
        for seed in ("1", "2")
    ]
    assert runs[0] == runs[1]
    assert SimulatedWeb(5, 6, 20, PORT).expected_documents(8) != SimulatedWeb(6, 6, 20, PORT).expected_documents(8)


def test_the_plain_web_is_what_the_benchmark_is_quoted_for():
    """Figures are for 44 KB pages with 60 links to 25 other domains, all of them there at once."""
    web = SimulatedWeb(seed=1, hosts=30, pages=12, port=PORT, plan="plain")
    answers = web.answers()
    pages = [resource for site in web.sites for resource in site.articles]
    assert 30 * 12 == len(pages) == len(web.expected_documents())
    for page in pages:
        assert 60 == len(page.links) == len({link.url for link in page.links})
        assert 26 == len({link.url.split("/")[2] for link in page.links})
    sizes = [len(answers[page.url.removeprefix("http://").encode()].response) for page in pages]
    assert 42_000 < sum(sizes) / len(sizes) < 47_000
    assert {200} == {answer.status for answer in answers.values()}
    assert not any(answer.delay_s or answer.first_answers for answer in answers.values())
    assert frozenset() == web.disallowed


@pytest.mark.parametrize("arguments", [{"hosts": 0, "pages": 5}, {"hosts": 1, "pages": 2}])
def test_a_web_too_small_is_refused_with_the_least_that_goes(arguments):
    """`--pages 0` is a slip of the hand, not a crash."""
    with pytest.raises(ConfigurationError, match="needs at least"):
        SimulatedWeb(seed=1, port=PORT, **arguments)


def test_the_smallest_webs_can_be_planned():
    """Traits that find no place are given up."""
    for hosts in (1, 2):
        for pages in (3, 4, 15):
            web = SimulatedWeb(seed=1, hosts=hosts, pages=pages, port=PORT)
            documents = web.expected_documents(web.depth)
            months = sum(site.calendar == "open" for site in web.sites) * web.depth
            assert hosts * pages + months == len(documents)


def test_calendar_months_are_counted_from_the_first():
    """The server makes months that nobody foresaw from their number alone."""
    for number in (0, 11, 12, 500):
        assert number == month_number(month_target(number))
    for target in (
        "/calendar/",
        "/calendar/2011-12",
        "/calendar/2012-13",
        "/calendar/2012-1",
        "/calendar/x-y",
        "/2012-01",
    ):
        assert month_number(target) is None


def test_a_worker_is_told_how_to_reach_the_web(tmp_path):
    """Names under .test resolve nowhere, and the address guard lets nobody into the loopback network unasked."""
    silent = tmp_path / "headrace.toml"  # else one in the working directory would have its say
    silent.touch()
    fetch = load(silent, crawler_options(PORT)).settings.fetch
    assert ({"*.test": "127.0.0.1"}, [f"127.0.0.1/32:{PORT}"]) == (fetch.resolve, fetch.allow_addresses)


def test_what_only_a_dead_letter_leads_to_is_not_expected(web):
    """A fault test may cost a page as a dead letter, and with it what is linked nowhere else; nothing more."""
    whole = web.expected_documents(DEPTH)
    site = next(site for site in web.sites if site.entrances)
    article, entrance = next(iter(site.entrances.items()))
    assert {article} == whole.keys() - web.expected_documents(DEPTH, without={article}).keys()
    assert article not in web.expected_documents(DEPTH, without={entrance.url})
    assert whole == web.expected_documents(DEPTH, without=())
