"""A comparison as files: compare.md, compare.html, compare.png and compare.json."""

from base64 import b64encode
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from refinesynth._version import __version__
from refinesynth.evaluate.comparing.cells import Comparison, Table
from refinesynth.evaluate.comparing.picture import draw
from refinesynth.files.atomic_write import write_file, write_json_file, write_text_file
from refinesynth.text.markdown import plain_text

_PAGE: Final = Path(__file__).with_name("page.html.jinja")


def write_comparison(comparison: Comparison, folder: Path) -> list[Path]:
    """Write the four files, or three where no evaluation is in it that could be drawn; what is there is replaced.

    Raises:
        StorageError: One cannot be written.
    """
    paths = {kind: folder / f"compare.{kind}" for kind in ("md", "html", "json")}
    scores = next((table for table in comparison.tables if table.name == "scores"), None)
    png = b"" if scores is None else draw(scores)
    write_text_file(paths["md"], _markdown(comparison, picture=bool(png)))
    write_text_file(paths["html"], _html(comparison, png))
    write_json_file(paths["json"], _facts(comparison))
    if png:
        paths["png"] = folder / "compare.png"
        write_file(paths["png"], png)
    return list(paths.values())


def _facts(comparison: Comparison) -> Mapping[str, Any]:
    rows = {one.name: [dict(zip(one.columns, row, strict=True)) for row in one.rows] for one in comparison.tables}
    return {
        "refinesynth": __version__,
        "models": comparison.models,
        "tables": rows,
        "warnings": comparison.warnings,
    }


def _markdown(comparison: Comparison, *, picture: bool) -> str:
    lines = ["# Comparison", "", *(f"- {plain_text(f'{name}: {one}')}" for name, one in comparison.models.items()), ""]
    lines += ["![Scores](compare.png)", ""] if picture else []
    for table in comparison.tables:
        lines += [f"## {plain_text(table.title)}", "", *_rows(table), ""]
        lines += [*(f"- {plain_text(note)}" for note in table.notes), ""]
    if comparison.warnings:
        lines += ["## Warnings", "", *(f"- {plain_text(said)}" for said in comparison.warnings), ""]
    return "\n".join(lines)


def _rows(table: Table) -> list[str]:
    align = "".join("| --- " if at < table.labels else "| ---: " for at in range(len(table.columns)))
    head, *rows = (f"| {' | '.join(map(plain_text, row))} |" for row in (table.columns, *table.texts()))
    return [head, f"{align}|", *rows]


def _html(comparison: Comparison, png: bytes) -> str:
    from jinja2 import Environment, StrictUndefined

    page = Environment(undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True, autoescape=True)
    template = page.from_string(_PAGE.read_text(encoding="utf-8"))
    return template.render(comparison=comparison, png=b64encode(png).decode(), version=__version__)
