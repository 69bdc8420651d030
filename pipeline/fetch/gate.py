"""Domain gate: who may ask a site, and when.

A worker owns the domains of its partitions, so its gate is the only one they pass (DESIGN, "Frontier is the single
writer for a domain"). The gate decides nothing lasting: what it can't let pass soon goes back with the time it may come
again.

- One request at a time; the delay runs from the end of the last response. With a delay of 0: `per_domain` at once.
- Between two requests lies the longer of their delays, and never less than any host of the domain has asked for.
- First come, first served, per domain; but an urgent request passes others, each of them at most seven times.
- A partition that was just taken over: the former owner may have asked any of its domains a moment ago, so the first
  request of each waits a full delay.
- A site that refused (`refuse`) is asked nothing more that was dealt before: the frontier decides anew.
- A site that said when to come again (`hold`) is left alone until then; what a site still allows is shared out over the
  time until it counts anew (`share`).
"""

from __future__ import annotations

import itertools
import math
from collections import deque
from collections.abc import Iterable
from functools import partial
from typing import Final

from pipeline.fetch.slots import Deferred, GateClock, LoopClock, Slot, Timer, Waiter
from pipeline.fetch.steps import is_watched, tell

RETAINED_S: Final = 60.0
"""An idle domain is remembered for its longest delay and this: the next request may name a longer one."""
FIRST_SWEEP: Final = 1024
MOST_PASSES: Final = 7
"""How many urgent requests may pass one that is not: of eight requests one is another's, as in the frontier."""
PUT_OFF_S: Final = 1.0
"""What was dealt before a refusal comes again so late at least: to a clock that is ahead, all of it seems that old."""


class _Domain:
    """What is known of one domain while it is in use.

    Attributes:
        last_end: end of the last response, or the takeover of its partition.
        refused_at: when it last refused for its load.
        last_delay_s: delay of the last request: it holds for the one that follows, too.
        held_until: earliest request by the site's own wish.
        host_delay_s: longest delay that a host asked for: what one host of the domain wants holds for all of them.
        shared_s: pause by which the requests that a site still allows are shared out.
        shared_until: end of that.
        out: requests that are out.
        out_alone: whether the one that is out has a delay, and so no company.
    """

    __slots__ = (
        "held_until", "host_delay_s", "last_delay_s", "last_end", "out", "out_alone", "refused_at", "shared_s",
        "shared_until", "timer", "waiters",
    )  # fmt: skip

    def __init__(self, last_end: float) -> None:
        self.last_end = last_end
        self.refused_at = -math.inf
        self.last_delay_s = 0.0
        self.held_until = last_end
        self.host_delay_s = 0.0
        self.shared_s = 0.0
        self.shared_until = last_end
        self.out = 0
        self.out_alone = False
        self.waiters: deque[Waiter] = deque()
        self.timer: Timer | None = None

    def place_of(self, waiter: Waiter) -> int:
        """Where the waiter is to stand: behind all, or, if it is urgent, behind those that it may not pass."""
        if not waiter.urgent:
            return len(self.waiters)
        firm = (at for at, each in enumerate(self.waiters) if each.urgent or each.passed_by >= MOST_PASSES)
        return max(firm, default=-1) + 1

    def earliest(self, waiter: Waiter, end: float, delay_s: float) -> float:
        """When the waiter's request may start after one that ended at `end` and had a delay of `delay_s`."""
        rested = end + max(self.host_delay_s, delay_s, waiter.delay_s)
        shared = min(end + self.shared_s, self.shared_until)
        return max(rested, shared, self.held_until, waiter.not_before)

    def is_alone(self, waiter: Waiter, now: float) -> bool:
        """Whether the waiter's request has no company."""
        return max(self.host_delay_s, waiter.delay_s) > 0 or (self.shared_s > 0 and now < self.shared_until)

    def has_room(self, waiter: Waiter, per_domain: int, now: float) -> bool:
        """Whether what is out leaves room for the waiter's request."""
        if self.out_alone or self.is_alone(waiter, now):
            return self.out == 0
        return self.out < per_domain

    def may_be_forgotten(self, now: float) -> bool:
        if self.out or self.waiters:
            return False
        rested = self.last_end + max(self.host_delay_s, self.last_delay_s) + RETAINED_S
        return now > max(self.held_until, self.shared_until, rested)


