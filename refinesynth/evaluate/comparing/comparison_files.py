"""Files of a comparison: compare.md, compare.html, compare.json, compare.png and recovery.png."""

from io import BytesIO
from pathlib import Path
from typing import Any

from refinesynth._version import __version__
from refinesynth.evaluate.comparing.table_values import Comparison, Estimate, Share, Table
from refinesynth.files.atomic_write import write_file, write_json_file, write_text_file
from refinesynth.report.html_page import make_figure, render_page, svg
from refinesynth.text.formatting import one_line

_BAR_HEIGHT = 0.24
_MAX_LABEL = 40
_DARK = 60
"""Per cent above which a cell of a heat map is dark."""


def draw(scores: Table) -> Any:
    """A figure with panels for success and progress, tasks from top to bottom; None if no task is finished."""
    if not any(isinstance(cell, Estimate) for row in scores.rows for cell in row):
        return None
    tasks, names = (list(dict.fromkeys(str(row[index]) for row in scores.rows)) for index in (0, 1))
    thickness = 1 / (len(names) + 1)
    figure = make_figure(10, 1.2 + _BAR_HEIGHT * (len(tasks) / thickness + len(names)))
    panels = figure.subplots(1, 2, sharey=True)
    for panel, measure in zip(panels, ("success", "progress"), strict=True):
        column = scores.columns.index(measure)
        for index, name in enumerate(names):
            scored = [
                (str(row[0]), cell)
                for row in scores.rows
                if row[1] == name and isinstance(cell := row[column], Estimate)
            ]
            positions = [tasks.index(task) + (index - (len(names) - 1) / 2) * thickness for task, _ in scored]
            means = [100 * estimate.mean for _, estimate in scored]
            low = [100 * (estimate.mean if estimate.low is None else estimate.low) for _, estimate in scored]
            high = [100 * (estimate.mean if estimate.high is None else estimate.high) for _, estimate in scored]
            panel.barh(positions, means, thickness, color=f"C{index % 10}", alpha=0.75, label=f"{index}")
            for position, mean, end in zip(positions, means, high, strict=True):
                panel.text(max(mean, end) + 1, position, f"{mean:.1f}", verticalalignment="center", fontsize=7)
            panel.hlines(positions, low, high, color="black", linewidth=1)
        # The axis leaves space for the number after the longest interval.
        panel.set(xlim=(0, 110), xticks=range(0, 101, 20), xlabel=f"{measure} in %, with 95 % interval")
        panel.grid(axis="x", alpha=0.3)
    # matplotlib would parse dollar signs in names as formulas.
    panels[0].set_yticks(range(len(tasks)), [one_line(task, size=_MAX_LABEL) for task in tasks], parse_math=False)
    panels[0].set_ylim(len(tasks) - 0.5, -0.5)
    legend = figure.legend(*panels[0].get_legend_handles_labels(), loc="outside upper left", frameon=False)
    for text, name in zip(legend.get_texts(), names, strict=True):
        text.set(text=one_line(name, size=_MAX_LABEL), parse_math=False)
    return figure


def draw_grid(grid: Table) -> bytes:
    """A PNG with a heat map for each task and evaluation: kinds of mistakes by their position."""
    groups = list(dict.fromkeys(row[:2] for row in grid.rows))
    figure = make_figure(6, 0.5 + 2.2 * len(groups))
    positions = grid.columns[grid.labels :]
    for panel, group in zip(figure.subplots(len(groups), 1, squeeze=False)[:, 0], groups, strict=True):
        rows = [row for row in grid.rows if row[:2] == group]
        shares = [[cell.value for cell in row[grid.labels :] if isinstance(cell, Share)] for row in rows]
        values = [[float("nan") if share is None else 100 * share for share in row] for row in shares]
        panel.imshow(values, vmin=0, vmax=100, cmap="Blues", aspect="auto")
        panel.set_xticks(range(len(positions)), positions)
        panel.set_yticks(range(len(rows)), [one_line(str(row[2]), size=_MAX_LABEL) for row in rows], parse_math=False)
        panel.set_title(one_line(": ".join(map(str, group)), size=2 * _MAX_LABEL), fontsize=9, parse_math=False)
        for y, row in enumerate(values):
            for x, value in enumerate(row):
                if value == value:  # noqa: PLR0124 - nan is an empty cell
                    color = "white" if value > _DARK else "black"
                    panel.text(x, y, f"{value:.0f}", ha="center", va="center", fontsize=9, color=color)
    figure.suptitle(grid.title, fontsize=10)
    return _png(figure)


def _png(figure: Any) -> bytes:
    png = BytesIO()
    figure.savefig(png, format="png", metadata={"Software": None})
    return png.getvalue()


def write_comparison(comparison: Comparison, folder: Path) -> list[Path]:
    """Write or replace the files; compare.png needs a finished task, recovery.png a grid. Raises StorageError."""
    paths = {kind: folder / f"compare.{kind}" for kind in ("md", "html", "json")}
    scores = next((table for table in comparison.tables if table.name == "scores"), None)
    figure = None if scores is None else draw(scores)
    write_text_file(paths["md"], comparison.as_markdown(picture=figure is not None))
    write_json_file(paths["json"], comparison.as_json())
    if figure is not None:
        paths["png"] = folder / "compare.png"
        write_file(paths["png"], _png(figure))
    picture = "" if figure is None else svg(figure)
    page = render_page("compare.html.jinja", comparison=comparison, picture=picture, version=__version__)
    write_text_file(paths["html"], page)
    if grid := next((table for table in comparison.tables if table.name == "grid"), None):
        paths["grid"] = folder / "recovery.png"
        write_file(paths["grid"], draw_grid(grid))
    return list(paths.values())
