"""The curves of a training as PNG files, drawn from its `metrics.jsonl`."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from io import BytesIO
from pathlib import Path
from typing import Any

from refinesynth.atomic_write import write_file
from refinesynth.extras import require
from refinesynth.train import events
from refinesynth.train.metrics import Kind, Measured, read_metrics
from refinesynth.train.plan import Plan


@dataclass(frozen=True, slots=True)
class Curve:
    """One line of a plot: a metric over optimizer steps."""

    kind: Kind
    metric: str
    label: str
    style: Mapping[str, Any] = field(default_factory=dict[str, Any])


@dataclass(frozen=True, slots=True)
class Plot:
    """One PNG file."""

    name: str
    title: str
    unit: str
    curves: tuple[Curve, ...]


_LOSS = "loss per token (nats)"
_POINTS = {"marker": "o", "markersize": 4}
PLOTS: tuple[Plot, ...] = (
    Plot(
        "loss",
        "Loss on trained tokens",
        _LOSS,
        (
            Curve("train", events.LOSS, "training", {"color": "C0", "alpha": 0.8}),
            Curve("held_out", events.LOSS, "held out", {"color": "C1", **_POINTS}),
        ),
    ),
    Plot(
        "held_out",
        "Held-out loss by kind of turn",
        _LOSS,
        (
            Curve("held_out", events.LOSS_CORRECT, "correct turns", {"color": "C0", **_POINTS}),
            Curve("held_out", events.LOSS_REFINEMENT, "refinements", {"color": "C2", **_POINTS}),
            Curve(
                "held_out",
                events.LOSS_MISTAKE,
                "mistakes (not trained on)",
                {"color": "C3", "linestyle": "--", **_POINTS},
            ),
        ),
    ),
    Plot(
        "learning_rate", "Learning rate", "learning rate", (Curve("train", events.LEARNING_RATE, "", {"color": "C0"}),)
    ),
)


class Plots:
    """Draws the curves after every evaluation, and at the end by `draw`.

    Raises:
        ConfigurationError: matplotlib is not installed.
    """

    def __init__(self, metrics: Path, folder: Path) -> None:
        require("matplotlib", "train")
        self._metrics = metrics
        self._folder = folder

    def planned(self, plan: Plan) -> None: ...

    def logged(self, step: int, metrics: Mapping[str, float]) -> None: ...

    def evaluated(self, step: int, metrics: Mapping[str, float]) -> None:
        del step, metrics  # they are read from the file, with those of earlier steps
        self.draw()

    def saved(self, path: Path) -> None: ...

    def note(self, text: str) -> None: ...

    def draw(self) -> None:
        """Draw all curves that there is something to draw of."""
        draw_plots(list(read_metrics(self._metrics)), self._folder)


def draw_plots(measured: Sequence[Measured], folder: Path) -> list[Path]:
    """Write one PNG for each of `PLOTS` that has a point; the files that were written.

    Raises:
        StorageError: One cannot be written.
    """
    drawn = [(plot, _points(plot, measured)) for plot in PLOTS]
    return [_draw(plot, points, folder / f"{plot.name}.png") for plot, points in drawn if any(points)]


_Points = list[tuple[int, float]]


def _points(plot: Plot, measured: Sequence[Measured]) -> list[_Points]:
    """By curve, its points in order."""
    return [
        [
            (each.step, each.values[curve.metric])
            for each in measured
            if each.kind == curve.kind and curve.metric in each.values
        ]
        for curve in plot.curves
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
            axes.plot(
                [step for step, _ in line], [value for _, value in line], label=curve.label or None, **curve.style
            )
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
