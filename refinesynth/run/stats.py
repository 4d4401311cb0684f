"""Counts of a run: sums over its finished episodes, updated by commits; and its spending by role, model and result."""

import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self, cast

from pydantic import BaseModel, Field

from refinesynth.journal import SpentRow
from refinesynth.journal.journal_values import ESTIMATED, model_of
from refinesynth.outcome import Cost, Refused
from refinesynth.run.completed_episode import EpisodeLine, EpisodeStats, JournalModel, refusals_by_rule
from refinesynth.trajectory import Persona, Trajectory, Usage
from refinesynth.trajectory.turns import TENTHS, summed

MAX_REASON_CHARS = 300
"""Maximum length of a stored reason, in characters."""
_MAX_REASONS = 16
"""Maximum number of distinct reasons. A new one replaces the rarest, thus a count may be too low."""
_EPISODE_DETAILS = re.compile(r"'[^']*'|\"[^\"]*\"|\d[\d,.]*")
"""Quoted text and numbers, which differ between episodes with the same reason."""


_RULE = re.compile(r"\b([A-Z]\w*)\(")


class TrajectoryStats(BaseModel, extra="forbid"):
    """Sums of `EpisodeStats`, of constant size."""

    trajectories: int = 0
    turns: Counter[int] = Field(default_factory=Counter[int])
    """Number of trajectories by number of turns."""
    steps: Counter[int] = Field(default_factory=Counter[int])
    """Number of trajectories by length of the shortest solution, in actions."""
    features: Counter[str] = Field(default_factory=Counter[str])
    mistakes: Counter[str] = Field(default_factory=Counter[str])
    refinements: int = 0
    abandoned: int = 0
    unanswered: int = 0
    longer: Counter[str] = Field(default_factory=Counter[str])
    repaired: Counter[str] = Field(default_factory=Counter[str])
    repair_turns: Counter[str] = Field(default_factory=Counter[str])
    tenths: tuple[float, ...] = (0.0,) * TENTHS
    clean: int = 0
    transient: int = 0
    plain: int = 0
    salvaged: Counter[str] = Field(default_factory=Counter[str])
    stopped: Counter[str] = Field(default_factory=Counter[str])
    passed: int = 0

    def add(self, stats: EpisodeStats) -> None:
        self.trajectories += len(stats.turns)
        self.tenths = summed((self.tenths, stats.tenths or (0.0,) * TENTHS))
        for name in _SUMMED:
            total, added = getattr(self, name), getattr(stats, name)
            if isinstance(total, Counter):
                cast("Counter[object]", total).update(added)
            else:
                setattr(self, name, total + added)

    @property
    def scripts_written(self) -> int:
        """Number of scripts that were refused or played."""
        return self.passed + self.stopped.total()


_SUMMED = TrajectoryStats.model_fields.keys() & EpisodeStats.model_fields.keys() - {"tenths"}
"""Names of the counts in both classes."""


def rule_names(chain: str) -> list[str]:
    """Return the distinct names of the rules in a chain's text, in their order."""
    return list(dict.fromkeys(_RULE.findall(chain)))


class RunStats(JournalModel):
    """Sums over finished episodes, of constant size."""

    episodes: int = 0
    accepted: int = 0
    fruitful: int = 0
    """Episodes with a trajectory."""
    lost: int = 0
    """Episodes without a trajectory because the backend failed or the deadline passed."""
    scripts_refused: int = 0
    drafts_refused: int = 0
    by_rule: Counter[str] = Field(default_factory=Counter[str])
    violations: Counter[str] = Field(default_factory=Counter[str])
    usage: Usage = Usage()
    cost_usd: float | None = 0.0
    """US dollars; None if the cost of an episode is unknown."""
    wasted: dict[str, Cost] = Field(default_factory=dict[str, Cost])
    """Wasted cost by rejecting rule."""
    fruitless: Cost = Cost()
    """Cost of episodes without a trajectory, less `wasted`."""
    figures: TrajectoryStats = Field(default_factory=TrajectoryStats)
    last_reason: str | None = None
    """Reason of the last episode without a trajectory, shortened."""
    reasons: Counter[str] = Field(default_factory=Counter[str])
    """Number of episodes without a trajectory by reason."""

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
            self._note_reason(line.reason)

    def with_lines(self, lines: Iterable[EpisodeLine]) -> Self:
        """Return a copy with these episodes added."""
        stats = self.model_copy(deep=True)
        for line in lines:
            stats.add(line)
        return stats

    def correct(self, before: EpisodeLine, after: EpisodeLine) -> None:
        """Correct the counts of trajectories and refusals for a curated episode; costs and `figures` stay."""
        self.accepted += after.trajectories - before.trajectories
        self.fruitful += after.accepted - before.accepted
        self.scripts_refused += after.scripts_refused - before.scripts_refused
        self.drafts_refused += after.drafts_refused - before.drafts_refused
        self.by_rule.update(after.by_rule)
        self.by_rule.subtract(before.by_rule)
        if before.accepted and not after.accepted:
            self._note_reason(after.reason)

    def _note_reason(self, reason: str | None) -> None:
        self.last_reason = None if reason is None else reason[:MAX_REASON_CHARS]
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
        """Count the lines of a run without a journal; failed episodes, tokens and costs are unknown."""
        stats = cls(cost_usd=None)
        previous: tuple[int, Persona] | None = None
        for trajectory in accepted:
            stats.accepted += 1
            stats.figures.add(EpisodeStats.of_records([trajectory]))
            # The trajectories of one episode are consecutive.
            episode = trajectory.provenance.seed, trajectory.persona
            stats.fruitful += episode != previous
            previous = episode
        stats.episodes = stats.fruitful
        for attempt in refused:
            stats.scripts_refused += attempt.stage == "script"
            stats.drafts_refused += attempt.stage == "draft"
            stats.by_rule.update(refusals_by_rule([attempt]))
            stats.violations.update(violation.rule for violation in attempt.violations)
        return stats


