"""Who asks: bearer tokens (RFC 6750), of which only hashes are kept."""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Mapping
from pathlib import Path
from typing import Final, NamedTuple

from pipeline.config import ApiUser
from pipeline.errors import ConfigurationError

MIN_CHARACTERS: Final = 16
"""A shorter token could be guessed: its hash is fast to make, and tries are not slowed down."""
_BEARER: Final = "bearer"


class User(NamedTuple):
    """Somebody who may use the API.

    Attributes:
        name: as configured.
        rate: name of the class.
    """

    name: str
    rate: str


class Tokens:
    """Tells users by their tokens.

    Args:
        users: of the configuration, by name.
        environ: where `env:` references lead.

    Raises:
        ConfigurationError: a reference leads nowhere, a token is short, or two users have the same one.
    """

    def __init__(self, users: Mapping[str, ApiUser], environ: Mapping[str, str]) -> None:
        self._users: dict[bytes, User] = {}
        for name, user in users.items():
            for reference in user.tokens:
                digest = _digest(reference, name, environ)
                if self._users.setdefault(digest, User(name, user.rate)).name != name:
                    raise ConfigurationError(f"api.users.{name}.tokens: {self._users[digest].name} has the same token")

    def user(self, authorization: str | None) -> User | None:
        """Return who sent an Authorization header; None where it is absent, of another scheme, or of nobody.

        Every hash is compared, each in constant time, so that the time tells nothing of any of them.
        """
        scheme, _, token = (authorization or "").partition(" ")
        digest = hashlib.sha256(token.strip().encode("utf-8", "surrogateescape")).digest()
        found = None
        for known, user in self._users.items():
            if hmac.compare_digest(known, digest):
                found = user
        return found if scheme.lower() == _BEARER else None


def _digest(reference: str, name: str, environ: Mapping[str, str]) -> bytes:
    kind, _, place = reference.partition(":")
    if kind == "sha256":
        return bytes.fromhex(place)
    where = f"api.users.{name}.tokens: {reference}"
    if kind == "env":
        token = environ.get(place, "")
    else:
        try:
            token = Path(place).read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as exc:
            raise ConfigurationError(f"{where}: {getattr(exc, 'strerror', None) or 'not UTF-8'}") from exc
    token = token.strip()
    if len(token) < MIN_CHARACTERS:
        raise ConfigurationError(f"{where}: holds no token of {MIN_CHARACTERS} characters or more")
    return hashlib.sha256(token.encode()).digest()
