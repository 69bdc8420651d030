"""Answers that are given again: a client that heard nothing repeats its request under the same Idempotency-Key.

As in the IETF draft "The Idempotency-Key HTTP Header Field": the same key with another body is refused, and so is one
whose first request is still under way. Only success is remembered: after a failure the request is tried again.
"""

from __future__ import annotations

import contextlib
import hashlib
from collections import OrderedDict
from collections.abc import Callable, Iterator
from typing import Final

OVERHEAD_BYTES: Final = 400
"""Of an entry, beside its key and its answer."""


class KeyReusedError(Exception):
    """The key came with another body before."""


class KeyInUseError(Exception):
    """The first request of the key is under way."""


class Use:
    """One use of a key.

    Attributes:
        answer: of the first request; None where this is the first. Who sets it has it remembered.
    """

    def __init__(self, body: bytes) -> None:
        self.digest = hashlib.sha256(body).digest()
        self.answer: bytes | None = None
        self.until_s = 0.0


class IdempotencyKeys:
    """Remembers the keys of each user for a while; the oldest are forgotten first where memory ends.

    Args:
        max_bytes: memory for each user.
        max_age_s: how long a key is remembered.
        clock: seconds; only goes forward.
    """

    def __init__(self, max_bytes: int, max_age_s: float, clock: Callable[[], float]) -> None:
        self._max_bytes = max_bytes
        self._max_age_s = max_age_s
        self._clock = clock
        self._users: dict[str, OrderedDict[str, Use]] = {}
        self._bytes: dict[str, int] = {}

    @contextlib.contextmanager
    def use(self, user: str, key: str | None, body: bytes) -> Iterator[Use]:
        """Yield the use of a key for a request.

        Args:
            user: whose key it is; two users may have the same.
            key: None for a request without one, of which nothing is remembered.
            body: of the request.

        Raises:
            KeyReusedError: see there.
            KeyInUseError: see there.
        """
        if key is None:
            yield Use(body)
            return
        known = self._users.setdefault(user, OrderedDict())
        self._forget_old(user, known)
        use, first = Use(body), known.get(key)
        if first is not None:
            if first.digest != use.digest:
                raise KeyReusedError
            if first.answer is None:
                raise KeyInUseError
            yield first
            return
        known[key] = use
        try:
            yield use
        finally:
            self._keep(user, known, key, use)

    def _keep(self, user: str, known: OrderedDict[str, Use], key: str, use: Use) -> None:
        if use.answer is None:
            del known[key]
            return
        known.move_to_end(key)
        use.until_s = self._clock() + self._max_age_s
        self._bytes[user] = self._bytes.get(user, 0) + _bytes(key, use)
        finished = [(name, one) for name, one in known.items() if one.answer is not None]
        for name, one in finished:
            if self._bytes[user] <= self._max_bytes:
                break
            self._forget(user, known, name, one)

    def _forget_old(self, user: str, known: OrderedDict[str, Use]) -> None:
        now_s = self._clock()
        for key, use in list(known.items()):
            if use.answer is None:
                continue
            if use.until_s > now_s:
                break
            self._forget(user, known, key, use)

    def _forget(self, user: str, known: OrderedDict[str, Use], key: str, use: Use) -> None:
        del known[key]
        self._bytes[user] -= _bytes(key, use)


def _bytes(key: str, use: Use) -> int:
    return len(key) + len(use.answer or b"") + OVERHEAD_BYTES
