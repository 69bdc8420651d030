"""Plan of the simulated web with its traps: robots rules, redirects, failures, slow pages, charsets, calendars.

What a right crawl publishes must not depend on the order in which it finds things, also where depth bounds it.
So there are two kinds of pages:

- The structure (front, sections, calendar) is linked from its parent in the structure, else only from pages that
  can't be known before the links of that parent are, all links of a page to one domain being found together. So its
  depth is the same in every order, and a calendar in which each month links to the next ends at the same month.
- Articles hang from the structure. Other sites link to some of them (`Site.landing`), which may thus be found early
  and at any depth: these link to landing articles alone. The others link home, too.
"""

from __future__ import annotations

import random
from collections.abc import Iterable
from typing import NamedTuple
from xml.sax.saxutils import escape  # writes XML, reads none

from pipeline.local.expectation import PathRule
from pipeline.local.simulated_site import (
    SLUGS,
    FirstAnswer,
    Kind,
    Link,
    Resource,
    Site,
    phrase,
    seeded,
    site_name,
)

MIN_PAGES = 3
LISTED = 12
"""Articles on one listing page."""
OTHER_DOMAINS = 25
"""Other domains that a front page links to."""
FIRST_YEAR = 2012
"""Of calendars and archives: long enough ago that no crawler takes the years of a crawl for a trap."""
SECTIONS = ("news", "markets", "science", "culture", "sport", "opinion", "travel", "letters")
ROBOTS = ("everybody", "by name", "wildcard", "allow", "missing")
CALENDARS = ("open", "hidden", "none")
SITE_TRAITS = {"www": 3, "news": 4, "crawl delay": 4, "broken": 5, "loop": 3}
"""Trait -> every so many sites have it: a web of five sites has them all."""
ARTICLE_TRAITS = {
    "fails once": 2, "limited, seconds": 3, "limited, date": 4, "unavailable": 5, "slow": 3,
    "gb18030-meta": 3, "gb18030-silent": 4, "gb18030-lying": 5,
    "behind a redirect": 2, "behind a chain": 3, "behind another site": 2,
}  # fmt: skip
"""The same for traits of one article of a site; one that finds no article left is given up."""


class _Traits(NamedTuple):
    names: frozenset[str]
    robots: str
    calendar: str


