"""A comparison as files: compare.md and compare.json."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from refinesynth._version import __version__
from refinesynth.evaluate.comparing.cells import Comparison, Table
from refinesynth.files.atomic_write import write_json_file, write_text_file
from refinesynth.text.markdown import plain_text


def write_comparison(comparison: Comparison, folder: Path) -> list[Path]:
    """Write the two files; what is there is replaced.

    Raises:
        StorageError: One cannot be written.
    """
    paths = [folder / "compare.md", folder / "compare.json"]
    write_text_file(paths[0], _markdown(comparison))
    write_json_file(paths[1], _facts(comparison))
    return paths


def _facts(comparison: Comparison) -> Mapping[str, Any]:
    rows = {one.name: [dict(zip(one.columns, row, strict=True)) for row in one.rows] for one in comparison.tables}
    return {
        "refinesynth": __version__,
        "models": comparison.models,
        "tables": rows,
        "warnings": comparison.warnings,
    }


def _markdown(comparison: Comparison) -> str:
    lines = ["# Comparison", "", *(f"- {plain_text(f'{name}: {one}')}" for name, one in comparison.models.items()), ""]
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
