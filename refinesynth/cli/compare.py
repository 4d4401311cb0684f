"""`refinesynth compare`: evaluations beside each other, and beside the paper's."""

from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Group, RenderableType
from rich.table import Table as Grid

from refinesynth.cli.terminal import labelled, notes, styled
from refinesynth.cli.terminal import output as standard_output
from refinesynth.errors import InputError
from refinesynth.extras import check_installed
from refinesynth.files.atomic_write import alone_with
from refinesynth.text.printable import one_line

if TYPE_CHECKING:
    from refinesynth.evaluate.comparing.table_values import Table

_NAME = 14
"""Columns that a row's names have at least, each; where that leaves too few for figures, rows become lists."""


def compare(
    folders: Annotated[
        list[Path] | None,
        typer.Argument(metavar="[FOLDER]...", help="Folders of `evaluate`; each is compared with the first."),
    ] = None,
    *,
    paper: Annotated[bool, typer.Option("--paper", help="Put the paper's published rows beside.")] = False,
    output: Annotated[
        Path | None,
        typer.Option("-o", "--output", metavar="FOLDER", help="Write compare.md, .html, .png and .json there."),
    ] = None,
) -> None:
    """Compare evaluations: scores with intervals, paired differences, how failures are dealt with.

    With --paper alone, the published tables.
    """
    if not folders and not paper:
        raise InputError("give folders of evaluations, or --paper for the published tables")
    if output is not None and output.exists() and not output.is_dir():
        raise InputError(f"{str(output)!r} is a file; give a folder for what is written")
    with nullcontext() if output is None else alone_with(output):
        if folders:
            check_installed("evaluate", "inspect_ai", "numpy", "matplotlib")
            from refinesynth.evaluate.comparing.comparison import compare as compared

            comparison = compared(folders, paper=paper)
        else:
            from refinesynth.evaluate.comparing.table_values import Comparison, main_table

            comparison = Comparison({}, [main_table({}, paper=True)])
        console = standard_output()
        for name, model in comparison.models.items():
            console.print(styled(one_line(f"{name}: {model}")))
        for table in comparison.tables:
            console.print(*_shown(table, console.width), sep="\n")
        for said in comparison.warnings:
            console.print(styled(f"! {one_line(said)}", "yellow"))
        if output is not None:
            from refinesynth.evaluate.comparing.comparison_files import write_comparison

            paths = (one_line(str(path)) for path in write_comparison(comparison, output))
            notes().print(styled(f"written: {', '.join(paths)}", "dim"), soft_wrap=True)


def _shown(table: "Table", width: int) -> Iterator[RenderableType]:
    yield styled(f"\n{table.title}", "bold")
    columns = list(zip(table.columns, *table.texts(), strict=True))
    # A heading is folded between words, a figure is not.
    needed = [max(map(len, (*head.split(), *cells))) for head, *cells in columns]
    room = sum(min(_NAME, each) for each in needed[: table.labels]) + sum(needed[table.labels :]) + len(columns) - 1
    yield _grid(table, apart=2 if room + len(columns) <= width else 1) if room <= width else _list(table)
    for note in table.notes:
        yield styled(note, "dim")


def _grid(table: "Table", *, apart: int) -> RenderableType:
    grid = Grid(box=None, padding=(0, apart, 0, 0), pad_edge=False, header_style="dim")
    for at, head in enumerate(table.columns):
        if at < table.labels:
            grid.add_column(head, overflow="fold")
        else:
            grid.add_column("\n".join(head.split()), justify="right", no_wrap=True)
    for row in table.texts():
        grid.add_row(*map(styled, map(one_line, row)))
    return grid


def _list(table: "Table") -> RenderableType:
    """Each row as its names, with its figures below."""
    parts: list[RenderableType] = []
    for row in table.texts():
        parts.append(styled(one_line(" · ".join(row[: table.labels]))))
        figures = zip(table.columns[table.labels :], row[table.labels :], strict=True)
        parts.append(labelled((f"  {column}", styled(one_line(cell))) for column, cell in figures))
    return Group(*parts)
