"""What a kind of hostile site is: what it does, and how a right fetch of it ends."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from pipeline.local.hostile_wire import NOT_FOUND, PAGE, Asked, Script, prepare

Certificate = Literal["good", "other_name", "expired", "not_yet", "unknown_authority"]
"""What a site shows when it is asked by TLS: a certificate that is right, of another name, past its time, before it, or
of an authority that nobody trusts."""
CLOSED = "closed"
FULL = "full"
WEB = "web"


@dataclass(frozen=True, slots=True)
class HostileKind:
    """One kind.

    Attributes:
        name: unique; a host's name begins with it.
        does: what the site does on the wire, for people.
        outcome: how the last fetch ends (`FetchOutcome.outcome`), whatever hops or pages there were before it.
        reason: its machine-readable detail.
        page: what is done about a request for a page.
        pages: the same for some paths.
        robots: what is done about a request for robots.txt.
        targets: paths that are asked for one after another, from one connection where it may be; all but the last are
            pages.
        certificate: makes its URLs https; None for http.
        greeting: what is done instead of a TLS handshake.
        leads_to: where its name leads: to the hostile `web`, to a port that is `closed`, to one whose queue is `full`,
            or to an address.
        costs_bytes: whether a fetch takes more than 1 MiB from the wire, or unpacks more than that.
    """

    name: str
    does: str
    outcome: str
    reason: str = ""
    page: Script = PAGE
    pages: Mapping[str, Script] = field(default_factory=dict)
    robots: Script = NOT_FOUND
    targets: tuple[str, ...] = ("/",)
    certificate: Certificate | None = None
    greeting: Script | None = None
    leads_to: str = WEB

    @property
    def scheme(self) -> str:
        """Of its URLs."""
        return "http" if self.certificate is None else "https"

    def prepare(self, asked: Asked) -> None:
        """Make what its scripts send; a bomb takes a while."""
        for script in (self.page, *self.pages.values(), self.robots):
            prepare(script, asked)

    def script(self, target: str) -> Script:
        """Return what is done about a request.

        Args:
            target: path and query.
        """
        path = target.partition("?")[0]
        return self.robots if path == "/robots.txt" else self.pages.get(path, self.page)
