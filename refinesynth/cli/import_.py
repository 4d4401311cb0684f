"""`refinesynth import`: trajectories of other projects and earlier exports, written into a run folder."""

from functools import partial
from pathlib import Path
from typing import Annotated

import anyio
import typer

from refinesynth.cli.exit_codes import ExitCode
from refinesynth.cli.field_options import option
from refinesynth.cli.terminal import note, progress_line, say
from refinesynth.imports import import_trajectories
from refinesynth.text.number_format import counted


def import_(
    source: Annotated[Path, typer.Argument(metavar="FILE")],
    *,
    format_name: Annotated[str, option("--format", metavar="NAME")],
    output: Annotated[Path | None, option("-o", "--output", metavar="FOLDER")] = None,
    fresh: bool = False,
) -> None:
    """Read trajectories of other projects, or an export, into a run folder, which all commands accept.

    docs/import.md lists what is read from each format. Exits with 1 when a record cannot be read.

    Options:
        source: JSON lines, also .gz.
        format_name: agentinstruct (the authors' released form), openai (messages, with and without tools), atif, or
            paper.
        output: The run folder; by default the next free runs/NNN.
        fresh: Begin anew; what is in the folder is kept beside it.
    """
    try:
        with progress_line("records") as show_count:
            work = partial(
                import_trajectories, source, format=format_name, output=output, fresh=fresh, on_progress=show_count
            )
            result = anyio.run(work)
    except (KeyboardInterrupt, SystemExit):
        note("interrupted: the same command with --fresh begins anew")
        raise
    summary = f"{counted(len(result), 'trajectory', 'trajectories')} of {counted(result.episodes, 'record')}"
    say(f"{result.path}: {summary}, {counted(result.figures.mistakes.total(), 'mistake')}")
    if first := next(iter(result.rejected), None):
        note(
            f"{counted(len(result.rejected), 'record')} left out: {first.text}\n"
            f"`refinesynth show {result.path} --refused` lists them; rejected.jsonl holds them as they were"
        )
        raise typer.Exit(ExitCode.INCOMPLETE)
