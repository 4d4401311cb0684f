"""A comparison as files: compare.md, compare.html, compare.png and compare.json."""

from base64 import b64encode
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final

from refinesynth._version import __version__
from refinesynth.evaluate.comparing.picture import draw
from refinesynth.evaluate.comparing.published import HELD_IN, ROWS, held_out
from refinesynth.evaluate.comparing.tables import Table, tables
from refinesynth.evaluate.comparing.values import HELD_OUT_TASK, Comparison
from refinesynth.files.atomic_write import write_file, write_json_file, write_text_file
from refinesynth.text.markdown import plain_text

_PAGE: Final = Path(__file__).with_name("page.html.jinja")
_NAME: Final = "compare"


def write_comparison(comparison: Comparison, folder: Path, *, paper: bool) -> list[Path]:
    """Write the four files, or three where no evaluation is in it that could be drawn; what is there is replaced.

    Raises:
        StorageError: One cannot be written.
    """
    found = tables(comparison, paper=paper)
    paths = {kind: folder / f"{_NAME}.{kind}" for kind in ("md", "html", "json", "png")}
    png = draw(comparison.evaluations) if comparison.evaluations else b""
    write_text_file(paths["md"], _markdown(comparison, found, picture=bool(png)))
    write_text_file(paths["html"], _html(comparison, found, png))
    published = {"published": _published()} if paper else {}
    write_json_file(paths["json"], {"refinesynth": __version__, **asdict(comparison), **published})
    if not png:
        return [path for kind, path in paths.items() if kind != "png"]
    write_file(paths["png"], png)
    return list(paths.values())


def _published() -> Any:
    return {
        name: {**cells, HELD_OUT_TASK: held_out(cells), "held_in": HELD_IN.get(name, [])}
        for name, cells in ROWS.items()
    }


def _markdown(comparison: Comparison, found: Sequence[Table], *, picture: bool) -> str:
    lines = ["# Comparison", ""]
    lines += [f"- {plain_text(one.name)}: {plain_text(one.model)}" for one in comparison.evaluations]
    lines += ["", *([f"![Scores]({_NAME}.png)", ""] if picture else [])]
    for table in found:
        align = ["---"] * table.labels + ["---:"] * (len(table.columns) - table.labels)
        rows = [table.columns, align, *table.rows]
        cells = [[cell if row is align else plain_text(cell) for cell in row] for row in rows]
        lines += [f"## {plain_text(table.title)}", "", *(f"| {' | '.join(row)} |" for row in cells), ""]
        lines += [*(f"- {plain_text(note)}" for note in table.notes), ""]
    if comparison.warnings:
        lines += ["## Warnings", "", *(f"- {plain_text(said)}" for said in comparison.warnings), ""]
    return "\n".join(lines)


def _html(comparison: Comparison, found: Sequence[Table], png: bytes) -> str:
    from jinja2 import Environment, StrictUndefined

    page = Environment(undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True, autoescape=True)
    return page.from_string(_PAGE.read_text(encoding="utf-8")).render(
        comparison=comparison, tables=found, png=b64encode(png).decode(), version=__version__
    )
