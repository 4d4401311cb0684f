"""Rate limiter with permits for requests: one limiter for all requests to one server with one key."""

import asyncio
import random
from collections.abc import AsyncGenerator, Hashable, Iterable, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from heapq import heappop, heappush
from typing import TypeAlias

import anyio

from refinesynth.async_contexts import stopped_clock
from refinesynth.backends.backend import LOG, Backend
from refinesynth.backends.providers import key_variables, server_of, split_model
from refinesynth.client.classify_error import ClassifiedError, ErrorCategory
from refinesynth.client.limiter.limits import (
    OUTAGE_CATEGORIES,
    UNBOUNDED,
    CircuitBreaker,
    ConcurrencyLimit,
    TokenBuckets,
)
from refinesynth.errors import RunStopped

_CAPACITY_CATEGORIES = OUTAGE_CATEGORIES | {ErrorCategory.RATE_LIMIT}
"""Faults that count against the server's capacity; with any other fault, the server accepted the request."""


@dataclass(eq=False, slots=True)
class Permit:
    """Permission for one request to be in flight. Call `answered` or `failed` at its end, unless it is cancelled."""

    limiter: "RateLimiter"
    priority: float
    buckets: TokenBuckets
    tokens: float
    """Approximate tokens of the prompt."""
    kind: Hashable
    order: int = 0
    charged: float = 0.0
    number: int = 0
    """Number among all granted permits, from 1; 0 before the grant."""
    granted_at: float = 0.0
    held_until: float = float("-inf")
    """Time until which the request's place stays empty after its end."""
    is_trial: bool = False
    is_queued: bool = False
    """True while the permit is in the queue."""
    turn: anyio.Event | None = None
    refusal: str | None = None
    """Message of the error instead of a grant; None without a refusal."""

    def answered(
        self,
        *,
        output_tokens: float,
        seconds: float | None = None,
        billed: float | None = None,
    ) -> None:
        """Record an answer.

        `seconds` is the time since the grant if None. `billed` is the tokens of prompt and completion, the estimate if
        None.
        """
        limiter, now, charged = self.limiter, self.limiter.now(), self.charged
        limiter.limit.answered(
            self.number,
            seconds=now - self.granted_at if seconds is None else seconds,
            tokens=output_tokens,
            kind=self.kind,
            in_flight=limiter.in_flight,
            held=len(limiter.held),
        )
        self.buckets.settle(now, charged, billed=charged if billed is None else billed, answer=output_tokens)
        limiter.note_answer()

    def failed(self, fault: ClassifiedError) -> None:
        limiter, now = self.limiter, self.limiter.now()
        self.buckets.settle(now, self.charged, billed=0.0)
        self.held_until = now + min(fault.retry_after or 0.0, limiter.longest_wait)
        if fault.category in _CAPACITY_CATEGORIES:
            limiter.limit.failed(self.number)
        if fault.category not in OUTAGE_CATEGORIES:
            # A web page does not prove that a model answers.
            if fault.category is not ErrorCategory.DEFECT and fault.page is None:
                limiter.note_answer()
        elif limiter.breaker.failed(
            fault,
            episode=self.priority,
            now=now,
            has_answered=limiter.has_answered,
            is_trial=self.is_trial,
            not_before=self.held_until,
        ):
            limiter.note_outage(fault)


class Queue:
    """Priority queue of waiting requests: smaller priorities first, first in, first out among equals.

    Requests with the same token buckets share a lane: a request that waits for its buckets does not block other lanes.
    Requests removed out of turn stay in the heap until they reach its top.
    """

    def __init__(self) -> None:
        self._heaps: dict[TokenBuckets, list[tuple[float, int, Permit]]] = {}
        self._arrived = 0
        self._waiting = 0

    def __len__(self) -> int:
        return self._waiting

    def __iter__(self) -> Iterator[Permit]:
        """Iterate over all waiting permits, in no order; the loop may remove them."""
        return iter([permit for heap in self._heaps.values() for _, _, permit in heap if permit.is_queued])

    def add(self, permit: Permit) -> None:
        self._arrived += 1
        permit.is_queued = True
        permit.order = self._arrived
        heappush(self._heaps.setdefault(permit.buckets, []), (permit.priority, permit.order, permit))
        self._waiting += 1

    def remove(self, permit: Permit) -> None:
        permit.is_queued = False
        self._waiting -= 1

    def next(self, now: float) -> tuple[Permit | None, float]:
        """Return the next permit that may go, or None and the earliest time at which a lane's buckets are ready."""
        first: Permit | None = None
        earliest = float("inf")
        for buckets, heap in self._heaps.items():
            while heap and not heap[0][2].is_queued:
                heappop(heap)
            if not heap:
                continue
            permit = heap[0][2]
            ready = buckets.ready_at(permit.tokens)
            if ready > now:
                earliest = min(earliest, ready)
            elif first is None or (permit.priority, permit.order) < (first.priority, first.order):
                first = permit
        return first, earliest


