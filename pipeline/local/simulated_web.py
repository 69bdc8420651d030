"""A web of one's own on a loopback port: many domains, told apart by the Host header, made from a seed.

It knows the exact set of documents that a right crawl publishes, and what must not be asked. A crawler reaches it with
`fetch.resolve = {"*.test" = "127.0.0.1"}` and `fetch.allow_addresses = ["127.0.0.1/32:PORT"]`.

`python -m pipeline.local.simulated_web --seed 1 --hosts 25 --pages 40 --log FILE` serves it until it is ended.
"""

from __future__ import annotations

import argparse
import json
import signal
import sys
from collections import deque
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import cached_property, partial
from pathlib import Path
from typing import Literal, get_args

from pipeline.errors import ConfigurationError
from pipeline.local.expectation import Expectation, is_denied
from pipeline.local.simulated_limits import Quota, plan_limited_sites
from pipeline.local.simulated_pages import Answer, Renderer
from pipeline.local.simulated_plain import plan_plain_sites
from pipeline.local.simulated_plan import MIN_PAGES, Planner, month_number
from pipeline.local.simulated_site import Resource, Site
from pipeline.local.site_process import SiteProcess

Plan = Literal["traps", "plain", "limits"]
PAGE_BYTES = 6 << 10
PLAIN_PAGE_BYTES = 44 << 10
MONTHS_MADE = 24
"""Calendar months made before they are asked for; a crawler that goes further than two years is lost anyway."""


