"""A request's permit to be in flight, the queue of those that wait for one, and the deadline that stands still
meanwhile.
"""

from collections.abc import Generator, Hashable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from heapq import heappop, heappush
from typing import TYPE_CHECKING

import anyio

from refinesynth.client.classify_error import Fault
from refinesynth.client.limiter.rate_headers import read_rate_headers
from refinesynth.client.limiter.token_buckets import TokenBuckets

if TYPE_CHECKING:
    from refinesynth.client.limiter.rate_limiter import RateLimiter

_current: ContextVar["Deadline | None"] = ContextVar("deadline", default=None)


class Deadline:
    """A cancel scope whose time can be stopped; by several at once, and then until the last of them goes on."""

    def __init__(self, scope: anyio.CancelScope) -> None:
        self._scope = scope
        self._left = 0.0
        self._stops = 0

    @property
    def passed(self) -> bool:
        """Whether the time was up, and what was under way cancelled."""
        return self._scope.cancelled_caught

    def stop(self) -> None:
        """The time stands still from now on."""
        if not self._stops:
            self._left = self._scope.deadline - anyio.current_time()
            self._scope.deadline = float("inf")
        self._stops += 1

    def go_on(self) -> None:
        """Undo one `stop`."""
        self._stops -= 1
        if not self._stops:
            self._scope.deadline = anyio.current_time() + self._left


@contextmanager
def deadline(seconds: float | None) -> Generator[Deadline]:
    """Cancel the block after this long, None for never; what it was in time for is kept (`Deadline.passed`)."""
    limit = float("inf") if seconds is None else anyio.current_time() + seconds
    with anyio.CancelScope(deadline=limit) as scope:
        found = Deadline(scope)
        token = _current.set(found)
        try:
            yield found
        finally:
            _current.reset(token)


def current_deadline() -> Deadline | None:
    """The innermost deadline around this task's work."""
    return _current.get()


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
        self.limiter.note_answer(
            self, output_tokens=output_tokens, seconds=seconds, billed=billed, rate_headers=read_rate_headers(headers)
        )

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
