"""Tables of a comparison, and the paper's main table as published (AgentRefine, ICLR 2025).

Values are fractions from 0 to 1; their texts are percentages with one decimal.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Final

from refinesynth._version import __version__
from refinesynth.text.formatting import plain_text

NOTHING = "-"
_MIN_P = 0.001


def _percent(share: float | None, sign: str = "") -> str:
    return NOTHING if share is None else f"{100 * share:{sign}.1f}"


@dataclass(frozen=True)
class Share:
    """A rate, or a mean without interval; None if undefined."""

    value: float | None

    def __str__(self) -> str:
        return _percent(self.value)


@dataclass(frozen=True)
class Number:
    """A mean that is not a share."""

    value: float | None

    def __str__(self) -> str:
        return NOTHING if self.value is None else f"{self.value:.1f}"


@dataclass(frozen=True)
class Estimate:
    """A mean over instances of their means over epochs."""

    sign: ClassVar[str] = ""

    mean: float
    low: float | None = None
    """Lower bound of the 95 % bootstrap interval over instances; None if all instances have the same value."""
    high: float | None = None

    def __str__(self) -> str:
        mean, low, high = (_percent(share, self.sign) for share in (self.mean, self.low, self.high))
        return f"{mean} [{NOTHING if self.low is None else f'{low}, {high}'}]"


@dataclass(frozen=True)
class Change(Estimate):
    """A mean of differences."""

    sign: ClassVar[str] = "+"


@dataclass(frozen=True)
class PValue:
    """The p value of a test."""

    p: float
    test: str

    def __str__(self) -> str:
        return f"<{_MIN_P}" if self.p < _MIN_P else f"{self.p:.3f}"


@dataclass(frozen=True)
class MeanAndDeviation:
    """A mean over perturbations, with the population and the sample standard deviation."""

    mean: float
    population: float
    """Standard deviation with the divisor n."""
    sample: float | None
    """Standard deviation with the divisor n - 1; None for a single perturbation."""

    def __str__(self) -> str:
        return f"{_percent(self.mean)} ± {_percent(self.population)}, {_percent(self.sample)}"


@dataclass(frozen=True)
class Pair:
    success: float
    progress: float
    held_in: bool = field(default=False, kw_only=True)
    """True if the method was trained on the task's training split."""

    def __str__(self) -> str:
        return f"{_percent(self.success)}/{_percent(self.progress)}{'†' if self.held_in else ''}"


Cell = str | int | Share | Number | Estimate | PValue | MeanAndDeviation | Pair


@dataclass(frozen=True)
class Table:
    """A table with untrusted names."""

    name: str
    title: str
    columns: tuple[str, ...]
    labels: int
    """Number of leading columns that label a row."""
    rows: Sequence[tuple[Cell, ...]]
    notes: Sequence[str] = ()

    def texts(self) -> Iterator[tuple[str, ...]]:
        return (tuple(map(str, row)) for row in self.rows)


@dataclass(frozen=True)
class Comparison:
    """Comparison of evaluations."""

    models: Mapping[str, str]
    tables: Sequence[Table]
    """main, scores, further, differences, levels, grid, perturbations and behaviour; tables without rows are left out."""
    warnings: Sequence[str] = ()
    """Reasons why figures are incomplete or hard to compare."""

    def as_json(self) -> dict[str, Any]:
        """The whole comparison with unrounded figures."""
        rows = {table.name: [dict(zip(table.columns, row, strict=True)) for row in table.rows] for table in self.tables}
        return {"refinesynth": __version__, "models": self.models, "tables": rows, "warnings": self.warnings}

    def as_markdown(self, *, picture: bool = False) -> str:
        """The whole comparison as Markdown, with `compare.png` on top if `picture`."""
        models = [f"- {plain_text(f'{name}: {model}')}" for name, model in self.models.items()]
        lines = ["# Comparison", "", *models, ""]
        lines += ["![Scores](compare.png)", ""] if picture else []
        for table in self.tables:
            align = "".join("| --- " if index < table.labels else "| ---: " for index in range(len(table.columns)))
            header, *rows = (f"| {' | '.join(map(plain_text, row))} |" for row in (table.columns, *table.texts()))
            lines += [f"## {plain_text(table.title)}", "", header, f"{align}|", *rows, ""]
            lines += [*(f"- {plain_text(note)}" for note in table.notes), ""]
        if self.warnings:
            lines += ["## Warnings", "", *(f"- {plain_text(warning)}" for warning in self.warnings), ""]
        return "\n".join(lines)


_FACTS: Final[Any] = json.loads(Path(__file__).with_name("published.json").read_text(encoding="utf-8"))

INSTANCES: Final[Mapping[str, int]] = _FACTS["instances"]
"""Benchmark to its number of instances, in the order of the table's columns."""

HELD_OUT: Final = ("babyai", "scienceworld", "pddl", "jericho")
"""Tasks of the held-out score: all but ALFWorld, on whose training split other methods were trained."""

HELD_OUT_TASK: Final = "held-out"
"""Name of the held-out score among tasks."""

_TOTAL: Final = sum(INSTANCES[task] for task in HELD_OUT)
WEIGHTS: Final[Mapping[str, float]] = {task: INSTANCES[task] / _TOTAL for task in HELD_OUT}
"""(112 BabyAI + 90 ScienceWorld + 60 PDDL + 20 Jericho) / 282."""


ROWS: Final[Mapping[str, Mapping[str, Pair]]] = {
    f"{name} (published)": {
        task: Pair(cell[0] / 100, cell[1] / 100, held_in=task in _FACTS["held_in"].get(name, ()))
        for task, cell in zip(INSTANCES, row, strict=True)
        if cell is not None
    }
    for name, row in _FACTS["rows"].items()
}
"""Row to benchmark to the published scores, in the paper's order."""


def held_out_score(cells: Mapping[str, Pair]) -> Pair | None:
    """Held-out score of a row; None if a task is missing."""
    if not cells.keys() >= set(HELD_OUT):
        return None
    success = sum(WEIGHTS[task] * cells[task].success for task in HELD_OUT)
    progress = sum(WEIGHTS[task] * cells[task].progress for task in HELD_OUT)
    return Pair(success, progress, held_in=any(cells[task].held_in for task in HELD_OUT))


def main_table(own_rows: Mapping[str, Mapping[str, Pair]], *, paper: bool) -> Table:
    """Main table: the paper's rows if `paper`, then our rows."""
    rows: list[tuple[Cell, ...]] = []
    notes: list[str] = []
    for name, cells in (*(ROWS.items() if paper else ()), *own_rows.items()):
        rows.append((name, *(cells.get(task, NOTHING) for task in INSTANCES), held_out_score(cells) or NOTHING))
        if missing := [task for task in HELD_OUT if task not in cells]:
            notes.append(f"{HELD_OUT_TASK} of {name} needs {', '.join(missing)}")
    notes += ["† the method had seen the training split of this task, or of one in the held-out score"] * paper
    return Table("main", "Success/progress, %", ("evaluation", *INSTANCES, HELD_OUT_TASK), 1, rows, notes)
