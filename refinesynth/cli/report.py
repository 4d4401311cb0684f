"""`refinesynth report`: a run as one HTML page."""

from pathlib import Path
from typing import Annotated

import typer

from refinesynth.cli.fetch import run_here
from refinesynth.cli.screen import progress_line
from refinesynth.cli.terminal import notes
from refinesynth.errors import InputError

Run = Annotated[Path, typer.Argument(metavar="RUN", parser=run_here, help="Folder or URL of a run.")]


def report(
    run: Run,
    *,
    output: Annotated[
        Path, typer.Option("-o", "--output", metavar="FILE", help="File to write; an earlier report is replaced.")
    ] = Path("report.html"),
    sample: Annotated[
        int, typer.Option("--sample", min=1, help="Trajectories, and refused attempts, to include, drawn at random.")
    ] = 500,
) -> None:
    """Write a report of a run: funnel, reasons of refusal, cost, mistakes, diversity, and trajectories to read.

    The page is one file without references to the network.
    """
    if output.is_dir():
        raise InputError(
            f"{str(output)!r} is a folder; give the file to write, such as {str(output / 'report.html')!r}"
        )
    from refinesynth.report import write_report

    with progress_line() as progress:
        progress("reading the run")
        write_report(run, output, sample=sample)
    notes().print(f"written: {output}", soft_wrap=True)
