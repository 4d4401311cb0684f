"""When a run has seen enough: nothing was accepted, or so little that `n` is out of reach."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Literal, TypeAlias

from refinesynth.client.budget.budget import Budget
from refinesynth.cost import Cost
from refinesynth.run import EpisodeLine, Totals
from refinesynth.settings.run import PATIENCE

_CHANCE = 1e-4
"""How likely a yield may be as low as it is by bad luck alone, where `n` is called out of reach. So small, because it
is asked after every episode."""
_UNJUDGED = 4
"""Times `patience` after which episodes that say nothing of the data count too: a deadline may be too short for all of
them."""
_NEARLY = 0.9
"""Share of `n` that is worth going on for: who asked for 300 and will get 294 wants them."""
_NEGLIGIBLE = 1e-12
_MANY = 10**9
"""Of more, a draw changes nothing, and differences of logarithms lose their last digits."""

Why: TypeAlias = Literal["nothing_accepted", "unreachable"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Yield:
    """What finished episodes have given, in the order in which they are committed."""

    episodes: int = 0
    lost: int = 0
    """Of these, ended by their backend or their deadline, so that they say nothing of the data; see
    `EpisodeOutcome.lost`."""
    fruitful: int = 0
    """Of these, with a trajectory."""
    accepted: int = 0
    """Trajectories."""
    spent: Cost = field(default_factory=Cost)
    tried_again: int = 0
    """Episodes without one that are not among these, because they are played again."""
    spent_before: Cost = field(default_factory=Cost)
    """What those have spent, of `spent`."""

    @classmethod
    def of(cls, totals: Totals, *, tried_again: Sequence[EpisodeLine] = ()) -> "Yield":
        """That of all episodes in these sums, but for those of them that are `tried_again`."""
        return cls(
            episodes=totals.episodes - len(tried_again),
            lost=totals.lost - sum(line.lost for line in tried_again),
            fruitful=totals.fruitful,
            accepted=totals.accepted,
            spent=totals.spent,
            tried_again=len(tried_again),
            spent_before=sum((line.spent for line in tried_again), Cost()),
        )

    def and_of(self, line: EpisodeLine, *, again: bool = False) -> "Yield":
        """This with one more episode; `again` if it is played again."""
        if again:
            return replace(
                self,
                spent=self.spent + line.spent,
                tried_again=self.tried_again + 1,
                spent_before=self.spent_before + line.spent,
            )
        return replace(
            self,
            episodes=self.episodes + 1,
            lost=self.lost + line.lost,
            fruitful=self.fruitful + line.accepted,
            accepted=self.accepted + line.trajectories,
            spent=self.spent + line.spent,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Patience:
    """Says when to stop early. It looks at what is committed and at nothing else, so neither clocks nor workers
    decide.
    """

    n: int
    episodes: int = PATIENCE
    """Without one accepted; as many must have ended before a yield is judged. 0 never stops."""
    per_episode: int = 1
    """Trajectories that an episode may give."""
    personas: int | None = None
    """How many there are at most; None if that is unknown."""
    budget: Budget = field(default_factory=Budget)

    def with_personas(self, more: int) -> "Patience":
        """This, where so many more come."""
        return self if self.personas is None else replace(self, personas=self.personas + more)

    def runs_out(self, seen: Yield) -> Why | None:
        """Why the run should stop after these episodes; None if it should go on.

        That the personas, or the budget at the cost of an episode so far, would not do even if every episode went well
        is no reason: a request for so many means all that there are. Nor is a low yield once most of them are used, or
        where nearly `n` will come.
        """
        judged = seen.episodes - seen.lost
        if not self.episodes or seen.accepted >= self.n:
            return None
        if not seen.accepted:
            enough = judged >= self.episodes or seen.episodes >= _UNJUDGED * self.episodes
            return "nothing_accepted" if enough else None
        remaining = self.remaining(seen)
        if judged < self.episodes or remaining < seen.episodes or remaining == math.inf:
            return None
        if self.n >= self.per_episode * (seen.episodes + remaining) or self.expected(seen) >= _NEARLY * self.n:
            return None
        needed = seen.fruitful + math.ceil((self.n - seen.accepted) / self.per_episode)
        likely = chance_of_so_few(seen.fruitful, of=judged, hits=needed, among=judged + int(remaining))
        return "unreachable" if likely < _CHANCE else None

    def explain(self, seen: Yield) -> str:
        """In a clause, why `runs_out` says so."""
        lost = f" ({seen.lost:,} of them by their backend or their deadline)" if seen.lost else ""
        if not seen.accepted:
            return f"none of the first {seen.episodes:,} episodes gave one{lost}, so the run stopped early (patience {self.episodes:,})"
        within = (
            "the budget"
            if self.personas is None or self.remaining(seen) < self.personas - seen.episodes - seen.tried_again
            else "the personas"
        )
        return (
            f"{seen.fruitful:,} of the first {seen.episodes:,} episodes gave one{lost}, and at this yield {within} will do for about "
            f"{self.expected(seen):,.0f}, so the run stopped early (patience {self.episodes:,})"
        )

    def remaining(self, seen: Yield) -> float:
        """Episodes that can still be played, with the personas that are left and what is left of the budget; infinite
        without either.
        """
        bounds = [math.inf if self.personas is None else float(self.personas - seen.episodes - seen.tried_again)]
        all_of_it, by_these = seen.spent, seen.spent - seen.spent_before
        bounds += [
            (limit - spent) * seen.episodes // each
            for limit, spent, each in (
                (self.budget.usd, all_of_it.cost_usd, by_these.cost_usd),
                (self.budget.tokens, all_of_it.tokens, by_these.tokens),
            )
            if limit is not None and spent and each
        ]
        return max(0.0, min(bounds))

    def expected(self, seen: Yield) -> float:
        """Trajectories in all, at the yield so far."""
        return seen.accepted + self.remaining(seen) * seen.accepted / seen.episodes


def chance_of_so_few(seen: int, *, of: int, hits: int, among: int) -> float:
    """How likely no more than `seen` of `of` that are drawn are hits, where there are so many `hits` among `among`
    (hypergeometric).

    This is Fisher's exact test, on one side: where it is small, there are not so many hits, unless those that were
    drawn first are unlike the others. From the mean on, where it is about a half and more, it is said to be 1. Takes
    about the square root of `of` steps.
    """
    if among > _MANY:
        hits, among = hits * _MANY // among, _MANY
    if hits > among:
        return 0.0
    least = max(0, of - (among - hits))
    if seen < least:
        return 0.0
    if seen >= of * hits / among:
        return 1.0
    term = math.exp(_log_choose(hits, seen) + _log_choose(among - hits, of - seen) - _log_choose(among, of))
    total = term
    for at in range(seen, least, -1):
        # From `at` hits to one less; ever smaller below the mean.
        term *= at * (among - hits - of + at) / ((hits - at + 1) * (of - at + 1))
        total += term
        if term < _NEGLIGIBLE * total:
            break
    return min(1.0, total)


def _log_choose(many: int, few: int) -> float:
    return math.lgamma(many + 1) - math.lgamma(few + 1) - math.lgamma(many - few + 1)
