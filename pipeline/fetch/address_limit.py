"""Second limiter, by address: thousands of domains may live on one machine, and each is asked at its own pace.

A limit of one worker: others may ask the same address. It counts requests in flight, and keeps their starts apart where
that is configured; which domain they are for does not matter. What can't start soon is told when to come again.
"""

from __future__ import annotations

import ipaddress
from collections import deque
from collections.abc import Sequence
from functools import partial
from typing import Final

from pipeline.errors import HeadraceError
from pipeline.fetch.slots import Deferred, GateClock, LoopClock, Slot, Timer, Waiter

V6_PREFIX: Final = 64
"""One machine has a network of its own as a rule, and every site an address in it (RFC 6177)."""
FIRST_SWEEP: Final = 1024


class AddressBusy(HeadraceError):  # noqa: N818 - the name says what is busy
    """No leave soon to ask an address: no request was made, and nobody is to blame.

    Attributes:
        not_before: when to come again, gate clock.
    """

    def __init__(self, address: str, not_before: float) -> None:
        super().__init__(f"{address} has as many requests as it may have")
        self.not_before = not_before


class _Address:
    """What is known of one address while it is in use.

    Attributes:
        out: requests in flight.
        last_start: of the last request, gate clock; None before the first.
    """

    __slots__ = ("last_start", "out", "timer", "waiters")

    def __init__(self) -> None:
        self.out = 0
        self.last_start: float | None = None
        self.waiters: deque[Waiter] = deque()
        self.timer: Timer | None = None


class AddressLimiter:
    """Slots by resolved address. For one event loop.

    Args:
        in_flight: requests in flight per address.
        interval_s: time between the starts of two requests to one address.
        max_wait_s: longest wait for a slot.
        clock: injected by tests.
    """

    def __init__(self, *, in_flight: int, interval_s: float, max_wait_s: float, clock: GateClock | None = None) -> None:
        self._in_flight = in_flight
        self._interval_s = interval_s
        self._max_wait_s = max_wait_s
        self._clock = clock or LoopClock()
        self._addresses: dict[str, _Address] = {}
        self._sweep_at = FIRST_SWEEP

    def __len__(self) -> int:
        """Addresses remembered."""
        return len(self._addresses)

    async def acquire(self, addresses: Sequence[str]) -> Slot:
        """Wait for leave to make one request; first come, first served.

        Args:
            addresses: those that a name resolved to, in any order; names that share them share the limit. IPv6
                addresses count by their network.

        Returns:
            A slot, to be released when the response has ended.

        Raises:
            AddressBusy: there is none within `max_wait_s`.
        """
        name = min(map(_network, addresses))
        state = self._state(name)
        now = self._clock.now()
        # How long those in flight take nobody knows; their starts alone say when the turn comes at the earliest.
        earliest = self._earliest(state, now) + self._interval_s * len(state.waiters)
        if earliest > now + self._max_wait_s:
            raise AddressBusy(name, earliest)
        waiter = Waiter(0.0, earliest, now + self._max_wait_s)
        state.waiters.append(waiter)
        self._serve(state)
        answer = await waiter.answer(withdraw=lambda: self._withdraw(state, waiter))
        if isinstance(answer, Deferred):
            raise AddressBusy(name, answer.not_before)
        return answer

    def _state(self, name: str) -> _Address:
        state = self._addresses.get(name)
        if state is None:
            if len(self._addresses) >= self._sweep_at:
                self._sweep()
            state = self._addresses[name] = _Address()
        return state

    def _sweep(self) -> None:
        """Forget what is idle; amortised, since the next sweep waits for twice as many addresses."""
        now = self._clock.now()
        self._addresses = {
            name: state
            for name, state in self._addresses.items()
            if state.out or state.waiters or self._earliest(state, now) > now
        }
        self._sweep_at = max(FIRST_SWEEP, 2 * len(self._addresses))

    def _earliest(self, state: _Address, now: float) -> float:
        return now if state.last_start is None else max(now, state.last_start + self._interval_s)

    def _serve(self, state: _Address) -> None:
        """Let pass who may, tell those whom it takes too long, and set the alarm for the next."""
        if state.timer is not None:
            state.timer.cancel()
            state.timer = None
        now = self._clock.now()
        while state.waiters:
            first = state.waiters[0]
            start = self._earliest(state, now)
            has_room = state.out < self._in_flight
            if first.granted.done():  # cancelled, and not yet awake to withdraw
                pass
            elif has_room and start <= now:
                state.out += 1
                state.last_start = now
                first.granted.set_result(Slot(partial(self._take_back, state)))
            elif now >= first.deadline:
                first.granted.set_result(Deferred(start))
            else:
                wake = min(start, first.deadline) if has_room else first.deadline
                state.timer = self._clock.call_later(max(0.0, wake - now), partial(self._serve, state))
                return
            state.waiters.popleft()

    def _take_back(self, state: _Address, used: bool) -> None:
        del used  # a start is a start
        state.out -= 1
        self._serve(state)

    def _withdraw(self, state: _Address, waiter: Waiter) -> None:
        if waiter in state.waiters:
            state.waiters.remove(waiter)
            self._serve(state)


def _network(text: str) -> str:
    """The address, of IPv6 its network; a zone (`%eth0`) is ignored."""
    address = ipaddress.ip_address(text.partition("%")[0])
    if isinstance(address, ipaddress.IPv6Address):
        return str(ipaddress.ip_network((address, V6_PREFIX), strict=False))
    return str(address)
