"""Hard mode of the simulated web: a host for each fault that sites have, and what a right fetch makes of it.

`python -m pipeline.local.hostile_web --log FILE` serves it until it is ended; `--list` shows the kinds. How a crawler
reaches it is `Places`'; what is done on the wire, and how a fetch should end, is data: `pipeline.local.hostile_kinds`.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import signal
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

import uvloop

from pipeline.errors import ConfigurationError
from pipeline.local.hostile_kind import CLOSED, FULL, WEB, HostileKind
from pipeline.local.hostile_kinds import KINDS, PREFIX, host_name
from pipeline.local.hostile_ports import INNER, WEB_ADDRESS, Ports, port_of, take_ports
from pipeline.local.request_log import RequestLog, read_log
from pipeline.local.site_process import SiteProcess

PARENT_LOOK_S: Final = 0.5


class HostileHost(NamedTuple):
    """One host.

    Attributes:
        kind: what it does.
        number: among those of its kind, from 1.
    """

    kind: HostileKind
    number: int

    @property
    def name(self) -> str:
        """Its name, which is a registrable domain."""
        return host_name(self.kind, self.number)

    def urls(self, port: int) -> list[str]:
        """Return the URLs that are to be fetched, one after another."""
        return [f"{self.kind.scheme}://{self.name}:{port}{target}" for target in self.kind.targets]


def hostile_hosts(count: int = len(KINDS)) -> Iterator[HostileHost]:
    """Yield so many hosts, of all kinds in turn."""
    kinds = list(KINDS.values())
    for index in range(count):
        yield HostileHost(kinds[index % len(kinds)], index // len(kinds) + 1)


class Places(NamedTuple):
    """Where a hostile web is.

    Attributes:
        port: of all its URLs.
        inner_port: where nobody may connect to, on any address.
        closed_port: nobody listens.
        full_port: connections are never taken.
        authority: file with the certificate of the authority to trust.
    """

    port: int
    inner_port: int
    closed_port: int
    full_port: int
    authority: str

    @classmethod
    def of(cls, ports: Ports, authority: Path) -> Places:
        """Return where the sockets are."""
        return cls(ports.port, ports.inner_port, port_of(ports.closed), port_of(ports.full), str(authority))

    def resolve(self) -> dict[str, str]:
        """Return addresses by host pattern, as `fetch.resolve` takes them."""
        known = {
            WEB: WEB_ADDRESS,
            CLOSED: f"{WEB_ADDRESS}:{self.closed_port}",
            FULL: f"{WEB_ADDRESS}:{self.full_port}",
        }
        apart = {
            f"{PREFIX}{kind.name}-*.test": known.get(kind.leads_to, kind.leads_to)
            for kind in KINDS.values()
            if kind.leads_to != WEB
        }
        return {**apart, f"{PREFIX}*.test": WEB_ADDRESS}

    def allow_addresses(self) -> list[str]:
        """Return what may be reached, as `fetch.allow_addresses` takes it: three ports of one address."""
        return [f"{WEB_ADDRESS}/32:{port}" for port in (self.port, self.closed_port, self.full_port)]

    def environ(self, resolve: Mapping[str, str] | None = None, allow: Sequence[str] = ()) -> dict[str, str]:
        """Return the environment by which a worker reaches it.

        Args:
            resolve: further names, looked at after those of the hostile web.
            allow: further networks.
        """
        names = {**self.resolve(), **(resolve or {})}
        return {
            "HEADRACE_FETCH__RESOLVE": "{" + ", ".join(f'"{name}" = "{place}"' for name, place in names.items()) + "}",
            "HEADRACE_FETCH__ALLOW_ADDRESSES": json.dumps([*self.allow_addresses(), *allow]),
            "SSL_CERT_FILE": self.authority,
        }


class ServedHostileWeb(SiteProcess):
    """A hostile web in a process of its own.

    Args:
        log: file that requests are appended to; see `pipeline.local.request_log`.

    Attributes:
        places: where it is.
        log: as given.

    Raises:
        ConfigurationError: no port is free, or the log can't be written.
    """

    def __init__(self, log: Path) -> None:
        self.log = log
        super().__init__("pipeline.local.hostile_web", ["--log", str(log)])
        self.places = Places(**self.ready)

    def inner_connections(self) -> list[str]:
        """Return where somebody connected to who should not have, as the log tells it by now."""
        return [request.url for request in read_log(self.log) if request.host.startswith(f"{INNER}:")]


async def _serve(ports: Ports, log_file: Path, directory: Path, parent: int | None) -> None:
    # Certificates need what only the local stack has.
    from pipeline.local.hostile_certificates import Certificates  # noqa: PLC0415
    from pipeline.local.hostile_server import HostileServer  # noqa: PLC0415

    loop = asyncio.get_running_loop()
    ended = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, ended.set)
    faults: list[dict[str, Any]] = []

    def fail(_: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        if not isinstance(context.get("exception"), OSError):  # clients may vanish
            faults.append(context)
            ended.set()

    loop.set_exception_handler(fail)
    certificates = Certificates(directory)
    with RequestLog(log_file, loop.call_later) as log:
        async with HostileServer(ports, certificates, log):
            print(json.dumps(Places.of(ports, certificates.authority_file)._asdict()), flush=True)  # noqa: T201
            while not ended.is_set():
                try:
                    await asyncio.wait_for(ended.wait(), PARENT_LOOK_S)
                except TimeoutError:
                    if parent is not None and os.getppid() != parent:
                        break
    if faults:
        raise faults[0].get("exception") or RuntimeError(faults[0]["message"])


def main(arguments: Sequence[str] | None = None) -> int:
    """Serve until SIGTERM or SIGINT, or until the process named by `--parent` is gone.

    When it listens it prints one line of JSON with its `Places`, or one with the `error` and returns 2.
    """
    parser = argparse.ArgumentParser(prog="python -m pipeline.local.hostile_web", description=main.__doc__)
    parser.add_argument("--log", type=Path, help="requests are appended to it, a JSON object a line")
    parser.add_argument("--parent", type=int, help="process to end with")
    parser.add_argument("--list", action="store_true", help="show the kinds, a JSON object a line, and end")
    options = parser.parse_args(arguments)
    if options.list:
        for host in hostile_hosts():
            kind = host.kind
            row = {"kind": kind.name, "does": kind.does, "outcome": kind.outcome, "reason": kind.reason}
            print(json.dumps({**row, "host": host.name, "scheme": kind.scheme, "targets": kind.targets}))  # noqa: T201
        return 0
    if options.log is None:
        parser.error("--log FILE, or --list")
    try:
        with take_ports() as ports, tempfile.TemporaryDirectory(prefix="headrace-hostile-") as directory:
            uvloop.run(_serve(ports, options.log, Path(directory), options.parent))
    except (ConfigurationError, OSError) as exc:
        print(json.dumps({"error": str(exc)}))  # noqa: T201
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
