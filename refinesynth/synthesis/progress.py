"""Progress of a run: its counts, cost and backends at one moment."""

import math
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Any

from refinesynth.client.budget.budget import Budget
from refinesynth.outcome import Cost
from refinesynth.text.formatting import one_line
from refinesynth.trajectory import Usage

if TYPE_CHECKING:
    from refinesynth.client.budget.tracker import BudgetTracker
    from refinesynth.client.failure_policy import RequestCounts
    from refinesynth.client.limiter.rate_limiter import RateLimiter


class LimitingFactor(StrEnum):
    """Reasons that keep a run from having more episodes in flight."""

    SERVER = "the server"
    RATE = "a rate limit"
    BUDGET = "the budget"
    MEMORY = "memory"
    CONCURRENCY = "concurrency"
    MISSING = "what is still missing"
    """The episodes in flight suffice for the missing trajectories."""
    EARLIER = "an earlier episode"
    """Further episodes would have to wait for its commit."""


@dataclass(frozen=True, slots=True)
class Surroundings:
    """State that changes also between the begins and ends of episodes: cost and backends."""

    paid: Cost
    """Total cost, including episodes in flight, interrupted episodes and earlier processes."""
    budget: Budget | None = None
    retries: int = 0
    """Number of retries in this process and its workers."""
    troubles: tuple[str, ...] = ()
    """Clauses about backends that are down or let requests wait."""


@dataclass(frozen=True, slots=True)
class Progress:
    """Counts of a run at one moment. In a resumed run they include earlier processes; `elapsed` does not."""

    n: int
    accepted: int
    """Trajectories in trajectories.jsonl: in a fresh run at most `n`, plus the rest of the episode that reaches `n`."""
    kept: int
    """Trajectories of finished episodes that wait for an earlier episode, or are beyond `n`."""
    started: int
    finished: int
    """Episodes that ended, with or without a trajectory."""
    in_flight: int
    failed: int
    """Episodes that ended without a trajectory."""
    scripts_refused: int
    """Scripts of finished episodes that are unreadable or refused by the rules."""
    drafts_refused: int
    """Drafts of finished episodes that the rules or the judge refused."""
    by_rule: Mapping[str, int]
    """Number of rejected scripts and drafts by rule name; a draft that two rules reject counts for both."""
    bad_personas: int
    """Rows without a persona in the part of the source that was read."""
    usage: Usage
    """Tokens and requests of finished episodes."""
    cost_usd: float | None
    """US dollars for finished episodes; None if a model's price is unknown."""
    elapsed: float
    """Seconds since this process began the run."""
    finished_before: int = 0
    """Episodes that earlier processes finished; the present rate is `(finished - finished_before) / elapsed`."""
    accepted_before: int = 0
    """Trajectories of these episodes, waiting ones included."""
    commonest_reason: tuple[str, int] | None = None
    """Most frequent reason of the `failed` episodes, with its count; None without a failed episode."""
    last_reason: str | None = None
    """Reason of the last failed episode."""
    bound: LimitingFactor | None = None
    """Factor that limits the episodes in flight; None while an episode is being started, or without further personas."""
    surroundings: Callable[[], Surroundings] | None = field(default=None, compare=False)
    """Returns the present cost and the state of the backends; None if unknown."""

    @property
    def gained(self) -> int:
        """Trajectories of all finished episodes."""
        return self.accepted + self.kept

    def look(self) -> Surroundings:
        """Return cost and backends; without `surroundings`, only the cost of finished episodes."""
        if self.surroundings is not None:
            return self.surroundings()
        return Surroundings(paid=Cost(usage=self.usage, cost_usd=self.cost_usd))

    def __str__(self) -> str:
        """Return one line with the counts and the troubles of servers: `3/10 accepted, 7 in flight, 1 gave none`."""
        kept = f", {self.kept:,} kept for later" if self.kept else ""
        counts = f"{self.accepted:,}/{self.n:,} accepted{kept}, {self.in_flight:,} in flight, {self.failed:,} gave none"
        return "; ".join([counts, *(one_line(trouble, size=200) for trouble in self.look().troubles)])


@dataclass(frozen=True, slots=True)
class BackendsState:
    """State of the backends as seen by one block of a run, or by all blocks together."""

    retries: int = 0
    troubles: tuple[str, ...] = ()
    """Clauses about backends that are down or let requests wait."""
    capacity: int = 0
    """Number of requests that the servers admit at once, as far as known."""
    in_flight: int = 0


@dataclass(frozen=True)
class StatusProbe:
    tracker: "BudgetTracker"
    counts: "RequestCounts"
    models: "Callable[[], Mapping[Any, Any]]"
    """Returns the models by role; not called before the first request."""
    workers_state: Callable[[], BackendsState] = BackendsState

    def read(self) -> Surroundings:
        budget, workers = self.tracker.budget, self.workers_state()
        return Surroundings(
            paid=self.tracker.spent,
            budget=None if budget.usd is None and budget.tokens is None else budget,
            retries=self.counts.retried + workers.retries,
            troubles=(*troubles_of(self.limiters()), *workers.troubles),
        )

    def limiters(self) -> "Sequence[RateLimiter]":
        """Return the limiters of the servers that this process has used."""
        from refinesynth.client.routing import limiters_in

        return limiters_in(self.models().values()) if self.counts.begun else ()


def capacity_of(limiters: "Iterable[RateLimiter]") -> int:
    """Return the number of requests admitted at once, over the servers that have answered and are not down."""
    return sum(limiter.max_in_flight or 0 for limiter in limiters if limiter.has_answered and not limiter.is_down)


def troubles_of(limiters: "Iterable[RateLimiter]") -> list[str]:
    """Return a clause for each backend that is down or lets requests wait."""
    return [clause for limiter in limiters if (clause := trouble_of(limiter, now=time.monotonic())) is not None]


def trouble_of(limiter: "RateLimiter", *, now: float) -> str | None:
    """Return a clause if the backend is down or lets requests wait, else None; `now` is on the limiter's clock."""
    breaker, held_until = limiter.breaker, limiter.held_until
    if breaker.down_since is not None:
        reason = f" ({breaker.fault.message})" if breaker.fault else ""
        consequence = "the run waits for it" if breaker.waits_for_outages else "the fallback is asked"
        return f"{limiter.name} has been down for {_seconds(now - breaker.down_since)}; {consequence}{reason}"
    if breaker.fault is not None and not limiter.has_answered:
        return f"{breaker.fault.message}; it has not answered yet"
    if held_until is not None and held_until > now:
        return f"{limiter.name} asks for a pause of {_seconds(held_until - now)}"
    if limiter.waiting and limiter.max_in_flight is not None:
        return f"{limiter.name} is given {limiter.max_in_flight:,} requests at once, {limiter.waiting:,} wait"
    return None


def _seconds(seconds: float) -> str:
    rounded = math.ceil(seconds)
    return f"{rounded} s" if rounded < 120 else f"{rounded // 60} min"  # noqa: PLR2004