class SimulatedWeb:
    """The plan of a web and what follows from it; equal arguments give equal webs, in every process.

    Args:
        seed: what it is made from.
        hosts: registrable domains (`site0001.test`, …), at least 1; some have hosts `www.` and `news.` besides.
        pages: documents of each, calendar months apart; at least 3.
        port: port of all URLs.
        plan: `traps`; `plain` for the web of the benchmark: every page answers 200 at once, with 60 links to 25
            domains; `limits` for sites that bound how often they are asked, see `pipeline.local.simulated_limits`.
        page_bytes: about how long a page is; None for 6 KiB, 44 KiB in the plain web.
        agent: product token of the crawler that the robots.txt files mean.

    Attributes:
        start_urls: a URL of each site, from which, together, everything can be reached.
        depth: links from a start URL to the last document that isn't a calendar month.
        failing: URLs that answer 500 for ever.

    Raises:
        ConfigurationError: an argument is out of range.
    """

    def __init__(
        self,
        seed: int,
        hosts: int,
        pages: int,
        port: int,
        *,
        plan: Plan = "traps",
        page_bytes: int | None = None,
        agent: str = "headrace",
    ) -> None:
        for name, value, least in (("hosts", hosts, 1), ("pages", pages, MIN_PAGES), ("port", port, 1)):
            if value < least:
                raise ConfigurationError(f"{name} = {value}: a simulated web needs at least {least}")
        self._port = port
        self._planner = Planner(seed, hosts, pages, port, agent)
        self._renderer = Renderer(seed, page_bytes or (PLAIN_PAGE_BYTES if plan == "plain" else PAGE_BYTES))
        plans: dict[Plan, Callable[[], list[Site]]] = {
            "traps": self._planner.plan,
            "plain": partial(plan_plain_sites, seed, hosts, pages, port),
            "limits": partial(plan_limited_sites, seed, hosts, pages, port),
        }
        self._sites = plans[plan]()
        self._by_host = {host: site for site in self._sites for host in site.hosts}
        self.start_urls = [f"http://{site.domain}:{port}/" for site in self._sites]
        resources = [resource for site in self._sites for resource in site.resources.values()]
        self.failing = {resource.url for resource in resources if resource.kind == "broken"}
        self.depth = max(r.level for r in resources if r.is_page and not self._is_denied(r.url))

    @property
    def sites(self) -> Sequence[Site]:
        """The plan, site by site."""
        return self._sites

    @cached_property
    def disallowed(self) -> frozenset[str]:
        """URLs that are linked, or redirected to, and must not be asked."""
        links = {link.url for page in self._pages() for link in page.links}
        targets = {r.leads_to for site in self._sites for r in site.resources.values() if r.leads_to}
        return frozenset(url for url in links | targets if self._is_denied(url))

    def expected_documents(
        self, max_depth: int | None = None, *, without: Collection[str] = ()
    ) -> dict[str, str | None]:
        """Return what a right crawl from `start_urls` publishes.

        A redirect's target is published under its own URL, at the depth of the redirect.

        Args:
            max_depth: links that are followed from a start URL; None for no bound.
            without: URLs that became dead letters: neither they nor what only they lead to.

        Returns:
            Canonical URL -> title; None for a page whose charset can't be known, so its title may be anything.

        Raises:
            ConfigurationError: the set isn't determined: `max_depth` is less than `depth` (what is found then depends
                on the order), or there is none and a calendar may be followed for ever.
        """
        if max_depth is None and any(site.calendar == "open" for site in self._sites):
            raise ConfigurationError("depth: a web with endless calendars is crawled to a depth")
        if max_depth is not None and max_depth < self.depth:
            raise ConfigurationError(f"depth = {max_depth}: this web is {self.depth} deep")
        documents: dict[str, str | None] = {}
        depths = dict.fromkeys(self.start_urls, 0)
        waiting = deque(self.start_urls)
        while waiting:
            url = waiting.popleft()
            resource = self.resource(url)
            if resource is None or url in without or self._is_denied(url):
                continue
            if resource.is_page:
                documents[url] = resource.title if resource.charset in {"utf-8", "gb18030-meta"} else None
            links = [(link.url, depths[url] + 1) for link in resource.links]
            for found, depth in [(resource.leads_to, depths[url]), *links]:
                if found and found not in depths and (max_depth is None or depth <= max_depth):
                    depths[found] = depth
                    # A redirect costs no depth: its target goes first, so that depths are least ones.
                    (waiting.appendleft if depth == depths[url] else waiting.append)(found)
        return documents

    def expectation(self, max_depth: int | None = None) -> Expectation:
        """Return what the checker needs; see `expected_documents`."""
        return Expectation(
            documents=self.expected_documents(max_depth),
            domains={host: site.domain for host, site in self._by_host.items()},
            crawl_delay_s={site.domain: site.crawl_delay_s for site in self._sites if site.crawl_delay_s is not None},
            rules={host: site.rules for host, site in self._by_host.items() if site.rules},
            disallowed=self.disallowed,
        )

    def resource(self, url: str) -> Resource | None:
        """Return what stands at a canonical URL; None for what is answered with 404, and for robots.txt."""
        host, _, path = url.removeprefix("http://").partition("/")
        site = self._by_host.get(host.partition(":")[0])
        if site is None:
            return None
        if (found := site.resources.get(url)) is not None:
            return found
        return self._month(site, host, f"/{path}")

    def answers(self) -> dict[bytes, Answer]:
        """Make all answers. Keys: Host header with port, then path and query."""
        made: dict[bytes, Answer] = {}
        for site in self._sites:
            resources = list(site.resources.values())
            if site.calendar != "none":
                resources += [self._planner.month(site, number) for number in range(MONTHS_MADE)]
            for resource in resources:
                made[f"{resource.host}:{self._port}{resource.target}".encode()] = self._renderer.answer(resource)
            for host in site.hosts:
                made[f"{host}:{self._port}/robots.txt".encode()] = self._renderer.robots(site)
            if site.limit is not None:
                quota = Quota(site.limit)
                for answer in map(made.__getitem__, self._keys(site)):
                    answer.quota = quota
        return made

    def _keys(self, site: Site) -> list[bytes]:
        """Keys of the answers of a site without a calendar."""
        targets = [(resource.host, resource.target) for resource in site.resources.values()]
        targets += [(host, "/robots.txt") for host in site.hosts]
        return [f"{host}:{self._port}{target}".encode() for host, target in targets]

    def late_answer(self, host_and_target: bytes) -> Answer | None:
        """Make the answer for a month that lies beyond those made beforehand; None for anything else."""
        resource = self.resource("http://" + host_and_target.decode("latin-1"))
        return self._renderer.answer(resource) if resource is not None and resource.kind == "month" else None

    def _pages(self) -> list[Resource]:
        return [resource for site in self._sites for resource in site.resources.values() if resource.links]

    def _month(self, site: Site, host: str, target: str) -> Resource | None:
        number = month_number(target)
        if number is None or site.calendar == "none" or host != f"{site.front.host}:{self._port}":
            return None
        return self._planner.month(site, number)

    def _is_denied(self, url: str) -> bool:
        host, _, path = url.removeprefix("http://").partition("/")
        site = self._by_host.get(host.partition(":")[0])
        return site is not None and (url in site.denied or is_denied(site.rules, f"/{path}"))


