"""Who may ask a backend, and when: one governor for everyone who asks the same server with the same key."""

import asyncio
import logging
import random
from collections.abc import AsyncGenerator, Callable, Hashable
from contextlib import asynccontextmanager
from dataclasses import dataclass

import anyio

from refinesynth.backends.governing.breaker import DOWN, Breaker, Position
from refinesynth.backends.governing.deadline import current_deadline
from refinesynth.backends.governing.limit import UNBOUNDED, Limit
from refinesynth.backends.governing.pace import Pace
from refinesynth.backends.governing.rates import Told
from refinesynth.backends.governing.slot import Queue, Slot
from refinesynth.backends.sorting import Fault, Kind
from refinesynth.errors import RunStopped

_LOG = logging.getLogger("refinesynth.backends")
_OVERLOADED = frozenset({503, 529})
_EASY = 8
"""Answers over which the latency that is shown is smoothed."""


@dataclass(frozen=True)
class GovernorState:
    """A governor at one moment, for whoever watches a run."""

    name: str
    limit: int | None
    """Requests that may be in flight; None without bound."""
    in_flight: int
    waiting: int
    latency: float | None
    """Seconds that an answer takes, smoothed; None before the first."""
    held_until: float | None
    """Until when the server wants no request, on the event loop's clock (`time.monotonic`); None if it takes them."""
    breaker: Position
    down_since: float | None
    """On the same clock; None while the backend is up."""
    fault: str | None
    """What the backend failed with last, if it has not answered since."""
    waits: bool = True
    """Whether requests wait for the end of an outage; False where they go elsewhere."""
    met: bool = True
    """Whether the backend has ever answered anything."""


