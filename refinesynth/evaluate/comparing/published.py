"""The paper's main table as published (AgentRefine, ICLR 2025), its held-out score, and our rows below."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from refinesynth.evaluate.comparing.table_values import NOTHING, Cell, Pair, Table

_FACTS: Final[Any] = json.loads(Path(__file__).with_name("published.json").read_text(encoding="utf-8"))

INSTANCES: Final[Mapping[str, int]] = _FACTS["instances"]
"""Benchmark to its number of instances, in the order of the table's columns."""

HELD_OUT: Final = ("babyai", "scienceworld", "pddl", "jericho")
"""Tasks of the held-out score: all but ALFWorld, whose training split other methods had seen."""

HELD_OUT_TASK: Final = "held-out"
"""Name of the held-out score among tasks."""

_TOTAL: Final = sum(INSTANCES[task] for task in HELD_OUT)
WEIGHTS: Final[Mapping[str, float]] = {task: INSTANCES[task] / _TOTAL for task in HELD_OUT}
"""(112 BabyAI + 90 ScienceWorld + 60 PDDL + 20 Jericho) / 282."""


def _published(row: Sequence[Sequence[float] | None], held_in: Sequence[str]) -> dict[str, Pair]:
    cells = zip(INSTANCES, row, strict=True)
    return {
        task: Pair(cell[0] / 100, cell[1] / 100, held_in=task in held_in) for task, cell in cells if cell is not None
    }


ROWS: Final[Mapping[str, Mapping[str, Pair]]] = {
    f"{name} (published)": _published(row, _FACTS["held_in"].get(name, ())) for name, row in _FACTS["rows"].items()
}
"""Row to benchmark to the published scores, in the paper's order."""


def held_out(cells: Mapping[str, Pair]) -> Pair | None:
    """Held-out score of a row; None where a task is missing."""
    if not cells.keys() >= set(HELD_OUT):
        return None
    success = sum(WEIGHTS[task] * cells[task].success for task in HELD_OUT)
    progress = sum(WEIGHTS[task] * cells[task].progress for task in HELD_OUT)
    return Pair(success, progress, held_in=any(cells[task].held_in for task in HELD_OUT))


def main_table(ours: Mapping[str, Mapping[str, Pair]], *, paper: bool) -> Table:
    """The paper's main table if `paper`, with our rows below."""
    rows: list[tuple[Cell, ...]] = []
    notes: list[str] = []
    for name, cells in (*(ROWS.items() if paper else ()), *ours.items()):
        rows.append((name, *(cells.get(task, NOTHING) for task in INSTANCES), held_out(cells) or NOTHING))
        if needs := [task for task in HELD_OUT if task not in cells]:
            notes.append(f"{HELD_OUT_TASK} of {name} needs {', '.join(needs)}")
    notes += ["† the method had seen the training split of this task, or of one in the held-out score"] * paper
    return Table("main", "Success/progress, %", ("evaluation", *INSTANCES, HELD_OUT_TASK), 1, rows, notes)
