"""Parts that all pages share: templates that escape values, data for scripts, shortened texts, plots as SVG."""

import re
from collections.abc import Mapping, Sequence
from functools import cache
from importlib import import_module
from io import StringIO
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from zlib import crc32

from refinesynth.diversity.novelty import words
from refinesynth.text.formatting import compact, one_line, printable
from refinesynth.text.json_reader import write_json
from refinesynth.trajectory import Script

if TYPE_CHECKING:
    from jinja2 import Environment


MAX_TEXT: Final = 4_000
"""Most characters of one text in a page."""


def render_page(template: str, **values: Any) -> str:
    """Return a page; values are escaped unless the template says otherwise."""
    return _environment().get_template(template).render(values)


@cache
def _environment() -> "Environment":
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    folder = FileSystemLoader(Path(__file__).parent)
    return Environment(loader=folder, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True, autoescape=True)


def script_data(value: object) -> str:
    """Return JSON that cannot end its script element."""
    return write_json(value).decode().replace("&", "\\u0026").replace("<", "\\u003c").replace(">", "\\u003e")


def shorten(text: str) -> str:
    """Return a text for a page: printable, and cut at `MAX_TEXT` characters."""
    cut = text if len(text) <= MAX_TEXT else f"{text[:MAX_TEXT]}… ({len(text):,} characters)"
    return printable(cut)


_DIMENSIONS: Final = 256
"""Dimensions of the hashed bag of words of a script."""

_MAX_HEIGHT: Final = 200
"""Largest height of a figure in inches, which bounds memory."""


def bars(values: Mapping[str, float], *, unit: str = "") -> str:
    """Return horizontal bars, in the order of the mapping; empty without values."""
    if not values:
        return ""
    figure = make_figure(4.8, 0.35 * len(values) + 0.5)
    axes = figure.subplots()
    names = [one_line(name, size=32) for name in values]
    containers = axes.barh(range(len(names)), list(values.values()), color="#4c78a8")
    numbers = (compact(int(x)) if x >= 1_000 or x == int(x) else f"{x:.4f}" for x in values.values())  # noqa: PLR2004
    axes.bar_label(containers, [f" {number}{unit}" for number in numbers], fontsize=9)
    axes.set_yticks(range(len(names)), names, parse_math=False)
    axes.invert_yaxis()
    axes.margins(x=0.3)
    axes.set_xticks([])
    return svg(figure)


def histogram(values: Sequence[float], labels: Sequence[str]) -> str:
    """Return vertical bars with labels below; empty if all values are 0."""
    if not any(values):
        return ""
    figure = make_figure(4.8, 2.2)
    axes = figure.subplots()
    axes.bar(range(len(values)), list(values), color="#4c78a8")
    step = max(1, len(labels) // 12)
    axes.set_xticks(range(0, len(labels), step), labels[::step], fontsize=8)
    axes.tick_params(axis="y", labelsize=8)
    return svg(figure)


def scatter(scripts: Sequence[Script]) -> str:
    """Return scripts as points: the two main components of their words; empty for fewer than 3."""
    if len(scripts) < 3:  # noqa: PLR2004 - two points are always a line
        return ""
    import numpy as np

    table = np.zeros((len(scripts), _DIMENSIONS))
    for row, script in zip(table, scripts, strict=True):
        text = f"{script.goal} {script.introduction} {' '.join(action.name for action in script.actions)}"
        for word in words(text):
            row[crc32(word.encode()) % _DIMENSIONS] += 1
    table /= np.maximum(np.linalg.norm(table, axis=1, keepdims=True), 1e-9)
    table -= table.mean(axis=0)
    points = table @ np.linalg.svd(table, full_matrices=False)[2][:2].T
    figure = make_figure(4.8, 4.0)
    axes = figure.subplots()
    axes.scatter(points[:, 0], points[:, 1], s=16, alpha=0.7, color="#4c78a8", linewidths=0)
    axes.set_xticks([])
    axes.set_yticks([])
    return svg(figure)


def make_figure(width: float, height: float) -> Any:
    """Return an empty figure of matplotlib; the sizes are in inches."""
    # pyplot has global state, which may belong to a notebook, and may need a display.
    from matplotlib.figure import Figure

    return Figure(figsize=(width, min(_MAX_HEIGHT, height)), dpi=120, layout="constrained")


def svg(figure: Any) -> str:
    """Return a figure of matplotlib for a page: black follows the page's colour, and frames are left out."""
    mpl: Any = import_module("matplotlib")

    for axes in figure.axes:
        axes.spines[:].set_visible(False)
        axes.tick_params(length=0)
    text = StringIO()
    # Text stays text, and the hash salt makes the bytes reproducible.
    with mpl.rc_context({"svg.fonttype": "none", "svg.hashsalt": "refinesynth", "text.parse_math": False}):
        figure.savefig(text, format="svg", transparent=True, metadata={"Date": None, "Creator": None})
    # Black becomes the text colour of the page, in light and dark.
    markup = text.getvalue()
    markup = re.sub(r"(stroke|fill): #000000", r"\1: currentColor", markup[markup.index("<svg") :])
    return markup.replace("<text ", '<text fill="currentColor" ')
