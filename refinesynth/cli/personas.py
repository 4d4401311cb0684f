"""`refinesynth personas`: deduplication of persona collections before a run."""

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from refinesynth.cli.field_options import option
from refinesynth.cli.terminal import note, print_json, progress_line, say
from refinesynth.personas import dedup as deduplicate
from refinesynth.text.formatting import counted, one_line

personas = typer.Typer()


@personas.callback()  # Without it, `dedup`, the only command, would be no subcommand.
def _group() -> None:
    """Remove near-duplicates from collections of personas. docs/personas.md has more."""


@personas.command()
def dedup(
    files: Annotated[list[Path] | None, typer.Argument(metavar="FILE...")] = None,
    *,
    output: Annotated[Path, option("-o", "--output", metavar="FILE")],
    column: Annotated[str | None, option(metavar="NAME")] = None,
    threshold: float = 0.9,
    overwrite: bool = False,
    json: bool = False,
) -> None:
    """Write the personas without their near-duplicates; the first of several is kept.

    Uses MinHash, by default with Persona Hub's settings. The output is written completely or not at all.

    Options:
        files: JSONL, CSV, TSV or plain text, also .gz, - for standard input; by default our own.
        output: JSONL to write; .gz compresses it.
        column: Where the persona stands in a row, if not in `persona` or `text`.
        threshold: Share of their words from which on two personas are near-duplicates.
        overwrite: Replace FILE if it is there.
        json: The report as one JSON object.
    """
    with progress_line("rows") as show_count:
        report = deduplicate(
            files or None,
            output,
            column=column,
            threshold=threshold,
            overwrite=overwrite,
            on_progress=show_count,
        )
    if json:
        print_json({**asdict(report), "output": str(report.output)})
        return
    say(one_line(f"{report.output}: {report.kept:,} of {counted(report.read, 'persona')}"))
    say(f"left out: {counted(report.exact, 'exact duplicate')} and {counted(report.near, 'near-duplicate')}")
    if report.bad:
        note(f"{counted(report.bad, 'row')} skipped, being no persona:", "yellow")
        for problem in report.problems:
            note(f"  {one_line(problem, size=200)}")
        if report.bad > len(report.problems):
            note("  ...")
