"""Scores as bars with their intervals."""

from collections.abc import Sequence
from io import BytesIO
from typing import Any

from refinesynth.evaluate.comparing.values import HELD_OUT_TASK, Estimate, Evaluation
from refinesynth.text.printable import one_line

_BAR = 0.24
"""Height of a bar, in inches."""
_TALLEST = 400
"""Inches of a picture at most; Agg refuses more than 65,536 pixels."""
_LONGEST = 40
"""Characters of a name."""


def draw(evaluations: Sequence[Evaluation]) -> bytes:
    """A PNG with one panel for success and one for progress, tasks from top to bottom. Takes matplotlib."""
    # The object interface with the Agg canvas: no display is needed, and pyplot's global state stays a notebook's own.
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    scores = [
        {one.task: one.measures for one in each.tasks} | {HELD_OUT_TASK: each.held_out.measures} for each in evaluations
    ]
    tasks = list(dict.fromkeys(task for found in scores for task, measures in found.items() if measures))
    tasks.sort(key=lambda task: task == HELD_OUT_TASK)
    bars = len(tasks) * (len(scores) + 1)
    height = min(_TALLEST, 1.2 + _BAR * (bars + len(scores)))
    figure: Any = Figure(figsize=(10, height), dpi=120, layout="constrained")
    FigureCanvasAgg(figure)
    panels = figure.subplots(1, 2, sharey=True)
    for panel, measure in zip(panels, ("success", "progress"), strict=True):
        thick = 1 / (len(scores) + 1)
        for at, found in enumerate(scores):
            there = [(row, found[task][measure]) for row, task in enumerate(tasks) if found.get(task)]
            places = [row + (at - (len(scores) - 1) / 2) * thick for row, _ in there]
            means = [100 * one.mean for _, one in there]
            panel.barh(places, means, thick, color=f"C{at % 10}", alpha=0.75)
            reach = _reach([one for _, one in there])
            panel.errorbar(means, places, xerr=reach, fmt="none", ecolor="black", elinewidth=1, capsize=2)
        panel.set(xlim=(0, 100), xlabel=f"{measure} in %, with 95 % interval")
        panel.grid(axis="x", alpha=0.3)
    # Names are no formulas, whatever dollar signs are in them.
    panels[0].set_yticks(range(len(tasks)), [_short(task) for task in tasks], parse_math=False)
    panels[0].set_ylim(len(tasks) - 0.5, -0.5)
    names = [_short(one.name) for one in evaluations]
    legend = figure.legend(panels[0].containers[::2], names, loc="outside upper left", ncols=1)
    for text in legend.get_texts():
        text.set_parse_math(False)
    png = BytesIO()
    figure.savefig(png, format="png", metadata={"Software": None})
    return png.getvalue()


def _reach(found: Sequence[Estimate]) -> tuple[list[float], list[float]]:
    """How far the intervals go to the left and to the right of the mean."""
    left = [100 * (one.mean - (one.mean if one.low is None else one.low)) for one in found]
    right = [100 * ((one.mean if one.high is None else one.high) - one.mean) for one in found]
    return [max(0.0, one) for one in left], [max(0.0, one) for one in right]


def _short(name: str) -> str:
    return one_line(name, most=_LONGEST)
