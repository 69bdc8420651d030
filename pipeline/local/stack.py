"""The local stack: broker and registry side by side, and how other processes find them."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path
from types import TracebackType
from typing import Self

from pipeline.config import Settings
from pipeline.errors import ConfigurationError
from pipeline.local.kafka import LocalBroker
from pipeline.local.registry import LocalRegistry
from pipeline.local.server import is_open

__all__ = [
    "Addresses",
    "LocalBroker",
    "LocalRegistry",
    "LocalStack",
    "directory_of",
    "find",
    "with_addresses",
    "with_local_addresses",
]

ADDRESSES = "addresses.json"


@dataclass(frozen=True, slots=True)
class Addresses:
    """Where a running stack is.

    Attributes:
        bootstrap: the broker, host:port.
        registry_url: base URL of the registry's Confluent-compatible API; None where it runs without one.
    """

    bootstrap: str
    registry_url: str | None


class LocalStack:
    """Broker and, where it is wanted, registry, for as long as the process that started them lives.

    Args:
        directory: theirs alone; `kafka/` and `registry/` below it, and `addresses.json` while they run.
        registry: whether there is one.
        port: of the broker; None keeps that of the last start.
    """

    def __init__(self, directory: Path, *, registry: bool, port: int | None = None) -> None:
        self.directory = directory
        self.broker = LocalBroker(directory / "kafka", port)
        self.registry = LocalRegistry(directory / "registry") if registry else None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def start(self) -> Addresses:
        """Start both at the same time and write down where they are.

        Raises:
            ConfigurationError: as the servers; nothing is left running.
            BrokerError: the same.
        """
        servers = [self.broker, *([self.registry] if self.registry else [])]
        try:
            with ThreadPoolExecutor(len(servers)) as threads:
                for started in [threads.submit(server.start) for server in servers]:
                    started.result()
            try:
                (self.directory / ADDRESSES).write_text(json.dumps(asdict(self.addresses)), encoding="utf-8")
            except OSError as exc:
                raise ConfigurationError(f"{self.directory / ADDRESSES}: {exc.strerror}") from exc
        except BaseException:
            self.stop()
            raise
        return self.addresses

    @property
    def addresses(self) -> Addresses:
        """Where they are; a BrokerError before the first start."""
        return Addresses(self.broker.bootstrap, self.registry.url if self.registry else None)

    def check(self) -> None:
        """Raise what ended a server, where one ended by itself; as `JavaServer.check`."""
        self.broker.check()
        if self.registry:
            self.registry.check()

    def stop(self) -> None:
        """Stop both and forget where they were."""
        if self.broker.pid is not None:
            (self.directory / ADDRESSES).unlink(missing_ok=True)
        if self.registry:
            self.registry.stop()
        self.broker.stop()


def directory_of(settings: Settings) -> Path:
    """Return the directory of the local stack that belongs to a configuration."""
    return settings.worker.data_dir / "local"


def find(directory: Path) -> Addresses | None:
    """Return where the running stack of a directory is; None where none runs.

    The file alone is no proof: a killed owner leaves it behind. So the broker's port is tried.
    """
    try:
        addresses = Addresses(**json.loads((directory / ADDRESSES).read_text(encoding="utf-8")))
    except FileNotFoundError:
        return None
    except (OSError, ValueError, TypeError) as exc:
        raise ConfigurationError(f"{directory / ADDRESSES}: {exc}; remove it and start `headrace up` again") from exc
    return addresses if is_open(addresses.bootstrap) else None


def with_local_addresses(settings: Settings) -> Settings:
    """Fill in the addresses of the running local stack where no broker is configured.

    Returns:
        The settings themselves where a broker is named or no local stack runs in `worker.data_dir`.
    """
    found = None if settings.broker.bootstrap else find(directory_of(settings))
    return settings if found is None else with_addresses(settings, found)


def with_addresses(settings: Settings, addresses: Addresses) -> Settings:
    """Return the settings with the broker and the registry of a local stack.

    `broker.options` and `broker.password` are for the cluster that they were written for; a local broker has none.
    """
    broker = settings.broker.model_copy(update={"bootstrap": addresses.bootstrap, "options": {}, "password": None})
    registry = settings.registry.model_copy(update={"url": addresses.registry_url, "lock": None})
    return settings.model_copy(update={"broker": broker, "registry": registry})
