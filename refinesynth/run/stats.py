"""Counts of a run: sums over its finished episodes, updated by commits and read by everything that shows a run; and
its spending by role, model and result.
"""

import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self, cast

from pydantic import BaseModel, Field, model_validator

from refinesynth.cost import Cost
from refinesynth.journal import SpentRow
from refinesynth.journal.journal_values import ESTIMATED, model_of
from refinesynth.outcome import Refused
from refinesynth.run.completed_episode import EpisodeLine, EpisodeStats, JournalModel, of_earlier, refusals_by_rule
from refinesynth.trajectory import Persona, Trajectory, Usage
from refinesynth.trajectory.positions import TENTHS, summed

REASON = 300
"""Characters of a reason that are kept."""
_KEPT = 16
"""Distinct reasons that are kept. The rarest gives way to a new one, so a count may be too low."""
_OF_ONE_EPISODE = re.compile(r"'[^']*'|\"[^\"]*\"|\d[\d,.]*")
"""Names, quoted words and numbers, which differ between episodes with the same reason."""


_RULE = re.compile(r"\b([A-Z]\w*)\(")


class TrajectoryStats(BaseModel, extra="forbid"):
    """Sums of `EpisodeStats`, of constant size."""

    trajectories: int = 0
    turns: Counter[int] = Field(default_factory=Counter[int])
    """Number of turns to trajectories."""
    steps: Counter[int] = Field(default_factory=Counter[int])
    """Length of the shortest solution to trajectories."""
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

    _read_earlier = model_validator(mode="before")(of_earlier)

    def add(self, one: EpisodeStats) -> None:
        self.trajectories += len(one.turns)
        self.tenths = summed((self.tenths, one.tenths or (0.0,) * TENTHS))
        for name in _SUMMED:
            known, more = getattr(self, name), getattr(one, name)
            if isinstance(known, Counter):
                cast("Counter[object]", known).update(more)
            else:
                setattr(self, name, known + more)

    @property
    def written(self) -> int:
        """Scripts that were refused or played."""
        return self.passed + self.stopped.total()


_SUMMED = TrajectoryStats.model_fields.keys() & EpisodeStats.model_fields.keys() - {"tenths"}
"""Counts of the same name in both."""


def in_order(chain: str) -> list[str]:
    """Return the names of the rules in a chain's text, each once, in their order."""
    return list(dict.fromkeys(_RULE.findall(chain)))


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


@dataclass(frozen=True, kw_only=True)
class Spending:
    """Everything that was paid, split twice: by who took it, and by what came of it. Each split adds up to `total`."""

    by_role: Mapping[str, Cost]
    by_model: Mapping[str, Cost]
    kept: Cost
    """For trajectories in the files: their scripts, and the turns in them."""
    wasted: Mapping[str, Cost]
    """Rule name to the cost of scripts and drafts that it refused, see `Refused.usage`; several rules share the
    cost."""
    fruitless: Cost
    """For episodes without a trajectory, beside what rules wasted."""
    estimated: Cost
    """Part of `total` whose tokens are estimated, because the server did not report them."""
    unneeded: Cost
    """For episodes that are in no file (in flight, broken off, waiting, or more than needed), and for second
    sendings of a request by earlier versions."""

    cost_usd: float | None
    """US dollars in all; None where a price is unknown."""

    @classmethod
    def of(cls, rows: Sequence[SpentRow], totals: RunStats) -> "Spending":
        """Make it from the journal's sums, and the sums over the episodes in the files."""
        wasted = sum(totals.wasted.values(), Cost())
        total = sum(map(spent_of, rows), Cost()) if rows else totals.spent
        return cls(
            by_role=_by(rows, lambda row: row.role),
            by_model=_by(rows, lambda row: model_of(row.model)),
            kept=totals.spent - wasted - totals.fruitless,
            wasted=dict(totals.wasted),
            fruitless=totals.fruitless,
            estimated=sum((spent_of(row) for row in rows if ESTIMATED in row.model), Cost()),
            unneeded=total - totals.spent,
            cost_usd=None if total.cost_usd is None else sum((row.cost_usd for row in rows), 0.0),
        )

    def cost_per_accepted(self, accepted: int) -> float | None:
        """Return US dollars per accepted trajectory, waste included; None before the first, or if unknown."""
        return None if self.cost_usd is None or not accepted else self.cost_usd / accepted

    @property
    def total(self) -> Cost:
        return sum(self.wasted.values(), Cost()) + self.kept + self.fruitless + self.unneeded

    def as_json(self) -> dict[str, Any]:
        def one(spent: Cost | Mapping[str, Cost]) -> dict[str, Any]:
            if isinstance(spent, Cost):
                return {**spent.usage.model_dump(), "cost_usd": spent.cost_usd}
            return {name: one(part) for name, part in spent.items()}

        names = ("total", "by_role", "by_model", "kept", "wasted", "fruitless", "unneeded", "estimated")
        return {"wasted_by_rule" if name == "wasted" else name: one(getattr(self, name)) for name in names}


def spent_of(row: SpentRow) -> Cost:
    """Return one of the journal's sums as a cost."""
    usage = Usage.model_validate({name: getattr(row, name) for name in Usage.model_fields})
    return Cost(usage=usage, cost_usd=None if row.unpriced else row.cost_usd)


def _by(rows: Iterable[SpentRow], name: Callable[[SpentRow], str]) -> dict[str, Cost]:
    sums: dict[str, Cost] = {}
    for row in rows:
        sums[name(row)] = sums.get(name(row), Cost()) + spent_of(row)
    return sums
