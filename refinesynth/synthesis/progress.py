"""Progress of a run: its counts at one moment, the bill, the state of its backends, and the line in a notebook."""

import math
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from importlib import import_module
from typing import TYPE_CHECKING, Any

from refinesynth.client.budget.budget import Budget
from refinesynth.cost import Cost
from refinesynth.errors import InputError
from refinesynth.text.printable import one_line
from refinesynth.trajectory import Usage

if TYPE_CHECKING:
    from refinesynth.client.budget.tracker import BudgetTracker
    from refinesynth.client.failure_policy import RequestCounts
    from refinesynth.client.limiter.rate_limiter import RateLimiter

_EVERY_S = 0.5
"""Seconds between two lines at least: each is a message to the browser."""


class LimitingFactor(StrEnum):
    """Reasons that keep a run from having more episodes in flight."""

    SERVER = "the server"
    RATE = "a rate limit"
    BUDGET = "the budget"
    MEMORY = "memory"
    ASKED = "concurrency"
    MISSING = "what is still missing"
    """No more are needed for the missing trajectories."""
    EARLIER = "an earlier episode"
    """All others would have to wait for it to be committed."""
    READER = "whoever takes the trajectories"


@dataclass(frozen=True, slots=True)
class Surroundings:
    """State that also changes while no episode begins or ends: cost and backends."""

    paid: Cost
    """In all: episodes in flight, interrupted ones and earlier processes included."""
    budget: Budget | None = None
    retries: int = 0
    """Retries of this process."""
    troubles: tuple[str, ...] = ()
    """Backends that are down or let requests wait, each in a clause."""


@dataclass(frozen=True, slots=True)
class Progress:
    """One moment of a run. On a resumed run the counts include what was there already; `elapsed` does not."""

    n: int
    accepted: int
    """Trajectories in trajectories.jsonl: in a fresh run at most `n`, plus the rest of the episode that reaches `n`."""
    kept: int
    """Trajectories of finished episodes that wait for an earlier episode, or are beyond `n`."""
    started: int
    finished: int
    """Episodes that ended, accepted or not."""
    in_flight: int
    failed: int
    """Episodes that ended without a trajectory."""
    scripts_refused: int
    """Scripts that the rules refused or that could not be read, in finished episodes."""
    drafts_refused: int
    """Drafts that the rules or the judge refused, in finished episodes."""
    by_rule: Mapping[str, int]
    """Rule name to the refused scripts and drafts that it rejected; one rejected by two rules counts for both."""
    bad_personas: int
    """Rows of the source that are no personas, so far."""
    usage: Usage
    """Tokens and requests of finished episodes."""
    cost_usd: float | None
    """US dollars for finished episodes; None where a model's price is unknown."""
    elapsed: float
    """Seconds since this process began the run."""
    finished_before: int = 0
    """Episodes that an earlier process had finished; `(finished - finished_before) / elapsed` is this one's rate."""
    accepted_before: int = 0
    """Their trajectories, waiting ones included."""
    commonest_reason: tuple[str, int] | None = None
    """Most frequent reason of the `failed` episodes, with its count; None without any."""
    last_reason: str | None = None
    """Reason of the last of them."""
    bound: LimitingFactor | None = None
    """Reason why no more episodes are in flight; None while another is being started, or no personas are left."""
    surroundings: Callable[[], Surroundings] | None = field(default=None, compare=False)
    """Returns the present state around the run; None if there is none."""

    @property
    def gained(self) -> int:
        """Trajectories of all finished episodes."""
        return self.accepted + self.kept

    def look(self) -> Surroundings:
        """Return the state around the run; only the cost of finished episodes, if nothing more is known."""
        if self.surroundings is not None:
            return self.surroundings()
        return Surroundings(paid=Cost(usage=self.usage, cost_usd=self.cost_usd))

    def __str__(self) -> str:
        """The moment on one line, with the troubles of servers: `3/10 accepted, 7 in flight, 1 gave none`."""
        kept = f", {self.kept:,} kept for later" if self.kept else ""
        counts = f"{self.accepted:,}/{self.n:,} accepted{kept}, {self.in_flight:,} in flight, {self.failed:,} gave none"
        return "; ".join([counts, *(one_line(trouble, most=200) for trouble in self.look().troubles)])