def count_reason(counts: Counter[str], reason: str) -> None:
    """Count a reason; similar reasons count under the first of them."""
    reason = reason[:MAX_REASON_CHARS]
    shape = _EPISODE_DETAILS.sub("", reason)
    known = next((text for text in counts if _EPISODE_DETAILS.sub("", text) == shape), None)
    if known is None and len(counts) >= _MAX_REASONS:
        del counts[min(counts, key=counts.__getitem__)]
    counts[known or reason] += 1


@dataclass(frozen=True, kw_only=True)
class Spending:
    """Cost of a run by role, by model and by result. With a journal, each split adds up to `total`."""

    by_role: Mapping[str, Cost]
    by_model: Mapping[str, Cost]
    kept: Cost
    """Cost of the trajectories in the files: of their scripts and their turns."""
    wasted: Mapping[str, Cost]
    """Cost of refused scripts and drafts by rule name, as defined for `Refused.usage`; several rules share a cost."""
    fruitless: Cost
    """Cost of episodes without a trajectory, less `wasted`."""
    estimated: Cost
    """Part of `total` with estimated tokens, because the server did not report them."""
    unneeded: Cost
    """Cost of episodes that are in no file: in flight, interrupted, waiting, or beyond `n`."""

    cost_usd: float | None
    """Total in US dollars; None if a price is unknown."""

    @classmethod
    def of(cls, rows: Sequence[SpentRow], totals: RunStats) -> "Spending":
        """Make it from the journal's sums per role and model, and from the sums over the episodes in the files."""
        wasted = sum(totals.wasted.values(), Cost())
        total = sum(map(spent_of, rows), Cost()) if rows else totals.spent
        return cls(
            by_role=_sum_by(rows, lambda row: row.role),
            by_model=_sum_by(rows, lambda row: model_of(row.model)),
            kept=totals.spent - wasted - totals.fruitless,
            wasted=dict(totals.wasted),
            fruitless=totals.fruitless,
            estimated=sum((spent_of(row) for row in rows if ESTIMATED in row.model), Cost()),
            unneeded=total - totals.spent,
            cost_usd=None if total.cost_usd is None else sum((row.cost_usd for row in rows), 0.0),
        )

    def cost_per_accepted(self, accepted: int) -> float | None:
        """Return US dollars per accepted trajectory, waste included; None without trajectories, or if unknown."""
        return None if self.cost_usd is None or not accepted else self.cost_usd / accepted

    @property
    def total(self) -> Cost:
        return sum(self.wasted.values(), Cost()) + self.kept + self.fruitless + self.unneeded

    def as_json(self) -> dict[str, Any]:
        def as_dict(spent: Cost | Mapping[str, Cost]) -> dict[str, Any]:
            if isinstance(spent, Cost):
                return {**spent.usage.model_dump(), "cost_usd": spent.cost_usd}
            return {name: as_dict(part) for name, part in spent.items()}

        names = ("total", "by_role", "by_model", "kept", "wasted", "fruitless", "unneeded", "estimated")
        return {"wasted_by_rule" if name == "wasted" else name: as_dict(getattr(self, name)) for name in names}


def spent_of(row: SpentRow) -> Cost:
    """Return a row of the journal's sums as a cost."""
    usage = Usage.model_validate({name: getattr(row, name) for name in Usage.model_fields})
    return Cost(usage=usage, cost_usd=None if row.unpriced else row.cost_usd)


def _sum_by(rows: Iterable[SpentRow], name: Callable[[SpentRow], str]) -> dict[str, Cost]:
    sums: dict[str, Cost] = {}
    for row in rows:
        sums[name(row)] = sums.get(name(row), Cost()) + spent_of(row)
    return sums
