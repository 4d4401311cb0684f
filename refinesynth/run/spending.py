"""Spending of a run, by role, model and result."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from refinesynth.cost import Cost
from refinesynth.journal import SpentRow
from refinesynth.journal.journal_values import ESTIMATED, model_of
from refinesynth.run.stats import RunStats
from refinesynth.trajectory import Usage


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