class Planner:
    """Plans a web.

    Args:
        seed: equal seeds give equal webs.
        hosts: domains, at least 1.
        pages: pages of each, at least `MIN_PAGES`; calendar months and forbidden pages come on top.
        port: port in all URLs.
        agent: product token of the crawler, for robots.txt groups.
    """

    def __init__(self, seed: int, hosts: int, pages: int, port: int, agent: str) -> None:
        self._seed = seed
        self._hosts = hosts
        self._pages = pages
        self._port = port
        self._agent = agent

    def plan(self) -> list[Site]:
        """Plan all sites."""
        traits = self._traits()
        sites = [self._site(index, traits[index]) for index in range(self._hosts)]
        for index, site in enumerate(sites):
            self._give_article_traits(site, sites[index - 1], traits[index].names, seeded(self._seed, "traits", index))
        landing = [site.landing for site in sites]
        for index, site in enumerate(sites):
            elsewhere = [articles for other, articles in enumerate(landing) if other != index and articles]
            self._link(site, elsewhere, traits[index], seeded(self._seed, "links", index))
        return sites

    def month(self, site: Site, number: int) -> Resource:
        """Return a month of the endless calendar, counted from 0. Its parent is the front page, or the month before."""
        month = self._resource(site.front.host, month_target(number), "month", 1 + number)
        month.title = f"Calendar {month.target.removeprefix('/calendar/')} of {site.domain}"
        linked = [number + 1, number - 1] if number else [number + 1]
        targets = [month_target(other) for other in linked]
        month.links = [Link(target, self._url(site.front.host, target)) for target in [*targets, "/"]]
        return month

    def _url(self, host: str, target: str) -> str:
        return f"http://{host}:{self._port}{target}"

    def _resource(self, host: str, target: str, kind: Kind, level: int = 0) -> Resource:
        return Resource(self._url(host, target), host, target, kind, level)

    def _redirect(self, site: Site, host: str, target: str, location: str, to: str) -> Resource:
        redirect = self._resource(host, target, "redirect")
        redirect.location, redirect.leads_to = location, to
        return site.add(redirect)

    def _traits(self) -> list[_Traits]:
        rng = seeded(self._seed, "traits")
        periods = SITE_TRAITS | ARTICLE_TRAITS
        starts = {name: rng.randrange(period) for name, period in periods.items()}
        robots, calendar = rng.randrange(len(ROBOTS)), rng.randrange(len(CALENDARS))
        return [
            _Traits(
                frozenset(name for name, period in periods.items() if (index + starts[name]) % period == 0),
                ROBOTS[(index + robots) % len(ROBOTS)],
                CALENDARS[(index + calendar) % len(CALENDARS)],
            )
            for index in range(self._hosts)
        ]

    def _site(self, index: int, traits: _Traits) -> Site:
        rng = seeded(self._seed, "site", index)
        domain = site_name(index)
        front = self._resource(f"www.{domain}" if "www" in traits.names else domain, "/", "front")
        front.title = f"{phrase(rng)}, the front page of {domain}"
        site = Site(domain, [domain], front)
        site.add(front)
        if front.host != domain:
            site.hosts.append(front.host)
            self._redirect(site, domain, "/", front.url, front.url)
        if "news" in traits.names:
            site.hosts.append(f"news.{domain}")
        self._write_robots(site, traits, rng)
        self._add_sections(site, traits, rng)
        return site

    def _write_robots(self, site: Site, traits: _Traits, rng: random.Random) -> None:
        site.calendar = "open" if traits.calendar == "open" else "none"
        if traits.robots == "missing":
            return
        rules = [PathRule("/private/", allow=False)]
        if traits.calendar == "hidden":
            site.calendar = "hidden"
            rules.append(PathRule("/calendar/", allow=False))
        if traits.robots == "allow":
            rules += [PathRule("/archive/", allow=False), PathRule("/archive/open/", allow=True)]
        site.rules = tuple(rules)
        lines = [f"{'Allow' if rule.allow else 'Disallow'}: {rule.prefix}" for rule in rules]
        if traits.robots == "wildcard":
            lines.append("Disallow: /*?print=")
        if "crawl delay" in traits.names:
            site.crawl_delay_s = rng.choice((0.5, 1.0))
            lines.append(f"Crawl-delay: {site.crawl_delay_s:g}")
        before, after = ["User-agent: *"], [""]
        if traits.robots == "by name":  # the group of its own counts, not the one for everybody
            before = ["User-agent: otherbot", "Disallow: /", "", f"User-Agent: {self._agent}"]
            after = ["", "User-agent: *", "Disallow: /", ""]
        sitemap = f"Sitemap: {self._url(site.front.host, '/sitemap.xml')}\n"
        site.robots = "\n".join(["# made from a seed", *before, *lines, *after, sitemap]).encode()

    def _add_sections(self, site: Site, traits: _Traits, rng: random.Random) -> None:
        listings = -(-(self._pages - 1) // (LISTED + 1))
        articles = self._pages - 1 - listings
        for listing in range(listings):
            section, second = divmod(listing, 2)
            name = SECTIONS[section % len(SECTIONS)] + str(section // len(SECTIONS) or "")
            host = f"news.{site.domain}" if "news" in traits.names and section == 0 else site.front.host
            page = self._resource(host, f"/{name}/" + "?page=2" * second, "section", 1 + second)
            page.title = f"{name.capitalize()} of {site.domain}, page {second + 1}"
            site.sections.append(site.add(page))
            for _ in range(min(LISTED, articles - len(site.articles))):
                number = len(site.articles) + 1
                target = _article_target(name, number, traits.robots == "allow", rng)
                article = self._resource(host, target, "article", page.level + 1)
                article.title = f"{phrase(rng)}, story {number} of {site.domain}"
                article.gzip = rng.random() < 0.3
                site.articles.append(site.add(article))

    def _give_article_traits(self, site: Site, other: Site, names: frozenset[str], rng: random.Random) -> None:
        landing = site.landing
        free = rng.sample(site.articles, len(site.articles))
        if "behind another site" in names and other is not site and landing:
            article = rng.choice(landing)  # of those: its site need not be known when it is found
            free.remove(article)
            entrance = self._redirect(other, other.front.host, "/out/1", article.url, article.url)
            site.entrances[article.url] = entrance
            other.sections[0].links.append(Link(entrance.url, entrance.url))
        for name in ARTICLE_TRAITS:
            if name in names and name != "behind another site" and free:
                self._give(name, free.pop(), site, rng)

    def _give(self, trait: str, article: Resource, site: Site, rng: random.Random) -> None:
        host = site.front.host
        match trait:
            case "fails once":
                article.first_answers = (FirstAnswer(500),)
            case "limited, seconds":
                article.first_answers = (FirstAnswer(429, ("seconds", rng.choice((1, 2)))),) * rng.choice((1, 2))
            case "limited, date":
                article.first_answers = (FirstAnswer(429, ("date", 2)),)
            case "unavailable":
                article.first_answers = (FirstAnswer(503, ("seconds", 1)),)
            case "slow":
                article.delay_s = round(rng.uniform(0.5, 2.0), 2)
            case "gb18030-meta" | "gb18030-silent" | "gb18030-lying" as charset:
                article.charset = charset
            case "behind a redirect":
                entrance = self._redirect(site, article.host, "/r/1", article.target, article.url)
                site.entrances[article.url] = entrance
            case "behind a chain":
                self._redirect(site, host, "/hop/3", article.url, article.url)
                self._redirect(site, host, "/hop/2", "3", self._url(host, "/hop/3"))
                entrance = self._redirect(site, host, "/hop/1", "/hop/2", self._url(host, "/hop/2"))
                site.entrances[article.url] = entrance

    def _link(self, site: Site, elsewhere: list[list[Resource]], traits: _Traits, rng: random.Random) -> None:
        self._link_front(site, elsewhere, traits, rng)
        own_landing = site.landing
        listed = [article for article in site.articles if article.url not in site.entrances]
        for place, section in enumerate(site.sections):
            articles = site.articles[place * LISTED : (place + 1) * LISTED]
            section.links += [_plain_link(section, site.front)]
            section.links += [
                _plain_link(section, page) for page in site.sections[place + 1 : place + 2] if place % 2 == 0
            ]
            for article in articles:
                entrance = site.entrances.get(article.url, article)
                if entrance.url in site.resources:  # not behind another site
                    section.links.append(_plain_link(section, entrance))
            section.links += [_noisy_link(section, page, rng) for page in articles[:2] if page in listed]
        for place, article in enumerate(site.articles):
            is_landing = place % 2 == 0
            near = own_landing if is_landing else listed
            if not is_landing:
                section = site.sections[place // LISTED // 2 * 2]
                article.links += [_plain_link(article, site.front), _plain_link(article, section)]
            linked = rng.sample(near, min(4, len(near)))
            linked += [rng.choice(articles) for articles in rng.sample(elsewhere, min(6, len(elsewhere)))]
            article.links += [_plain_link(article, page) for page in linked]
            article.links += [_noisy_link(article, page, rng) for page in linked[:2]]
            article.links += self._dead_ends(site, article, traits, rng)

    def _link_front(self, site: Site, elsewhere: list[list[Resource]], traits: _Traits, rng: random.Random) -> None:
        front = site.front
        front.links += [_plain_link(front, section) for section in site.sections[::2]]
        neighbours = rng.sample(elsewhere, min(OTHER_DOMAINS, len(elsewhere)))
        front.links += [_plain_link(front, rng.choice(articles)) for articles in neighbours]
        hidden: list[Resource] = []
        if site.rules:
            for number in (1, 2):
                page = self._resource(front.host, f"/private/{number}", "article", 1)
                page.title = f"Private page {number} of {site.domain}"
                hidden.append(site.add(page))
            hidden.append(self._redirect(site, front.host, "/go/private", "/private/2", hidden[1].url))
        if traits.robots == "allow":
            page = self._resource(front.host, "/archive/closed", "article", 1)
            page.title = f"Closed archive of {site.domain}"
            hidden.append(site.add(page))
        if "broken" in traits.names:
            hidden.append(site.add(self._resource(front.host, "/broken", "broken", 1)))
        if "loop" in traits.names:
            self._redirect(site, front.host, "/loop/b", "/loop/a", self._url(front.host, "/loop/a"))
            hidden.append(
                self._redirect(site, front.host, "/loop/a", "/loop/b", self._url(front.host, "/loop/b")),
            )
        front.links += [_plain_link(front, page) for page in hidden]
        targets = ["/missing", "/feed.xml", "/sitemap.xml"]
        if site.calendar != "none":
            targets.append(month_target(0))
        front.links += [Link(target, self._url(front.host, target)) for target in targets]
        self._add_files(site)

    def _dead_ends(self, site: Site, article: Resource, traits: _Traits, rng: random.Random) -> Iterable[Link]:
        """Links that bring no document: to nothing, to what robots.txt forbids."""
        if rng.random() < 0.1:
            target = f"/gone/{rng.choice(SLUGS)}"
            yield Link(target, self._url(article.host, target))
        if site.rules and rng.random() < 0.2:
            url = self._url(site.front.host, "/private/1")
            yield Link(url, url)
        if traits.robots == "wildcard" and "?" not in article.target and rng.random() < 0.3:
            page = self._resource(article.host, f"{article.target}?print=1", "article", article.level + 1)
            page.title = f"{article.title}, to print"
            site.denied.add(site.add(page).url)
            yield Link(page.target, page.url)

    def _add_files(self, site: Site) -> None:
        """Feed and sitemap: they name landing articles, because they may be read before the front page."""
        host = site.front.host
        articles = [(escape(article.title), escape(article.url)) for article in site.landing]
        feed = self._resource(host, "/feed.xml", "file", 1)
        feed.content_type = "application/rss+xml; charset=utf-8"
        items = "".join(f"<item><title>{title}</title><link>{url}</link></item>" for title, url in articles)
        feed.body = (
            f'<?xml version="1.0" encoding="utf-8"?>\n<rss version="2.0"><channel><title>{site.domain}</title>'
            f"<link>{site.front.url}</link><description>What is new</description>{items}</channel></rss>\n"
        ).encode()
        sitemap = self._resource(host, "/sitemap.xml", "file", 1)
        sitemap.content_type = "application/xml"
        places = "".join(f"<url><loc>{url}</loc></url>" for _, url in articles)
        sitemap.body = (
            '<?xml version="1.0" encoding="utf-8"?>\n'
            f'<urlset xmlns="http://www.sitemaps.org/schemas/sitemap/0.9">{places}</urlset>\n'
        ).encode()
        for file in (feed, sitemap):
            site.add(file)


def month_target(number: int) -> str:
    """Return path and query of a calendar month, counted from 0."""
    return f"/calendar/{FIRST_YEAR + number // 12}-{number % 12 + 1:02d}"


def month_number(target: str) -> int | None:
    """Return the number of the month that a path names; None where it names none."""
    year, dash, month = target.removeprefix("/calendar/").partition("-")
    if not (target.startswith("/calendar/") and dash and year.isdecimal() and month.isdecimal()):
        return None
    number = (int(year[:6]) - FIRST_YEAR) * 12 + int(month[:6]) - 1
    return number if number >= 0 and month_target(number) == target else None


def _article_target(section: str, number: int, some_in_archive: bool, rng: random.Random) -> str:
    slug = f"{rng.choice(SLUGS)}-{rng.choice(SLUGS)}-{number}"
    if some_in_archive and number % 3 == 0:
        return f"/archive/open/{slug}"
    day = f"{FIRST_YEAR}/{rng.randint(1, 12):02d}"
    return rng.choice((f"/{section}/{day}/{slug}.html", f"/{section}/{slug}", f"/{section}/story?id={number}&lang=en"))


def _plain_link(page: Resource, to: Resource) -> Link:
    """A link as most are: without the host where that is the page's own."""
    return Link(to.target if to.host == page.host else to.url, to.url)


def _noisy_link(page: Resource, to: Resource, rng: random.Random) -> Link:
    """The same link in other words: tracking parameters, fragments, dots, capitals that don't count."""
    written = to.target if to.host == page.host else to.url
    joint = "&" if "?" in written else "?"
    authority = to.url.removesuffix(to.target)
    forms = (
        f"{written}{joint}utm_source=front&utm_medium=teaser",
        f"{written}{joint}fbclid=Iw{rng.randrange(10**6)}",
        f"{written}#comments",
        authority.upper() + to.target,
        f"{authority}/x/..{to.target}",
        f"{authority.removeprefix('http:')}{to.target}",
    )
    return Link(rng.choice(forms), to.url)