class DomainGate:
    """Slots by registrable domain. For one event loop.

    Args:
        max_wait_s: longest wait for a slot; who can't have one within it gets `Deferred`, at once where that is clear.
        per_domain: requests out at once where the delay is 0.
        clock: injected by tests.
    """

    def __init__(self, *, max_wait_s: float, per_domain: int, clock: GateClock | None = None) -> None:
        self._max_wait_s = max_wait_s
        self._per_domain = per_domain
        self._clock = clock or LoopClock()
        self._domains: dict[tuple[int, str], _Domain] = {}
        self._opened: dict[int, float] = {}
        self._sweep_at = FIRST_SWEEP

    def now(self) -> float:
        """The gate's clock, s."""
        return self._clock.now()

    def __len__(self) -> int:
        """Domains remembered."""
        return len(self._domains)

    def opened(self, partition: int, *, is_rested: bool = False) -> None:
        """The partition is ours from now on; nothing is known of its domains.

        Args:
            partition: its number.
            is_rested: whether nobody has asked any of them for long.
        """
        self.closed(partition)
        self._opened[partition] = -math.inf if is_rested else self._clock.now()

    def closed(self, partition: int) -> None:
        """Forget the partition's domains; who still waits for one is told to come again."""
        self._opened.pop(partition, None)
        for key in [key for key in self._domains if key[0] == partition]:
            domain = self._domains.pop(key)
            while domain.waiters:
                waiter = domain.waiters.popleft()
                if not waiter.granted.done():
                    waiter.granted.set_result(Deferred(self._clock.now()))
            self._serve(domain)  # ends its alarm

    async def acquire(
        self,
        domain: str,
        partition: int,
        *,
        delay_s: float,
        host_delay_s: float = 0.0,
        not_before: float = 0.0,
        dealt_at: float = math.inf,
        urgent: bool = False,
    ) -> Slot | Deferred:
        """Wait for leave to make one request.

        Args:
            domain: registrable domain.
            partition: the one it belongs to.
            delay_s: pause between this request and the one before, and the one after it.
            host_delay_s: pause that the host itself asks for; the longest that any host asked for holds on.
            not_before: earliest start, gate clock.
            dealt_at: what was known of the domain is from then, gate clock; with a refusal since there is no slot.
            urgent: passes those that are not.

        Returns:
            A slot, to be released when the response has ended; or `Deferred`, and no request may be made.
        """
        state = self._state(domain, partition)
        now = self._clock.now()
        state.host_delay_s = max(state.host_delay_s, host_delay_s)
        waiter = Waiter(delay_s, not_before, now + self._max_wait_s, urgent=urgent)
        if dealt_at <= state.refused_at:
            return self._told(domain, now, Deferred(max(now + PUT_OFF_S, state.held_until)))
        place = state.place_of(waiter)
        expected = self._expected(state, (*itertools.islice(state.waiters, place), waiter), now)
        if expected > waiter.deadline:
            return self._told(domain, now, Deferred(expected))
        for passed in itertools.islice(state.waiters, place, None):
            passed.passed_by += 1
        state.waiters.insert(place, waiter)
        self._serve(state)
        return self._told(domain, now, await waiter.answer(withdraw=lambda: self._withdraw(state, waiter)))

    def _told(self, domain: str, since: float, granted: Slot | Deferred) -> Slot | Deferred:
        """Tell whoever looks at this one request."""
        if is_watched():
            now = self._clock.now()
            later_s = max(0.0, granted.not_before - now) if isinstance(granted, Deferred) else None
            tell("gate", domain=domain, waited_ms=round((now - since) * 1000), come_again_s=later_s)
        return granted

    def hold(self, domain: str, partition: int, until: float) -> None:
        """Let nobody ask the domain before `until` (gate clock): the site's own wish. It is never shortened."""
        state = self._state(domain, partition)
        state.held_until = max(state.held_until, until)
        self._serve(state)

    def refuse(self, domain: str, partition: int) -> None:
        """The site has just refused a request for its load: who waits goes back, and all that was dealt before, too."""
        state = self._state(domain, partition)
        state.refused_at = self._clock.now()
        while state.waiters:
            waiter = state.waiters.popleft()
            if not waiter.granted.done():
                waiter.granted.set_result(Deferred(max(state.refused_at, state.held_until)))
        self._serve(state)  # ends its alarm

    def share(self, domain: str, partition: int, pause_s: float, until: float) -> None:
        """Keep a pause between requests until a time (gate clock): the last that was said holds."""
        state = self._state(domain, partition)
        state.shared_s, state.shared_until = pause_s, until
        self._serve(state)

    def _state(self, name: str, partition: int) -> _Domain:
        state = self._domains.get((partition, name))
        if state is None:
            if len(self._domains) >= self._sweep_at:
                self._sweep()
            state = _Domain(self._opened.get(partition, self._clock.now()))
            self._domains[partition, name] = state
        return state

    def _sweep(self) -> None:
        """Forget what is past its time; amortised, since the next sweep waits for twice as many domains."""
        now = self._clock.now()
        self._domains = {key: state for key, state in self._domains.items() if not state.may_be_forgotten(now)}
        self._sweep_at = max(FIRST_SWEEP, 2 * len(self._domains))

    def _expected(self, state: _Domain, waiters: Iterable[Waiter], now: float) -> float:
        """When the turn of the last waiter comes at the earliest: as if requests took no time but their delays."""
        start, end, delay_s = now, now if state.out else state.last_end, state.last_delay_s
        for each in waiters:
            start = max(start, state.earliest(each, end, delay_s))
            end, delay_s = start, each.delay_s
        return start

    def _serve(self, state: _Domain) -> None:
        """Let pass who may, tell those whom it takes too long, and set the alarm for the next."""
        if state.timer is not None:
            state.timer.cancel()
            state.timer = None
        now = self._clock.now()
        while state.waiters:
            first = state.waiters[0]
            start = state.earliest(first, state.last_end, state.last_delay_s)
            has_room = state.has_room(first, self._per_domain, now)
            if first.granted.done():  # cancelled, and not yet awake to withdraw
                pass
            elif has_room and start <= now:
                state.out += 1
                state.out_alone = state.is_alone(first, now)
                first.granted.set_result(Slot(partial(self._take_back, state, first.delay_s)))
            elif now >= first.deadline or start > first.deadline:
                first.granted.set_result(Deferred(max(start, now)))
            else:
                wake = min(start, first.deadline) if has_room else first.deadline
                state.timer = self._clock.call_later(max(0.0, wake - now), partial(self._serve, state))
                return
            state.waiters.popleft()

    def _take_back(self, state: _Domain, delay_s: float, used: bool) -> None:
        state.out -= 1
        state.out_alone = False
        if used:
            state.last_end = self._clock.now()
            state.last_delay_s = delay_s
        self._serve(state)

    def _withdraw(self, state: _Domain, waiter: Waiter) -> None:
        if waiter in state.waiters:
            state.waiters.remove(waiter)
            self._serve(state)
