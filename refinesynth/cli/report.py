"""`refinesynth report` and `view`: a run as one HTML page, an evaluation in Inspect's viewer."""

import os
import signal
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated, Final

import typer

from refinesynth.cli.field_options import option
from refinesynth.cli.interrupt import EXIT_CODES, interruptible
from refinesynth.cli.run_records import Run
from refinesynth.cli.terminal import note, progress_line
from refinesynth.errors import InputError
from refinesynth.extras import check_installed


def report(
    run: Run,
    *,
    output: Annotated[Path, option("-o", "--output", metavar="FILE")] = Path("report.html"),
    sample: Annotated[int, option(min=1)] = 500,
) -> None:
    """Write a report of a run: funnel, reasons of refusal, cost, mistakes, diversity, and trajectories to read.

    The page is one file without references to the network.

    Options:
        output: File to write; an earlier report is replaced.
        sample: Trajectories, and refused attempts, to include, drawn at random.
    """
    if output.is_dir():
        raise InputError(
            f"{str(output)!r} is a folder; give the file to write, such as {str(output / 'report.html')!r}"
        )
    from refinesynth.report import write_report

    with progress_line("the run"):
        write_report(run, output, sample=sample)
    note(f"written: {output}")


_HOST: Final = "127.0.0.1"


def view(
    folder: Annotated[Path, typer.Argument(metavar="FOLDER", help="Folder with logs of `evaluate`.")],
    *,
    port: Annotated[int, option(min=1, max=65_535)] = 7575,
) -> None:
    """Show an evaluation in Inspect's viewer, in a browser on this machine. Ctrl-C ends it.

    For a run, `refinesynth report` writes a page.
    """
    if next(folder.rglob("*.eval"), None) is None:
        raise InputError(
            f"{str(folder)!r} holds no logs of an evaluation (*.eval); give a folder that `refinesynth evaluate` wrote. For a run, give "
            "`refinesynth report RUN`"
        )
    check_installed("evaluate", "inspect_ai")
    inspect = [sys.executable, "-m", "inspect_ai", "view", "start"]
    command = [*inspect, "--log-dir", str(folder.resolve()), "--host", _HOST, "--port", str(port)]
    # A stale file in Inspect's data folder may name an unrelated process, which Inspect would end.
    with TemporaryDirectory() as data_home, interruptible() as interrupt:
        viewer = subprocess.Popen(command, env={**os.environ, "XDG_DATA_HOME": data_home})  # noqa: S603
        interrupt.call_on_signal(viewer.terminate)
        note(f"http://{_HOST}:{port} shows {folder} in some seconds; Ctrl-C ends it")
        code = viewer.wait()
    if interrupt.received is None:
        raise typer.Exit(code if code >= 0 else 128 - code)
    if interrupt.received is not signal.SIGINT:  # Ctrl-C is the normal end
        raise typer.Exit(EXIT_CODES[interrupt.received])