class RateLimiter:
    """Admission of requests: as many at once as the server accepts, within its rate limits, none while it is down.

    Guarantees: (1) No request is admitted while `limit.current` places are taken. A place becomes free when its request
    ends, unless a Retry-After holds it. (2) Smaller priorities go first, first in, first out among equals. A request
    that waits for its model's buckets holds no place and does not block other models. (3) A request answered with
    Retry-After keeps its place empty until then, at most `longest_wait`: one such request blocks one place, many block
    all. (4) While the backend is down, one trial request at a time is admitted; all others wait until the breaker
    closes or gives up. (5) No request waits forever if requests in flight end (they time out) and buckets are finite.

    Belongs to one event loop at a time; a later loop may use it after the earlier one ended. Not thread-safe.
    """

    def __init__(
        self,
        name: str,
        *,
        limit: ConcurrencyLimit | None = None,
        breaker: CircuitBreaker | None = None,
        longest_wait: float = 60.0,
    ) -> None:
        """Create a limiter; `name` is the backend's name in messages. The default limit is adaptive, without a ceiling.
        A server's Retry-After is respected for at most `longest_wait` seconds.
        """
        self.name = name
        self.limit = limit or ConcurrencyLimit()
        self.breaker = breaker or CircuitBreaker(longest_wait=longest_wait)
        self.has_answered = False
        """True after the backend's first answer."""
        self.longest_wait = longest_wait
        self._queue = Queue()
        self._default_buckets = TokenBuckets()
        self._buckets: dict[Hashable, TokenBuckets] = {}
        self.in_flight = 0
        self.held: list[float] = []
        """Heap of the times until which places stay empty because of a Retry-After."""
        self._loop: asyncio.AbstractEventLoop | None = None
        self._timer: asyncio.TimerHandle | None = None

    @property
    def is_down(self) -> bool:
        return self.breaker.down_since is not None

    @property
    def max_in_flight(self) -> int | None:
        """Limit of the requests in flight; None without one."""
        return None if self.limit.current == UNBOUNDED else self.limit.current

    @property
    def waiting(self) -> int:
        return len(self._queue)

    @property
    def held_until(self) -> float | None:
        """Time at which the first held place becomes free, on the event loop's clock (`time.monotonic`); None unless
        Retry-Afters hold all places.
        """
        self._free_places(self.now())
        return self.held[0] if len(self.held) >= self.limit.current else None

    def is_outage_fault(self, fault: ClassifiedError) -> bool:
        """Return True if a fault is part of an outage, for which the request spends no retry."""
        return self.is_down and fault.category in OUTAGE_CATEGORIES

    def buckets_of(self, backend: Backend) -> TokenBuckets:
        """Return the rate limits of a backend, shared by all backends with the same model and limits."""
        limits = {name: getattr(backend, name) for name in ("requests_per_minute", "tokens_per_minute")}
        key = (backend.model, *limits.values())
        return self._buckets.setdefault(key, TokenBuckets(**limits))

    @asynccontextmanager
    async def permit(
        self, *, priority: float = 0.0, buckets: TokenBuckets | None = None, tokens: float = 0.0, kind: Hashable = None
    ) -> AsyncGenerator[Permit]:
        """Wait for a permit, and hold it while the context lasts.

        `priority`: smaller goes first; the episode's number, to finish earlier episodes first. `buckets`: rate limits
        of this request. `tokens`: approximate tokens of the prompt. `kind`: as in `ConcurrencyLimit.answered`.

        Raises:
            RunStopped: The backend has been down for too long.
        """
        permit = Permit(self, priority, buckets or self._default_buckets, tokens, kind)
        self._bind()
        self._queue.add(permit)
        self._advance()
        if not (permit.number or permit.refusal):
            await self._wait_for_turn(permit)
        if permit.refusal is not None:
            raise RunStopped(permit.refusal)
        try:
            yield permit
        finally:
            self._release(permit)

    async def _wait_for_turn(self, permit: Permit) -> None:
        permit.turn = anyio.Event()
        try:
            # The time limit of an episode is for its backend, not for the queue and the rate limits here.
            with stopped_clock():
                await permit.turn.wait()
        except BaseException:
            if permit.number:
                # Granted at the moment of the cancellation: release the permit.
                self._release(permit)
            elif permit.is_queued:
                self._queue.remove(permit)
                self._advance()
            raise

    def _release(self, permit: Permit) -> None:
        self.in_flight -= 1
        if permit.held_until > self.now():
            heappush(self.held, permit.held_until)
        self.limit.ended(permit.number)
        if permit.is_trial:
            # A cancelled trial has recorded nothing; the next one may go at once.
            self.breaker.is_trying = False
        self._advance()

    def _advance(self) -> None:
        """Admit the requests that may go now; set a timer if only time must pass for the next."""
        now = self.now()
        if self.is_down:
            self._advance_trials(now)
            return
        self._free_places(now)
        while self._queue and self.in_flight < self.limit.current:
            if self.in_flight + len(self.held) >= self.limit.current:
                self._set_timer(self.held[0])
                return
            permit, earliest = self._queue.next(now)
            if permit is None:
                self._set_timer(earliest)
                return
            self._grant(permit, now)

    def _advance_trials(self, now: float) -> None:
        breaker = self.breaker
        if self._queue and breaker.may_try(now):
            breaker.is_trying = True
            # A random request: the first in line may be the one that crashes the server.
            permit = random.choice(list(self._queue))
            permit.is_trial = True
            self._grant(permit, now)
        if now >= breaker.gives_up_at:
            self._give_up()
        elif self._queue:
            self._set_timer(breaker.gives_up_at if breaker.is_trying else min(breaker.next_trial, breaker.gives_up_at))

    def _grant(self, permit: Permit, now: float) -> None:
        self._queue.remove(permit)
        self.in_flight += 1
        permit.granted_at = now
        permit.number = self.limit.begin()
        permit.charged = permit.buckets.charge(now, permit.tokens)
        if permit.turn is not None:
            permit.turn.set()

    def _give_up(self) -> None:
        fault = self.breaker.fault
        for permit in self._queue:
            self._queue.remove(permit)
            permit.refusal = f"{fault.message if fault else self.name}; it stays down, try again later."
            if permit.turn is not None:
                permit.turn.set()

    def _free_places(self, now: float) -> None:
        while self.held and self.held[0] <= now:
            heappop(self.held)

    def note_outage(self, fault: ClassifiedError) -> None:
        reaction = "the run waits" if self.breaker.waits_for_outages else "others are asked"
        LOG.warning("%s; %s, and one request at a time tries whether it is back", fault.message, reaction)

    def note_answer(self) -> None:
        self.has_answered = True
        since, first = self.breaker.down_since, self.breaker.trials <= 1
        if self.breaker.fault is None or not self.breaker.answered():
            return
        LOG.warning("%s is back after %.0f s", self.name, self.now() - (since or 0.0))
        if not first:
            # A backend that answers the first trial was not restarted: keep its limit.
            self.limit.restart()

    def _set_timer(self, time: float) -> None:
        if self._loop is None or time == float("inf"):
            return
        if self._timer is not None:
            if self._timer.when() <= time:
                return
            self._timer.cancel()
        self._timer = self._loop.call_at(time, self._on_timer)

    def _on_timer(self) -> None:
        self._timer = None
        self._advance()

    def now(self) -> float:
        return 0.0 if self._loop is None else self._loop.time()

    def _bind(self) -> None:
        loop = asyncio.get_running_loop()
        if loop is self._loop:
            return
        # Requests of the earlier loop, queued or in flight, ended with that loop.
        self._loop = loop
        self._timer = None
        self._queue = Queue()
        self.in_flight = 0
        self.held = []


