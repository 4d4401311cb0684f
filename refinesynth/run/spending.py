"""Where the money of a run went."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from refinesynth.cost import Cost
from refinesynth.journal import SpentRow
from refinesynth.journal.values import ESTIMATED, model_of
from refinesynth.run.stats import RunStats
from refinesynth.trajectory import Usage


@dataclass(frozen=True, kw_only=True)
class Spending:
    """Everything that was paid, split twice: by who took it, and by what came of it. Either adds up to `total`."""

    by_role: Mapping[str, Cost]
    by_model: Mapping[str, Cost]
    kept: Cost
    """On trajectories in the files: their scripts, and the turns that are in them."""
    wasted: Mapping[str, Cost]
    """Rule name to what was spent on scripts and drafts that it refused, see `Refused.usage`; where several refused
    one, they share it."""
    fruitless: Cost
    """On episodes that gave no trajectory, beside what rules wasted: scripts that were never played to an end, answers
    without use."""
    estimated: Cost
    """Of `total`, the completions whose tokens are estimated, because the server did not report them."""
    unneeded: Cost
    """On episodes that are in no file: in flight, broken off, waiting for an earlier one, or more than were needed;
    and on second sendings of a request, which earlier versions made."""

    @classmethod
    def of(cls, rows: Sequence[SpentRow], totals: RunStats) -> "Spending":
        """From what the journal has summed up, and the sums over the episodes in the files."""
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
        )

    @property
    def total(self) -> Cost:
        """Everything."""
        return sum(self.wasted.values(), Cost()) + self.kept + self.fruitless + self.unneeded

    def as_json(self) -> dict[str, Any]:
        """For programs."""

        def one(spent: Cost) -> dict[str, Any]:
            return {**spent.usage.model_dump(), "cost_usd": spent.cost_usd}

        def each(spent: Mapping[str, Cost]) -> dict[str, Any]:
            return {name: one(part) for name, part in spent.items()}

        return {
            "total": one(self.total),
            "by_role": each(self.by_role),
            "by_model": each(self.by_model),
            "kept": one(self.kept),
            "wasted_by_rule": each(self.wasted),
            "fruitless": one(self.fruitless),
            "unneeded": one(self.unneeded),
            "estimated": one(self.estimated),
        }


def spent_of(row: SpentRow) -> Cost:
    """One of the journal's sums."""
    usage = Usage(
        requests=row.requests,
        input_tokens=row.input_tokens,
        cached_tokens=row.cached_tokens,
        output_tokens=row.output_tokens,
    )
    return Cost(usage=usage, cost_usd=None if row.unpriced else row.cost_usd)


def _by(rows: Iterable[SpentRow], name: Callable[[SpentRow], str]) -> dict[str, Cost]:
    sums: dict[str, Cost] = {}
    for row in rows:
        sums[name(row)] = sums.get(name(row), Cost()) + spent_of(row)
    return sums
