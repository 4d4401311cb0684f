"""`refinesynth report` and `view`: a run as one HTML page, an evaluation in Inspect's viewer."""

import os
import signal
import socket
import subprocess
import sys
import time
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


HOST: Final = "127.0.0.1"
PORT: Final = 7575
"""Default port of Inspect's viewer."""
_POLL_INTERVAL: Final = 0.1
"""Seconds between two checks of the viewer's port."""


def view(
    folder: Annotated[Path, typer.Argument(metavar="FOLDER", help="Folder with logs of `evaluate`.")],
    *,
    port: Annotated[
        int | None, option(min=1, max=65_535, help="By default 7575, or a free one if that is taken.")
    ] = None,
) -> None:
    """Show an evaluation in Inspect's viewer, in a browser on this machine. Ctrl-C ends it.

    For a run, `refinesynth report` writes a page.
    """
    _check_logs(folder)
    check_installed("evaluate", "inspect_ai")
    viewer_port = free_port(port)
    inspect = [sys.executable, "-m", "inspect_ai", "view", "start"]
    command = [*inspect, "--log-dir", str(folder.resolve()), "--host", HOST, "--port", str(viewer_port)]
    # A stale file in Inspect's data folder may name an unrelated process, which Inspect would end.
    with TemporaryDirectory() as data_home, interruptible() as interrupt:
        viewer = subprocess.Popen(command, env={**os.environ, "XDG_DATA_HOME": data_home})  # noqa: S603
        interrupt.call_on_signal(viewer.terminate)
        while viewer.poll() is None and not _accepts_connections(viewer_port):
            time.sleep(_POLL_INTERVAL)
        if viewer.returncode is None:
            note(f"http://{HOST}:{viewer_port} shows {folder}; Ctrl-C ends it")
        code = viewer.wait()
    if interrupt.received is None:
        raise typer.Exit(code if code >= 0 else 128 - code)
    if interrupt.received is not signal.SIGINT:  # Ctrl-C is the normal end
        raise typer.Exit(EXIT_CODES[interrupt.received])


def free_port(port: int | None) -> int:
    """`port`, else the default port or a free one; raises InputError if `port` cannot be used."""
    try:
        return _bind(PORT if port is None else port)
    except OSError as error:
        if port is None:
            return _bind(0)
        raise InputError(
            f"port {port} of {HOST} cannot be used ({error.strerror}); give another --port, or none"
        ) from error


def _bind(port: int) -> int:
    with socket.create_server((HOST, port)) as listener:
        return listener.getsockname()[1]


def _accepts_connections(port: int) -> bool:
    with socket.socket() as client:
        return client.connect_ex((HOST, port)) == 0


def _check_logs(folder: Path) -> None:
    """Raise InputError without logs of an evaluation."""
    if next(folder.rglob("*.eval"), None) is None:
        raise InputError(
            f"{str(folder)!r} holds no logs of an evaluation (*.eval); give a folder that `refinesynth evaluate` wrote. For a run, give "
            "`refinesynth report RUN`"
        )