Endpoint: TypeAlias = tuple[str, tuple[str, ...]]
"""Server (or provider) and the environment variables of the key."""


def endpoint(backend: Backend) -> Endpoint:
    """Return the endpoint of a backend; the server cannot distinguish backends with the same endpoint."""
    return server_of(backend) or split_model(backend.model)[0], key_variables(backend)


def limiter_of(backend: Backend, *others: Backend, waits: bool = True, batched: bool = False) -> RateLimiter:
    """Return a limiter for backends of one endpoint, with the strictest of their bounds.

    Without `waits`, requests do not wait for the end of an outage. With `batched`, all requests go at once, and faults
    do not open the breaker.
    """
    backends = (backend, *others)
    ceilings = [member.max_in_flight for member in backends if member.max_in_flight is not None]
    longest_wait = min(member.longest_wait for member in backends)
    outage = min(member.outage for member in backends) if waits else 0.0
    return RateLimiter(
        backend.label,
        # The rehearsal runs in this process, and batches have no concurrency: neither needs a limit.
        limit=ConcurrencyLimit(start=None)
        if backend.is_rehearsal or batched
        else ConcurrencyLimit(ceiling=min(ceilings, default=None)),
        breaker=CircuitBreaker(longest_wait=longest_wait, outage=outage, can_open=not batched),
        # A Retry-After is respected for as long as an outage.
        longest_wait=max(longest_wait, outage),
    )


def limiters_of(backends: Iterable[Backend], *, fallback: Backend | None = None) -> dict[Endpoint, RateLimiter]:
    """Return one limiter per endpoint; with a `fallback`, only the fallback's endpoint waits for an outage to end."""
    grouped: dict[Endpoint, list[Backend]] = {}
    for backend in backends:
        grouped.setdefault(endpoint(backend), []).append(backend)
    last = None if fallback is None else endpoint(fallback)
    return {key: limiter_of(*group, waits=last in {None, key}) for key, group in grouped.items()}
