"""Permits for requests to a backend: one limiter for everyone who asks the same server with the same key."""

import asyncio
import logging
import random
from collections.abc import AsyncGenerator, Hashable, Iterable, Iterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from heapq import heappop, heappush
from typing import TypeAlias

import anyio

from refinesynth.backends.backend import Backend
from refinesynth.backends.providers import key_variables, server_of, split
from refinesynth.client.classify_error import Fault, FaultKind
from refinesynth.client.limiter.circuit_breaker import DOWN, CircuitBreaker, CircuitState
from refinesynth.client.limiter.concurrency_limit import UNBOUNDED, ConcurrencyLimit
from refinesynth.client.limiter.rates import RateHeaders, TokenBuckets, read_rate_headers
from refinesynth.client.session import Deadline, current_deadline
from refinesynth.errors import RunStopped

_LOG = logging.getLogger("refinesynth.backends")
_UNANSWERED = DOWN | {FaultKind.RATE_LIMIT}
"""Faults that say something of how many requests the server takes; after any other one, it took the request."""


@dataclass(eq=False, slots=True)
class Permit:
    """One request's leave to be in flight. Report to it how the request ended; one without a report was cancelled."""

    limiter: "RateLimiter"
    priority: float
    buckets: TokenBuckets
    tokens: float
    """Of the prompt, roughly."""
    kind: Hashable
    order: int = 0
    charged: float = 0.0
    number: int = 0
    """Among all that had their turn."""
    since: float = 0.0
    held_until: float = float("-inf")
    """How long its place is left empty when it has ended."""
    trial: bool = False
    granted: bool = False
    waits: bool = False
    """Whether it is in the queue."""
    turn: anyio.Event | None = None
    refusal: str | None = None
    """Why there is no turn for it."""
    deadline: Deadline | None = None
    stopped: bool = False
    """Whether it has stopped the deadline's clock."""

    def answered(
        self,
        *,
        output_tokens: float,
        seconds: float | None = None,
        billed: float | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        """The request was answered.

        Args:
            output_tokens: Tokens of the answer.
            seconds: What it took; since the permit was given if None.
            billed: Tokens of prompt and answer together, for a limit on tokens; taken to be as estimated if None.
            headers: The answer's HTTP headers, with names in lower case.
        """
        self.limiter.note_answer(self, output_tokens, seconds, billed, read_rate_headers(headers))

    def failed(self, fault: Fault, *, headers: Mapping[str, str] | None = None) -> None:
        """The request met a fault."""
        self.limiter.note_fault(self, fault, read_rate_headers(headers))

    def stop_clock(self) -> None:
        """The episode does not pay with its time for a backend that is down."""
        if self.deadline is not None and not self.stopped:
            self.stopped = True
            self.deadline.stop()

    def let_clock_go_on(self) -> None:
        """Undo `stop_clock`."""
        if self.deadline is not None and self.stopped:
            self.stopped = False
            self.deadline.go_on()


class Queue:
    """Requests that wait for a turn: smaller priorities first, first come first served among equals.

    Those that share token buckets share a lane, so that one that waits for them stops no request in another lane. What
    leaves out of turn is dropped when the queue comes to it, so that leaving costs nothing however long the queue is.
    """

    def __init__(self) -> None:
        self._lanes: dict[TokenBuckets, list[tuple[float, int, Permit]]] = {}
        self._arrived = 0
        self._waiting = 0

    def __len__(self) -> int:
        return self._waiting

    def __iter__(self) -> Iterator[Permit]:
        """All that wait, in no order; they may be removed meanwhile."""
        return iter([permit for lane in self._lanes.values() for _, _, permit in lane if permit.waits])

    def add(self, permit: Permit) -> None:
        """The request waits from now on."""
        self._arrived += 1
        permit.waits = True
        permit.order = self._arrived
        heappush(self._lanes.setdefault(permit.buckets, []), (permit.priority, permit.order, permit))
        self._waiting += 1

    def remove(self, permit: Permit) -> None:
        """It has its turn, or goes without."""
        permit.waits = False
        self._waiting -= 1

    def next(self, now: float) -> tuple[Permit | None, float]:
        """Whose turn it is; or None, and when the buckets of one of them lets it go."""
        first: Permit | None = None
        soonest = float("inf")
        for buckets, lane in self._lanes.items():
            while lane and not lane[0][2].waits:
                heappop(lane)
            if not lane:
                continue
            permit = lane[0][2]
            ready = buckets.ready_at(permit.tokens)
            if ready > now:
                soonest = min(soonest, ready)
            elif first is None or (permit.priority, permit.order) < (first.priority, first.order):
                first = permit
        return first, soonest


@dataclass(frozen=True)
class RateLimiterState:
    """A limiter at one moment, for displays of a run."""

    name: str
    limit: int | None
    """Requests that may be in flight; None without bound."""
    in_flight: int
    waiting: int
    held_until: float | None
    """Until when no request may go, because the server asked for that, on the event loop's clock (`time.monotonic`); None
    if one may."""
    down_since: float | None
    """On the same clock; None while the backend is up."""
    fault: str | None
    """What the backend failed with last, if it has not answered since."""
    waits: bool = True
    """Whether requests wait for the end of an outage; False where they go elsewhere."""
    met: bool = True
    """Whether the backend has ever answered anything."""


class RateLimiter:
    """Lets requests through one by one: as many at once as the server takes, no faster than its limits, none while it
    is down.

    Guarantees:
        - No more than `limit.current` slots are reserved; a permit that is left is free again at once, but for Retry-After.
        - Smaller priorities first, first come first served among equals. A request that waits for the buckets of its
          own model holds no permit, and does not hold up requests to other models.
        - A request that was answered with Retry-After leaves its place empty until that is over, as far as it is no
          longer than `longest_wait`: one among many holds its own share of the requests, many hold them all.
        - While the backend is down, one request at a time is let through; all others wait, as long as the breaker says.
        - No request waits for ever, if requests in flight end (they have a timeout) and buckets are finite.

    Belongs to one event loop at a time, and may serve another one after that. Not safe for threads.
    """

    def __init__(
        self,
        name: str,
        *,
        limit: ConcurrencyLimit | None = None,
        breaker: CircuitBreaker | None = None,
        longest_wait: float = 60.0,
    ) -> None:
        """Nothing is in flight.

        Args:
            name: What messages call the backend.
            limit: How many requests at once; an adaptive one without ceiling if None.
            breaker: When the backend counts as down, and how long requests wait for it; the usual one if None.
            longest_wait: Most seconds that a server's wish is honoured for.
        """
        self.name = name
        self._limit = limit or ConcurrencyLimit()
        self._breaker = breaker or CircuitBreaker(longest_wait=longest_wait)
        self._longest_wait = longest_wait
        self._queue = Queue()
        self._any_buckets = TokenBuckets()
        self._in_flight = 0
        self._held: list[float] = []
        """A heap: until when each of the places is empty that a Retry-After holds."""
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
    def state(self) -> RateLimiterState:
        """This moment's."""
        fault = self._breaker.fault
        self._let_go(self._now())
        return RateLimiterState(
            name=self.name,
            limit=None if self._limit.current == UNBOUNDED else self._limit.current,
            in_flight=self._in_flight,
            waiting=len(self._queue),
            held_until=self._held[0] if len(self._held) >= self._limit.current else None,
            down_since=self._breaker.down_since,
            fault=None if fault is None else fault.message,
            waits=self._breaker.waits,
            met=self._breaker.met,
        )

    def excuses(self, fault: Fault) -> bool:
        """Whether a fault is part of an outage, and none of the request's own retries is spent on it."""
        return self.down and fault.kind in DOWN

    @asynccontextmanager
    async def permit(
        self, *, priority: float = 0.0, buckets: TokenBuckets | None = None, tokens: float = 0.0, kind: Hashable = None
    ) -> AsyncGenerator[Permit]:
        """Wait for a turn, and hold it for the block.

        Args:
            priority: Smaller goes first. The episode's number: what was begun first is finished first.
            buckets: The rate limits that this request falls under.
            tokens: Of the prompt, roughly.
            kind: Requests of one kind take alike per output token, see `ConcurrencyLimit.answered`.

        Raises:
            RunStopped: The backend has been down for too long.
        """
        permit = Permit(self, priority, buckets or self._any_buckets, tokens, kind)
        self._bind()
        self._queue.add(permit)
        self._advance()
        if not (permit.granted or permit.refusal):
            await self._turn_of(permit)
        if permit.refusal is not None:
            raise RunStopped(permit.refusal)
        try:
            yield permit
        finally:
            self._leave(permit)

    def note_answer(
        self,
        permit: Permit,
        output_tokens: float,
        seconds: float | None,
        billed: float | None,
        rate_headers: RateHeaders,
    ) -> None:
        now = self._now()
        took = now - permit.since if seconds is None else seconds
        self._limit.answered(
            permit.number,
            seconds=took,
            tokens=output_tokens,
            kind=permit.kind,
            in_flight=self._in_flight,
            held=len(self._held),
        )
        charged = permit.charged
        permit.buckets.settle(now, charged, billed=charged if billed is None else billed, answer=output_tokens)
        self._learn(permit, rate_headers, now)
        self._up()

    def note_fault(self, permit: Permit, fault: Fault, rate_headers: RateHeaders) -> None:
        now = self._now()
        permit.buckets.settle(now, permit.charged, billed=0.0)
        self._learn(permit, rate_headers, now, after=fault.after)
        if fault.kind in _UNANSWERED:
            self._limit.failed(permit.number)
        if fault.kind not in DOWN:
            # A web page is no model's answer.
            if fault.kind is not FaultKind.DEFECT and fault.page is None:
                self._up()
        elif self._breaker.failed(
            fault, episode=permit.priority, now=now, trial=permit.trial, not_before=permit.held_until
        ):
            self._went_down(fault)

    async def _turn_of(self, permit: Permit) -> None:
        permit.turn = anyio.Event()
        permit.deadline = current_deadline()
        if self.down:
            permit.stop_clock()
        try:
            await permit.turn.wait()
        except BaseException:
            if permit.granted:
                # The turn came in the moment of the cancellation: pass it on.
                self._leave(permit)
            elif permit.waits:
                self._queue.remove(permit)
                self._advance()
            raise
        finally:
            permit.let_clock_go_on()

    def _leave(self, permit: Permit) -> None:
        self._in_flight -= 1
        if permit.held_until > self._now():
            heappush(self._held, permit.held_until)
        self._limit.ended(permit.number)
        if permit.trial and self._breaker.position is CircuitState.HALF_OPEN:
            self._breaker.drop_trial()
        self._advance()

    def _advance(self) -> None:
        """Let through the requests that may go now; set a timer where time alone lets more through."""
        now = self._now()
        if not self._breaker.closed:
            self._advance_trials(now)
            return
        self._let_go(now)
        while self._queue and self._in_flight < self._limit.current:
            if self._in_flight + len(self._held) >= self._limit.current:
                self._wake_at(self._held[0])
                return
            permit, soonest = self._queue.next(now)
            if permit is None:
                self._wake_at(soonest)
                return
            self._grant(permit, now)

    def _advance_trials(self, now: float) -> None:
        breaker = self._breaker
        if self._queue and breaker.may_try(now):
            breaker.start_trial()
            # Any of them: the first may be the one that the server cannot bear.
            permit = random.choice(list(self._queue))
            permit.trial = True
            self._grant(permit, now)
        if now >= breaker.gives_up_at:
            self._give_up()
        elif self._queue:
            trial = float("inf") if breaker.position is CircuitState.HALF_OPEN else breaker.next_trial
            self._wake_at(min(trial, breaker.gives_up_at))

    def _grant(self, permit: Permit, now: float) -> None:
        self._queue.remove(permit)
        self._in_flight += 1
        permit.granted = True
        permit.since = now
        permit.number = self._limit.begin()
        permit.charged = permit.buckets.charge(now, permit.tokens)
        if permit.turn is not None:
            permit.turn.set()

    def _give_up(self) -> None:
        fault = self._breaker.fault
        for permit in self._queue:
            self._queue.remove(permit)
            permit.refusal = f"{fault.message if fault else self.name}; it stays down, try again later."
            if permit.turn is not None:
                permit.turn.set()

    def _learn(self, permit: Permit, rate_headers: RateHeaders, now: float, *, after: float | None = None) -> None:
        permit.buckets.learn(now, rate_headers)
        asked = max(rate_headers.retry_after or 0.0, after or 0.0)
        permit.held_until = now + min(asked, self._longest_wait)

    def _let_go(self, now: float) -> None:
        while self._held and self._held[0] <= now:
            heappop(self._held)

    def _went_down(self, fault: Fault) -> None:
        then = "the run waits" if self._breaker.waits else "others are asked"
        _LOG.warning("%s; %s, and one request at a time tries whether it is back", fault.message, then)
        for permit in self._queue:
            permit.stop_clock()

    def _up(self) -> None:
        since, first = self._breaker.down_since, self._breaker.trials <= 1
        if not self._breaker.answered():
            return
        _LOG.warning("%s is back after %.0f s", self.name, self._now() - (since or 0.0))
        if not first:
            # What is back at the first trial was not gone.
            self._limit.restart()
        for permit in self._queue:
            permit.let_clock_go_on()

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
        # Requests that waited or were in flight there have ended with it.
        self._loop = loop
        self._timer = None
        self._queue = Queue()
        self._in_flight = 0
        self._held = []


Endpoint: TypeAlias = tuple[str, tuple[str, ...]]
"""A server, and the variables that may hold its key."""


def endpoint(backend: Backend) -> Endpoint:
    """The server and where its key is looked for; backends that agree in this are one to the server."""
    return server_of(backend) or split(backend.model)[0], key_variables(backend)


def limiter_of(backend: Backend, *others: Backend, waits: bool = True, batched: bool = False) -> RateLimiter:
    """A limiter for backends of one endpoint; where they ask for different bounds, it keeps the strictest.

    Unless it `waits`, requests do not wait for the end of an outage; if they are `batched`,
    all go that there are, and what comes of them says nothing of the server.
    """
    backends = (backend, *others)
    ceilings = [one.max_in_flight for one in backends if one.max_in_flight is not None]
    longest_wait = min(one.longest_wait for one in backends)
    outage = min(one.outage for one in backends) if waits else 0.0
    return RateLimiter(
        backend.label,
        # The embedded backend is this process: it takes whatever comes, and there is nothing to find out.
        limit=ConcurrencyLimit(start=None)
        if backend.rehearses or batched
        else ConcurrencyLimit(ceiling=min(ceilings, default=None)),
        breaker=CircuitBreaker(longest_wait=longest_wait, outage=outage, opens=not batched),
        # For a server that asks to be left alone is waited as for one that is down.
        longest_wait=max(longest_wait, outage),
    )


def limiters_of(backends: Iterable[Backend], *, fallback: Backend | None = None) -> dict[Endpoint, RateLimiter]:
    """One limiter for each endpoint among `backends`; where there is a `fallback`, only its own waits for an outage."""
    grouped: dict[Endpoint, list[Backend]] = {}
    for backend in backends:
        grouped.setdefault(endpoint(backend), []).append(backend)
    last = None if fallback is None else endpoint(fallback)
    return {where: limiter_of(*group, waits=last in {None, where}) for where, group in grouped.items()}
