"""The paper's main table as published (AgentRefine, ICLR 2025), and its held-out score."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

_FACTS: Final[Any] = json.loads(Path(__file__).with_name("published.json").read_text(encoding="utf-8"))

INSTANCES: Final[Mapping[str, int]] = _FACTS["instances"]
"""Benchmark to the number of its instances, in the order of the table's columns."""

HELD_IN: Final[Mapping[str, Sequence[str]]] = _FACTS["held_in"]
"""Row to the benchmarks whose training split the method had seen."""

HELD_OUT: Final = ("babyai", "scienceworld", "pddl", "jericho")
"""Tasks of the held-out score: all but ALFWorld, whose training split other methods had seen."""

_TOTAL: Final = sum(INSTANCES[task] for task in HELD_OUT)
WEIGHTS: Final[Mapping[str, float]] = {task: INSTANCES[task] / _TOTAL for task in HELD_OUT}
"""(112 BabyAI + 90 ScienceWorld + 60 PDDL + 20 Jericho) / 282."""

Cells = Mapping[str, Sequence[float] | None]
"""Benchmark to success and progress in per cent; None where nothing was published."""

ROWS: Final[Mapping[str, Cells]] = {
    name: dict(zip(INSTANCES, row, strict=True)) for name, row in _FACTS["rows"].items()
}
"""In the paper's order."""


def held_out(cells: Cells) -> tuple[float, float] | None:
    """The held-out success and progress of a row, computed from its rounded cells; None where a task is missing."""
    found = [(WEIGHTS[task], cell) for task in HELD_OUT if (cell := cells.get(task)) is not None]
    if len(found) < len(HELD_OUT):
        return None
    return sum(weight * cell[0] for weight, cell in found), sum(weight * cell[1] for weight, cell in found)
