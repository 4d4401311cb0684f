"""Where a run stands."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from refinesynth.client.budget.budget import Budget
from refinesynth.cost import Cost
from refinesynth.text.printable import one_line
from refinesynth.trajectory import Usage


class Bound(StrEnum):
    """What keeps a run from having more episodes in flight."""

    SERVER = "the server"
    RATE = "a rate limit"
    BUDGET = "the budget"
    MEMORY = "memory"
    ASKED = "concurrency"
    MISSING = "what is still missing"
    """No more are needed for the trajectories that are not there yet."""
    EARLIER = "an earlier episode"
    """All others would have to wait for it to be committed."""
    READER = "whoever takes the trajectories"


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What changes also while no episode begins or ends: the bill, and how the backends are."""

    paid: Cost
    """In all: episodes in flight, broken-off ones and earlier processes included."""
    budget: Budget | None = None
    """What may be paid; None without limit."""
    retries: int = 0
    """Attempts of this process after a first one that failed."""
    troubles: tuple[str, ...] = ()
    """Backends that are down or let requests wait, each in a clause."""


@dataclass(frozen=True, slots=True)
class Progress:
    """One moment of a run. On a resumed run the counts include what was there already; `elapsed` does not."""

    n: int
    """Accepted trajectories asked for."""
    accepted: int
    """Trajectories in trajectories.jsonl. In a fresh run no more than `n`, but for what the episode with which it is
    reached gives beyond: that one is kept whole."""
    kept: int
    """Trajectories of finished episodes that are kept for later: they wait for an earlier episode, or are beyond `n`."""
    started: int
    """Personas that were started."""
    finished: int
    """Episodes that came to an end, accepted or not."""
    in_flight: int
    """Episodes that are being played now: `started - finished`."""
    failed: int
    """Episodes that ended without a trajectory."""
    scripts_refused: int
    """Scripts that the rules refused or that could not be read, in finished episodes."""
    drafts_refused: int
    """Drafts that the rules or the judge refused, in finished episodes."""
    by_rule: Mapping[str, int]
    """Rule name to the refused scripts and drafts that it rejected; one that two rules rejected counts for both."""
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
    """Trajectories of those, the ones that are kept for later included."""
    commonest_reason: tuple[str, int] | None = None
    """Why most of the `failed` episodes gave none, and how many those are; None while there are none."""
    last_reason: str | None = None
    """Why the last of them gave none."""
    bound: Bound | None = None
    """What keeps more episodes from being in flight; None while another is being begun, or there are no personas
    left."""
    surroundings: Callable[[], Surroundings] | None = field(default=None, compare=False)
    """Looks at what is around the run now, at the time of the call; None where there is nothing to look at."""

    @property
    def gained(self) -> int:
        """Trajectories of all finished episodes."""
        return self.accepted + self.kept

    def look(self) -> Surroundings:
        """What is around the run now; what finished episodes took, if nothing more is known."""
        if self.surroundings is not None:
            return self.surroundings()
        return Surroundings(paid=Cost(usage=self.usage, cost_usd=self.cost_usd))

    def __str__(self) -> str:
        """The moment on one line, with any text of servers: `3/10 accepted, 7 in flight, 1 gave none`."""
        kept = f", {self.kept:,} kept for later" if self.kept else ""
        counts = f"{self.accepted:,}/{self.n:,} accepted{kept}, {self.in_flight:,} in flight, {self.failed:,} gave none"
        return "; ".join([counts, *(one_line(trouble, most=200) for trouble in self.look().troubles)])
