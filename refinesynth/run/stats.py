"""Counts of a run: sums over its finished episodes, updated by commits and read by everything that shows a run."""

import re
from collections import Counter
from collections.abc import Iterable
from typing import Self

from pydantic import Field

from refinesynth.cost import Cost
from refinesynth.outcome import Refused
from refinesynth.run.completed_episode import EpisodeLine, JournalModel, refusals_by_rule
from refinesynth.run.trajectory_stats import EpisodeStats, TrajectoryStats
from refinesynth.trajectory import Persona, Trajectory, Usage

REASON = 300
"""Characters of a reason that are kept."""
_KEPT = 16
"""Distinct reasons that are kept. The rarest gives way to a new one, so a count may be too low."""
_OF_ONE_EPISODE = re.compile(r"'[^']*'|\"[^\"]*\"|\d[\d,.]*")
"""Names, quoted words and numbers, which differ between episodes with the same reason."""


class RunStats(JournalModel):
    """Sums over finished episodes, of constant size."""

    episodes: int = 0
    accepted: int = 0
    fruitful: int = Field(default_factory=lambda fields: fields["accepted"])
    """Episodes that gave a trajectory; absent in sums from before there could be several."""
    lost: int = 0
    """Episodes without one because their backend failed or their deadline passed."""
    scripts_refused: int = 0
    drafts_refused: int = 0
    by_rule: Counter[str] = Field(default_factory=Counter[str])
    violations: Counter[str] = Field(default_factory=Counter[str])
    usage: Usage = Usage()
    cost_usd: float | None = 0.0
    """US dollars; None as soon as the cost of one episode is unknown."""
    wasted: dict[str, Cost] = Field(default_factory=dict[str, Cost])
    """Rule name to the cost of what it refused."""
    fruitless: Cost = Cost()
    """Cost of episodes without a trajectory, beside what rules wasted."""
    figures: TrajectoryStats = Field(default_factory=TrajectoryStats)
    last_reason: str | None = None
    """Reason of the last episode without a trajectory, shortened."""
    reasons: Counter[str] = Field(default_factory=Counter[str])
    """Reason to the episodes without a trajectory; empty in sums of earlier versions."""

    def add(self, line: EpisodeLine) -> None:
        self.episodes += 1
        self.accepted += line.trajectories
        self.fruitful += line.accepted
        self.lost += line.lost
        self.scripts_refused += line.scripts_refused
        self.drafts_refused += line.drafts_refused
        self.by_rule.update(line.by_rule)
        self.violations.update(line.violations)
        self.usage += line.usage
        self.cost_usd = None if self.cost_usd is None or line.cost_usd is None else self.cost_usd + line.cost_usd
        self.figures.add(line.figures)
        for rule, spent in line.wasted.items():
            self.wasted[rule] = self.wasted.get(rule, Cost()) + spent
        if not line.accepted:
            self.fruitless += line.spent - sum(line.wasted.values(), Cost())
            self._note(line.reason)

    def with_lines(self, lines: Iterable[EpisodeLine]) -> Self:
        """Return a copy with more episodes."""
        stats = self.model_copy(deep=True)
        for line in lines:
            stats.add(line)
        return stats

    def correct(self, before: EpisodeLine, after: EpisodeLine) -> None:
        """Count an episode as `after`, which curation made of `before`."""
        self.accepted += after.trajectories - before.trajectories
        self.fruitful += after.accepted - before.accepted
        self.scripts_refused += after.scripts_refused - before.scripts_refused
        self.drafts_refused += after.drafts_refused - before.drafts_refused
        self.by_rule.update(after.by_rule)
        self.by_rule.subtract(before.by_rule)
        if before.accepted and not after.accepted:
            self._note(after.reason)

    def _note(self, reason: str | None) -> None:
        self.last_reason = None if reason is None else reason[:REASON]
        if reason is not None:
            count_reason(self.reasons, reason)

    @property
    def failed(self) -> int:
        """Episodes without a trajectory."""
        return self.episodes - self.fruitful

    @property
    def commonest_reason(self) -> tuple[str, int] | None:
        """Most frequent reason of episodes without a trajectory, with its count; None if unknown."""
        return next(iter(self.reasons.most_common(1)), None)

    @property
    def spent(self) -> Cost:
        return Cost(usage=self.usage, cost_usd=self.cost_usd)

    @classmethod
    def counted(cls, *, accepted: Iterable[Trajectory], refused: Iterable[Refused]) -> Self:
        """Count a run whose journal is missing: nothing is known of failed episodes, tokens and costs."""
        stats = cls(cost_usd=None)
        before: tuple[int, Persona] | None = None
        for trajectory in accepted:
            stats.accepted += 1
            stats.figures.add(EpisodeStats.of_records([trajectory]))
            # Those of one episode follow on each other.
            episode = trajectory.provenance.seed, trajectory.persona
            stats.fruitful += episode != before
            before = episode
        stats.episodes = stats.fruitful
        for item in refused:
            stats.scripts_refused += item.stage == "script"
            stats.drafts_refused += item.stage == "draft"
            stats.by_rule.update(refusals_by_rule([item]))
            stats.violations.update(found.rule for found in item.violations)
        return stats


def count_reason(counts: Counter[str], reason: str) -> None:
    """Count one more reason; similar ones are counted under the first of them."""
    reason = reason[:REASON]
    shape = _shape(reason)
    known = next((one for one in counts if _shape(one) == shape), None)
    if known is None and len(counts) >= _KEPT:
        del counts[min(counts, key=counts.__getitem__)]
    counts[known or reason] += 1


def _shape(reason: str) -> str:
    return _OF_ONE_EPISODE.sub("", reason)
