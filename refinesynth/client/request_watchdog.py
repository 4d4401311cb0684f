"""Requests in flight, and a watchdog that warns when none is answered."""

from collections import Counter
from collections.abc import Generator, Iterable
from contextlib import contextmanager
from dataclasses import dataclass, field
from enum import StrEnum

import anyio

from refinesynth.client.classify_error import ErrorCategory
from refinesynth.client.reporting import LOG
from refinesynth.client.session import RequestContext
from refinesynth.client.unsupported_features import UnsupportedFeature

_OVERDUE = 3.0
"""Multiple of its timeout after which a call is reported, time for turns left out."""
_SHOWN = 20
"""Calls that one report names, the longest first."""


class RequestStage(StrEnum):
    """State of a call."""

    TURN = "turn"
    """The backend's limiter: a free place, a rate limit, or the end of an outage."""
    ANSWER = "answer"
    BACKOFF = "backoff"
    """Time between two attempts."""


@dataclass(eq=False, slots=True)
class PendingRequest:
    """State of one request of a role over all its attempts."""

    account: RequestContext
    model: str
    """Label of the backend."""
    timeout: float
    """Seconds of one attempt."""
    since: float = field(default_factory=anyio.current_time)
    """On the event loop's clock, as all times here."""
    stage: RequestStage = RequestStage.TURN
    stage_since: float = field(default_factory=anyio.current_time)
    attempt: int = 0
    """Attempts begun."""
    in_turns: float = 0.0
    """Seconds spent waiting for turns that came."""
    failed: int = 0
    """Failed attempts, recalled answers included."""
    faults: Counter[ErrorCategory] = field(default_factory=Counter[ErrorCategory])
    """Faults that count against the backend's retries."""
    may: frozenset[UnsupportedFeature] = frozenset(UnsupportedFeature)
    """Features that may be left out if the server seems to lack them."""
    without: frozenset[UnsupportedFeature] = frozenset()
    """Features left out of the request."""
    loading: float = 0.0
    """Seconds of waits for a server that loads its model."""
    bounded: bool = False
    """True if the answer has its role's default bound."""
    unbounded: bool = False
    """True once it is asked without that bound, which was in the way."""
    crashes: int = 0
    """Faults over which the server seems to have crashed."""
    answered_before: int = 0
    """Answers of the backend before this request began."""

    def enter(self, stage: RequestStage) -> None:
        """Begin to wait for something else."""
        now = anyio.current_time()
        if self.stage is RequestStage.TURN:
            self.in_turns += now - self.stage_since
        self.stage = stage
        self.stage_since = now

    def overdue(self, now: float) -> bool:
        """Return True if it takes several times its timeout, time for turns left out."""
        return self.stage is not RequestStage.TURN and now - self.since - self.in_turns > _OVERDUE * self.timeout


class RequestsInFlight:
    """Calls in flight, in the order of their beginnings; one registry per run."""

    def __init__(self) -> None:
        self._calls: dict[int, PendingRequest] = {}
        self.finished = 0
        """Number of ended calls."""
        self._retried = 0

    def __len__(self) -> int:
        return len(self._calls)

    def __iter__(self) -> Generator[PendingRequest]:
        yield from tuple(self._calls.values())

    @property
    def retried(self) -> int:
        """Number of attempts after a first one."""
        return self._retried + sum(_again(call) for call in self._calls.values())

    @contextmanager
    def begun(self, call: PendingRequest) -> Generator[PendingRequest]:
        """List a call as in flight while the context lasts."""
        self._calls[id(call)] = call
        try:
            yield call
        finally:
            del self._calls[id(call)]
            self.finished += 1
            self._retried += _again(call)


def _again(call: PendingRequest) -> int:
    return max(0, call.attempt - 1)


async def watch(calls: RequestsInFlight, *, every: float = 15.0, idle: float = 300.0) -> None:
    """Check `calls` regularly until cancelled, and warn through the logger `refinesynth.backends`.

    A slow call is reported once; a time without answers every `idle` seconds or the shortest timeout, if longer.
    """
    reported = set[int]()
    finished, moved_at = calls.finished, anyio.current_time()
    while True:
        await anyio.sleep(every)
        now = anyio.current_time()
        if not len(calls) or calls.finished != finished:
            finished, moved_at = calls.finished, now
        elif now - moved_at >= (longest := max(idle, min(call.timeout for call in calls))):
            moved_at = now
            _warn(f"nothing has been answered for {longest:.0f} s", calls, len(calls), now)
        overdue = [call for call in calls if call.overdue(now)]
        new = [call for call in overdue if id(call) not in reported]
        reported = {id(call) for call in overdue}
        if new:
            plural = "a call takes" if len(new) == 1 else f"{len(new)} calls take"
            _warn(f"{plural} more than {_OVERDUE:g} times the timeout", new, len(calls), now)


def _warn(reason: str, calls: Iterable[PendingRequest], in_flight: int, now: float) -> None:
    rows = [
        {
            "model": call.model,
            "role": call.account.role,
            "episode": call.account.session.id,
            "stage": call.stage,
            "stage_seconds": now - call.stage_since,
            "seconds": now - call.since,
            "attempt": call.attempt,
        }
        for call in sorted(calls, key=lambda call: call.since)[:_SHOWN]
    ]
    facts = {"event": "stuck", "in_flight": in_flight, "calls": rows}
    LOG.warning("%s; %d in flight", reason, in_flight, extra={"facts": facts})