@dataclass(frozen=True, slots=True)
class BackendsState:
    """State of the backends, as one block of a run sees it, or all of them together."""

    retries: int = 0
    troubles: tuple[str, ...] = ()
    """Reasons why backends take no requests, in clauses."""
    room: int = 0
    """Requests that their servers take at once, as far as known."""
    in_flight: int = 0


@dataclass(frozen=True)
class StatusProbe:
    """Reader of the state around a run: its tracker, its requests and its models."""

    tracker: "BudgetTracker"
    calls: "RequestCounts"
    models: "Callable[[], Mapping[Any, Any]]"
    """Returns role to model; not called before the first request."""
    elsewhere: Callable[[], BackendsState] = BackendsState

    def look(self) -> Surroundings:
        budget, elsewhere = self.tracker.budget, self.elsewhere()
        return Surroundings(
            paid=self.tracker.spent,
            budget=None if budget.usd is None and budget.tokens is None else budget,
            retries=self.calls.retried + elsewhere.retries,
            troubles=(*troubles_of(self.limiters()), *elsewhere.troubles),
        )

    def limiters(self) -> "Sequence[RateLimiter]":
        """Return the limiters of the servers that this process has used."""
        from refinesynth.client.routing import limiters_in

        return limiters_in(self.models().values()) if self.calls.begun else ()


def room_of(limiters: "Iterable[RateLimiter]") -> int:
    """Return the requests that servers take at once, of servers that have answered and are not down."""
    return sum(limiter.most or 0 for limiter in limiters if limiter.met and not limiter.down)


def troubles_of(limiters: "Iterable[RateLimiter]") -> list[str]:
    """Return why backends take no requests, each in a clause."""
    found = (trouble(limiter, now=time.monotonic()) for limiter in limiters)
    return [clause for clause in found if clause is not None]


def trouble(limiter: "RateLimiter", *, now: float) -> str | None:
    """Return why a backend takes no requests, in a clause; None if it takes them. `now` is on its clock."""
    breaker, held = limiter.breaker, limiter.held_until
    if breaker.down_since is not None:
        because = f" ({breaker.fault.message})" if breaker.fault else ""
        then = "the run waits for it" if breaker.waits_for_outages else "the fallback is asked"
        return f"{limiter.name} has been down for {_seconds(now - breaker.down_since)}; {then}{because}"
    if breaker.fault is not None and not limiter.met:
        return f"{breaker.fault.message}; it has not answered yet"
    if held is not None and held > now:
        return f"{limiter.name} asks for a pause of {_seconds(held - now)}"
    if limiter.waiting and limiter.most is not None:
        return f"{limiter.name} is given {limiter.most:,} requests at once, {limiter.waiting:,} wait"
    return None


def _seconds(seconds: float) -> str:
    rounded = math.ceil(seconds)
    return f"{rounded} s" if rounded < 120 else f"{rounded // 60} min"  # noqa: PLR2004


def shown_in_notebook() -> Callable[[Progress], None]:
    """Return a function that shows each moment as text below a notebook's cell, or raise InputError outside of one."""
    try:
        shell, display = import_module("IPython"), import_module("IPython.display")
    except ModuleNotFoundError:
        shell = display = None
    if shell is None or display is None or shell.get_ipython() is None:
        raise InputError(
            "progress=True shows a line in a notebook, and this is none; elsewhere give on_progress, such as print"
        )
    line = display.display({"text/plain": ""}, raw=True, display_id=True)
    shown = 0.0

    def show(moment: Progress) -> None:
        nonlocal shown
        now = time.monotonic()
        if now - shown >= _EVERY_S or not moment.in_flight:
            shown = now
            line.update({"text/plain": str(moment)}, raw=True)

    return show
