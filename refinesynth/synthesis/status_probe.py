"""Looks at what is around a run: the bill, and how its backends are."""

import math
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from refinesynth.synthesis.progress import Surroundings

if TYPE_CHECKING:
    from refinesynth.client.budget.tracker import BudgetTracker
    from refinesynth.client.limiter.rate_limiter import RateLimiter, RateLimiterState
    from refinesynth.client.watch import Calls


@dataclass(frozen=True, slots=True)
class How:
    """How its backends are, as one worker of a run sees it, or all of them together."""

    retries: int = 0
    """Requests that were made again so far."""
    troubles: tuple[str, ...] = ()
    """What keeps backends from taking requests, in clauses."""
    room: int = 0
    """Requests that their servers take at once, as far as it is found out."""


@dataclass(frozen=True)
class StatusProbe:
    """Where to look."""

    tracker: "BudgetTracker"
    calls: "Calls"
    models: "Callable[[], Mapping[Any, Any]]"
    """Role to model; not asked before there was a call."""
    elsewhere: Callable[[], How] = How
    """How it is for the workers of the run."""

    def look(self) -> Surroundings:
        """This moment."""
        limited = self.tracker.budget.usd is not None or self.tracker.budget.tokens is not None
        troubles = troubles_of(self.limiters())
        elsewhere = self.elsewhere()
        return Surroundings(
            paid=self.tracker.spent,
            budget=self.tracker.budget if limited else None,
            retries=self.calls.retried + elsewhere.retries,
            troubles=(*troubles, *elsewhere.troubles),
        )

    def limiters(self) -> "Sequence[RateLimiter]":
        """Of the servers that were asked in this process."""
        from refinesynth.client.several import limiters_in

        return limiters_in(self.models().values()) if self.calls.finished or len(self.calls) else ()


def room_of(limiters: "Iterable[RateLimiter]") -> int:
    """Requests that servers take at once, those that have answered and are not down."""
    states = [limiter.state for limiter in limiters]
    return sum(state.limit or 0 for state in states if state.met and state.down_since is None)


def troubles_of(limiters: "Iterable[RateLimiter]") -> list[str]:
    """What keeps backends from taking requests, each in a clause."""
    found = (trouble(limiter.state, now=time.monotonic()) for limiter in limiters)
    return [clause for clause in found if clause is not None]


def trouble(state: "RateLimiterState", *, now: float) -> str | None:
    """What keeps a backend from taking requests, in a clause; None if nothing does. `now` is on its clock."""
    if state.down_since is not None:
        because = f" ({state.fault})" if state.fault else ""
        then = "the run waits for it" if state.waits else "the fallback is asked"
        return f"{state.name} has been down for {_seconds(now - state.down_since)}; {then}{because}"
    if state.fault is not None and not state.met:
        return f"{state.fault}; it has not answered yet"
    if state.held_until is not None and state.held_until > now:
        return f"{state.name} asks for a pause of {_seconds(state.held_until - now)}"
    if state.waiting and state.limit is not None:
        return f"{state.name} is given {state.limit:,} requests at once, {state.waiting:,} wait"
    return None


def _seconds(seconds: float) -> str:
    whole = math.ceil(seconds)
    return f"{whole} s" if whole < 120 else f"{whole // 60} min"  # noqa: PLR2004