class ServedWeb(SiteProcess):
    """A simulated web, served by a process of its own that ends with the process that started it.

    Args:
        seed, hosts, pages, plan, page_bytes, agent: as for `SimulatedWeb`.
        log: file that the requests are appended to; see `pipeline.local.request_log`.
        port: port to listen on; 0 takes a free one.

    Attributes:
        web: the plan, with the port in its URLs.

    Raises:
        ConfigurationError: an argument is out of range, the port is in use, or the log can't be written.
    """

    def __init__(
        self,
        seed: int,
        hosts: int,
        pages: int,
        log: Path,
        *,
        port: int = 0,
        plan: Plan = "traps",
        page_bytes: int | None = None,
        agent: str = "headrace",
    ) -> None:
        self.log = log
        arguments = ["--log", str(log), "--agent", agent, "--plan", plan]
        arguments += ["--seed", str(seed), "--hosts", str(hosts), "--pages", str(pages), "--port", str(port)]
        arguments += ["--page-bytes", str(page_bytes)] if page_bytes else []
        super().__init__("pipeline.local.simulated_web", arguments)
        self.port: int = self.ready["port"]
        self.web = SimulatedWeb(seed, hosts, pages, self.port, plan=plan, page_bytes=page_bytes, agent=agent)

    def overload(self) -> None:
        """Let it answer every page with 503 and Retry-After for some seconds, as a site that has enough."""
        self.signal(signal.SIGUSR1)


def crawler_options(port: int) -> Mapping[str, str]:
    """Return the environment by which a worker reaches a simulated web on a port."""
    return {
        "HEADRACE_FETCH__RESOLVE": '{"*.test" = "127.0.0.1"}',
        "HEADRACE_FETCH__ALLOW_ADDRESSES": f'["127.0.0.1/32:{port}"]',
    }


def main(arguments: Sequence[str] | None = None) -> int:
    """Serve a web until SIGTERM or SIGINT, or until the process named by `--parent` is gone.

    When it listens it prints one line of JSON with its `port`, or one with the `error` and returns 2: a wrong argument,
    a port in use, a log that can't be written.
    """
    parser = argparse.ArgumentParser(prog="python -m pipeline.local.simulated_web", description=main.__doc__)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--hosts", type=int, default=25)
    parser.add_argument("--pages", type=int, default=40, help="of each host")
    parser.add_argument("--port", type=int, default=0, help="0: a free one")
    parser.add_argument("--log", type=Path, required=True, help="requests are appended to it, a JSON object a line")
    parser.add_argument("--plan", choices=get_args(Plan), default="traps", help="plain: 44 KB pages with 60 links")
    parser.add_argument("--page-bytes", type=int)
    parser.add_argument("--agent", default="headrace", help="crawler that the robots.txt files mean")
    parser.add_argument("--parent", type=int, help="process to end with")
    options = parser.parse_args(arguments)
    from pipeline.local import simulated_server  # noqa: PLC0415 - uvloop: only the server needs it

    try:
        with simulated_server.listen(options.port) as listener:
            port = listener.getsockname()[1]
            web = SimulatedWeb(
                options.seed,
                options.hosts,
                options.pages,
                port,
                plan=options.plan,
                page_bytes=options.page_bytes,
                agent=options.agent,
            )
            simulated_server.run(listener, web.answers(), web.late_answer, options.log, options.parent)
    except (ConfigurationError, OSError) as exc:
        sys.stdout.write(json.dumps({"error": str(exc)}) + "\n")
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