class Governor:
    """Lets requests through one by one: as many at once as the server takes, no faster than its limits, none while it is down.

    Guarantees:
        - No more than `limit.current` slots are held; a slot that is left, in whatever way, is free again at once.
        - Smaller priorities first, first come first served among equals. A request that waits for the pace of its own
          model holds no slot, and stops nobody who asks another model.
        - No request before a Retry-After is over, as far as it is no longer than `longest_wait`.
        - While the backend is down, one request at a time is let through; all others wait, as long as the breaker says.
        - Nobody waits for ever, if requests in flight end (they have a timeout) and paces are finite.

    Belongs to one event loop at a time, and may serve another one after that. Not safe for threads.
    """

    def __init__(
        self,
        name: str,
        *,
        limit: Limit | None = None,
        breaker: Breaker | None = None,
        longest_wait: float = 60.0,
        on_change: Callable[[GovernorState], None] | None = None,
    ) -> None:
        """Nothing is in flight.

        Args:
            name: What messages call the backend.
            limit: How many requests at once; an adaptive one without ceiling if None.
            breaker: When the backend counts as down, and how long requests wait for it; the usual one if None.
            longest_wait: Most seconds that a server's wish is honoured for.
            on_change: Called when the backend goes down and when it is back.
        """
        self.name = name
        self.on_change = on_change
        self._limit = limit or Limit()
        self._breaker = breaker or Breaker(longest_wait=longest_wait)
        self._longest_wait = longest_wait
        self._queue = Queue()
        self._any_pace = Pace()
        self._in_flight = 0
        self._latency: float | None = None
        self._held_until = float("-inf")
        self._loop: asyncio.AbstractEventLoop | None = None
        self._timer: asyncio.TimerHandle | None = None

    @property
    def met(self) -> bool:
        """Whether the backend has ever answered anything."""
        return self._breaker.met

    @property
    def down(self) -> bool:
        """Whether the backend is taken to be down."""
        return not self._breaker.closed

    @property
    def state(self) -> GovernorState:
        """This moment's."""
        fault = self._breaker.fault
        # A time that has passed is no hold; without a loop there is no clock to tell.
        held = self._held_until if self._loop is not None and self._held_until > self._loop.time() else None
        return GovernorState(
            name=self.name,
            limit=None if self._limit.current == UNBOUNDED else self._limit.current,
            in_flight=self._in_flight,
            waiting=len(self._queue),
            latency=self._latency,
            held_until=held,
            breaker=self._breaker.position,
            down_since=self._breaker.down_since,
            fault=None if fault is None else fault.message,
            waits=self._breaker.waits,
            met=self._breaker.met,
        )

    def excuses(self, fault: Fault) -> bool:
        """Whether a fault is part of an outage, and none of the request's own retries is spent on it."""
        return self.down and fault.kind in DOWN

    @asynccontextmanager
    async def slot(
        self, *, priority: float = 0.0, pace: Pace | None = None, tokens: float = 0.0, kind: Hashable = None
    ) -> AsyncGenerator[Slot]:
        """Wait for a turn, and hold it for the block.

        Args:
            priority: Smaller goes first. The episode's number: what was begun first is finished first.
            pace: The rate limits that this request falls under.
            tokens: Of the prompt, roughly.
            kind: Requests of one kind take alike per output token, see `Limit.answered`.

        Raises:
            RunStopped: The backend has been down for too long.
        """
        slot = Slot(self, priority, pace or self._any_pace, tokens, kind)
        await self._enter(slot)
        try:
            yield slot
        finally:
            self._leave(slot)

    def note_answer(
        self, slot: Slot, *, output_tokens: float, seconds: float | None, billed: float | None, told: Told
    ) -> None:
        """See `Slot.answered`."""
        now = self._now()
        took = now - slot.since if seconds is None else seconds
        self._latency = took if self._latency is None else self._latency + (took - self._latency) / _EASY
        self._limit.answered(slot.number, seconds=took, tokens=output_tokens, kind=slot.kind, in_flight=self._in_flight)
        charged = slot.charged
        slot.pace.settle(now, charged, billed=charged if billed is None else billed, answer=output_tokens)
        self._learn(slot, told, now)
        self._up()

    def note_fault(self, slot: Slot, fault: Fault, told: Told) -> None:
        """See `Slot.failed`."""
        now = self._now()
        slot.pace.settle(now, slot.charged, billed=0.0)
        self._learn(slot, told, now)
        if fault.after is not None:
            self._hold(fault.after, now)
        if fault.kind in {Kind.RATE_LIMIT, Kind.TIMEOUT, Kind.UNREACHED} or fault.status in _OVERLOADED:
            self._limit.refused(slot.number)
        elif fault.kind is Kind.SERVER:
            self._limit.failed(slot.number)
        if fault.kind not in DOWN:
            # A web page is nobody's answer.
            if fault.kind is not Kind.DEFECT and fault.page is None:
                self._up()
        elif self._breaker.failed(fault, episode=slot.priority, now=now, trial=slot.trial):
            self._went_down(fault)

    async def _enter(self, slot: Slot) -> None:
        self._bind()
        self._queue.add(slot)
        self._advance()
        if not (slot.granted or slot.refusal):
            await self._turn_of(slot)
        if slot.refusal is not None:
            raise RunStopped(slot.refusal)

    async def _turn_of(self, slot: Slot) -> None:
        slot.turn = anyio.Event()
        slot.deadline = current_deadline()
        if self.down:
            slot.stop_clock()
        try:
            await slot.turn.wait()
        except BaseException:
            if slot.granted:
                # The turn came in the moment of the cancellation: pass it on.
                self._leave(slot)
            elif slot.waits:
                self._queue.remove(slot)
                self._advance()
            raise
        finally:
            slot.let_clock_go_on()

    def _leave(self, slot: Slot) -> None:
        self._in_flight -= 1
        self._limit.ended(slot.number)
        if slot.trial and self._breaker.position is Position.HALF_OPEN:
            self._breaker.drop_trial()
        self._advance()

    def _advance(self) -> None:
        """Let through whoever may go now, and see to it that this is looked at again when time alone lets more through."""
        now = self._now()
        if not self._breaker.closed:
            self._advance_trials(now)
            return
        while self._queue and self._in_flight < self._limit.current:
            if now < self._held_until:
                self._wake_at(self._held_until)
                return
            slot, soonest = self._queue.next(now)
            if slot is None:
                self._wake_at(soonest)
                return
            self._grant(slot, now)

    def _advance_trials(self, now: float) -> None:
        breaker = self._breaker
        if self._queue and now >= self._held_until and breaker.may_try(now):
            breaker.start_trial()
            # Any of them: the first may be the one that the server cannot bear.
            slot = random.choice(list(self._queue))
            slot.trial = True
            self._grant(slot, now)
        if now >= breaker.gives_up_at:
            self._give_up()
        elif self._queue:
            trial = (
                float("inf") if breaker.position is Position.HALF_OPEN else max(breaker.next_trial, self._held_until)
            )
            self._wake_at(min(trial, breaker.gives_up_at))

    def _grant(self, slot: Slot, now: float) -> None:
        self._queue.remove(slot)
        self._in_flight += 1
        slot.granted = True
        slot.since = now
        slot.number = self._limit.begin()
        slot.charged = slot.pace.charge(now, slot.tokens)
        if slot.turn is not None:
            slot.turn.set()

    def _give_up(self) -> None:
        fault = self._breaker.fault
        for slot in self._queue:
            self._queue.remove(slot)
            slot.refusal = f"{fault.message if fault else self.name}; it stays down, try again later."
            if slot.turn is not None:
                slot.turn.set()

    def _learn(self, slot: Slot, told: Told, now: float) -> None:
        slot.pace.learn(now, told)
        if told.retry_after is not None:
            self._hold(told.retry_after, now)

    def _hold(self, seconds: float, now: float) -> None:
        self._held_until = max(self._held_until, now + min(seconds, self._longest_wait))

    def _went_down(self, fault: Fault) -> None:
        then = "the run waits" if self._breaker.waits else "others are asked"
        _LOG.warning("%s; %s, and one request at a time tries whether it is back", fault.message, then)
        for slot in self._queue:
            slot.stop_clock()
        self._changed()

    def _up(self) -> None:
        since = self._breaker.down_since
        if not self._breaker.answered():
            return
        _LOG.warning("%s is back after %.0f s", self.name, self._now() - (since or 0.0))
        self._limit.restart()
        for slot in self._queue:
            slot.let_clock_go_on()
        self._changed()

    def _changed(self) -> None:
        if self.on_change is not None:
            self.on_change(self.state)

    def _wake_at(self, when: float) -> None:
        if self._loop is None or when == float("inf"):
            return
        if self._timer is not None:
            if self._timer.when() <= when:
                return
            self._timer.cancel()
        self._timer = self._loop.call_at(when, self._woken)

    def _woken(self) -> None:
        self._timer = None
        self._advance()

    def _now(self) -> float:
        return 0.0 if self._loop is None else self._loop.time()

    def _bind(self) -> None:
        loop = asyncio.get_running_loop()
        if loop is self._loop:
            return
        # Whoever waited or was in flight there has gone with it.
        self._loop = loop
        self._timer = None
        self._queue = Queue()
        self._in_flight = 0
