"""The curves of a training as PNG files, drawn from its `metrics.jsonl`."""

from collections.abc import Mapping, Sequence
from io import BytesIO
from pathlib import Path
from typing import Any, Final, NamedTuple

from refinesynth.files.atomic_write import write_file
from refinesynth.train import events
from refinesynth.train.metrics import Measured, MetricsKind


class Curve(NamedTuple):
    """One line of a plot: a metric over optimizer steps."""

    kind: MetricsKind
    metric: str
    label: str
    style: Mapping[str, Any]


class Plot(NamedTuple):
    """One PNG file."""

    title: str
    unit: str
    curves: tuple[Curve, ...]


_LOSS: Final = "loss per token (nats)"
_POINTS: Final = {"marker": "o", "markersize": 4}
_MISTAKES: Final = {"color": "C3", "linestyle": "--", **_POINTS}
PLOTS: Final[Mapping[str, Plot]] = {
    "loss": Plot(
        "Loss on trained tokens",
        _LOSS,
        (
            Curve("train", events.LOSS, "training", {"color": "C0", "alpha": 0.8}),
            Curve("held_out", events.LOSS, "held out", {"color": "C1", **_POINTS}),
        ),
    ),
    "held_out": Plot(
        "Held-out loss by kind of turn",
        _LOSS,
        (
            Curve("held_out", events.LOSS_CORRECT, "correct turns", {"color": "C0", **_POINTS}),
            Curve("held_out", events.LOSS_REFINEMENT, "refinements", {"color": "C2", **_POINTS}),
            Curve("held_out", events.LOSS_MISTAKE, "mistakes (not trained on)", _MISTAKES),
        ),
    ),
    "learning_rate": Plot(
        "Learning rate", "learning rate", (Curve("train", events.LEARNING_RATE, "", {"color": "C0"}),)
    ),
}
"""By the file's name."""


def draw_plots(measured: Sequence[Measured], folder: Path) -> list[Path]:
    """Write one PNG for each of `PLOTS` that has a point; the files that were written. Takes matplotlib.

    Raises:
        StorageError: One cannot be written.
    """
    drawn = {name: [_points(curve, measured) for curve in plot.curves] for name, plot in PLOTS.items()}
    return [_draw(PLOTS[name], points, folder / f"{name}.png") for name, points in drawn.items() if any(points)]


_Points = list[tuple[int, float]]


def _points(curve: Curve, measured: Sequence[Measured]) -> _Points:
    return [
        (each.step, each.values[curve.metric])
        for each in measured
        if each.kind == curve.kind and curve.metric in each.values
    ]


def _draw(plot: Plot, points: list[_Points], path: Path) -> Path:
    # The object interface with the Agg canvas: no display is needed, and pyplot's global state stays a notebook's own.
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure
    from matplotlib.ticker import MaxNLocator

    figure: Any = Figure(figsize=(7, 4), dpi=120, layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.add_subplot()
    for curve, line in zip(plot.curves, points, strict=True):
        if line:
            axes.plot(*zip(*line, strict=True), label=curve.label or None, **curve.style)
    axes.set(title=plot.title, xlabel="optimizer step", ylabel=plot.unit)
    axes.xaxis.set_major_locator(MaxNLocator(integer=True, min_n_ticks=1))
    axes.grid(alpha=0.3)
    if any(curve.label for curve in plot.curves):
        axes.legend()
    png = BytesIO()
    # No date and no version in the file: the same metrics give the same picture.
    figure.savefig(png, format="png", metadata={"Software": None})
    write_file(path, png.getvalue())
    return path
