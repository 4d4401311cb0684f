"""The requests in flight, and a watchdog that warns when nothing seems to move."""

import logging
from collections import Counter
from collections.abc import Generator, Iterable
from contextlib import contextmanager
from dataclasses import dataclass, field
from enum import StrEnum

import anyio

from refinesynth.client.classify_error import FaultKind
from refinesynth.client.lacks import Lack
from refinesynth.client.session import Account

_LOG = logging.getLogger("refinesynth.backends")

_OVERDUE = 3.0
"""Times its timeout that a call may take, its turns not counted, before it is reported."""
_SHOWN = 20
"""Calls that one report names, the longest first."""


class CallStage(StrEnum):
    """What a call is waiting for."""

    TURN = "turn"
    """The backend's limiter: a free place, the buckets of its rate limits, or the end of an outage."""
    ANSWER = "answer"
    BACKOFF = "backoff"
    """The time between two attempts."""


@dataclass(eq=False, slots=True)
class Call:
    """One request of a role, with all its attempts: the one state that its steps share."""

    account: Account
    model: str
    """Label of the backend."""
    timeout: float
    """Seconds that one attempt may take."""
    since: float = field(default_factory=anyio.current_time)
    """On the event loop's clock, as all times here."""
    stage: CallStage = CallStage.TURN
    stage_since: float = field(default_factory=anyio.current_time)
    attempt: int = 0
    """Attempts begun."""
    in_turns: float = 0.0
    """Seconds spent waiting for turns that came."""
    failed: int = 0
    """Attempts that failed, answers that were recalled included."""
    faults: Counter[FaultKind] = field(default_factory=Counter[FaultKind])
    """Faults that count against the backend's numbers of retries."""
    may: frozenset[Lack] = frozenset(Lack)
    """Features that may be left out of the request, if the server seems to lack them."""
    without: frozenset[Lack] = frozenset()
    """Features that the request is tried without."""
    crashes: int = 0
    """Faults over which the server seems to have crashed."""
    answered_before: int = 0
    """Requests that the backend had answered when this one began."""

    def enter(self, stage: CallStage) -> None:
        """It waits for something else from now on."""
        now = anyio.current_time()
        if self.stage is CallStage.TURN:
            self.in_turns += now - self.stage_since
        self.stage = stage
        self.stage_since = now

    def overdue(self, now: float) -> bool:
        """Whether it has taken several times as long as one attempt may, its turns not counted."""
        return self.stage is not CallStage.TURN and now - self.since - self.in_turns > _OVERDUE * self.timeout


class Calls:
    """The calls that are in flight, in the order in which they were begun; one registry for all that a run asks."""

    def __init__(self) -> None:
        self._calls: dict[int, Call] = {}
        self._finished = 0
        self._retried = 0

    def __len__(self) -> int:
        return len(self._calls)

    def __iter__(self) -> Generator[Call]:
        yield from tuple(self._calls.values())

    @property
    def finished(self) -> int:
        """How many have ended so far, in every way."""
        return self._finished

    @property
    def retried(self) -> int:
        """How many attempts were made after a first one, so far."""
        return self._retried + sum(_again(call) for call in self._calls.values())

    @contextmanager
    def begun(self, call: Call) -> Generator[Call]:
        """A call is in flight for the block."""
        self._calls[id(call)] = call
        try:
            yield call
        finally:
            del self._calls[id(call)]
            self._finished += 1
            self._retried += _again(call)


def _again(call: Call) -> int:
    return max(0, call.attempt - 1)


async def watch(calls: Calls, *, every: float = 15.0, idle: float = 300.0) -> None:
    """Look at `calls` every so many seconds, until cancelled, and warn through the logger `refinesynth.backends`.

    A call that takes too long is reported once; that nothing is answered, while there are calls, every `idle` seconds, or as
    many as each of them may take.
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


def _warn(reason: str, calls: Iterable[Call], in_flight: int, now: float) -> None:
    rows = [
        {
            "model": call.model,
            "role": call.account.role,
            "episode": call.account.episode,
            "stage": call.stage,
            "stage_seconds": now - call.stage_since,
            "seconds": now - call.since,
            "attempt": call.attempt,
        }
        for call in sorted(calls, key=lambda call: call.since)[:_SHOWN]
    ]
    facts = {"event": "stuck", "in_flight": in_flight, "calls": rows}
    _LOG.warning("%s; %d in flight", reason, in_flight, extra={"facts": facts})
