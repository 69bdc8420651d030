"""Plan of the plain web, for measuring: no traps, every page answers 200 at once and has many links to many domains."""

from __future__ import annotations

import random

from pipeline.local.simulated_site import Link, Resource, Site, phrase, seeded, site_name

LINKS = 60
OWN_LINKS = 10
OTHER_DOMAINS = 25


def plan_plain_sites(seed: int, hosts: int, pages: int, port: int) -> list[Site]:
    """Plan a plain web.

    Args:
        seed: equal seeds give equal webs.
        hosts: domains, at least 1; below 26 a page links to fewer domains than `OTHER_DOMAINS`.
        pages: pages of each, at least 1.
        port: port in all URLs.
    """
    sites = [_site(seed, index, pages, port) for index in range(hosts)]
    links = {page.url: Link(page.url, page.url) for site in sites for page in site.articles}
    for index, site in enumerate(sites):
        others = sites[:index] + sites[index + 1 :]
        rng = seeded(seed, "links", index)
        for number, page in enumerate(site.articles):
            page.links = [links[url] for url in _linked(number, site, others, rng)]
    return sites


def _site(seed: int, index: int, pages: int, port: int) -> Site:
    domain = site_name(index)
    rng = seeded(seed, "site", index)
    articles = []
    for number in range(pages):
        target = f"/a/{number}" if number else "/"
        page = Resource(f"http://{domain}:{port}{target}", domain, target, "article")
        page.title = f"{phrase(rng)}, page {number} of {domain}"
        articles.append(page)
    site = Site(domain, [domain], articles[0], articles=articles, robots=b"User-agent: *\nDisallow:\n")
    site.resources = {page.url: page for page in articles}
    return site


def _linked(number: int, site: Site, others: list[Site], rng: random.Random) -> list[str]:
    """URLs that a page links to: its children in a tree, by which its front reaches all; its neighbours; others."""
    pages = len(site.articles)
    children = [2 * number + 1, 2 * number + 2]
    near = [(number + step) % pages for step in range(1, OWN_LINKS)]
    urls = [site.articles[other].url for other in children + near if other < pages and other != number]
    urls = list(dict.fromkeys(urls))[:OWN_LINKS]
    domains = rng.sample(others, min(OTHER_DOMAINS, len(others)))
    for place, domain in enumerate(domains):
        share = (LINKS - len(urls)) // (len(domains) - place)
        urls += [page.url for page in rng.sample(domain.articles, min(share, pages))]
    return urls
