"""`refinesynth view`: a run, or an evaluation, in Inspect's viewer."""

import os
import signal
import socket
import subprocess
import sys
from contextlib import closing
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated, Final

import typer

from refinesynth.cli.interrupt import EXIT_CODES, interruptible
from refinesynth.cli.screen import progress_line
from refinesynth.cli.terminal import notes
from refinesynth.errors import InputError
from refinesynth.extras import check_installed
from refinesynth.text.number_format import counted

HOST: Final = "127.0.0.1"
PORT: Final = 7575
"""Inspect's own."""

Folder = Annotated[Path, typer.Argument(metavar="FOLDER", help="Folder of a run, or one with logs of `evaluate`.")]


def view(
    folder: Folder,
    *,
    port: Annotated[
        int | None, typer.Option("--port", min=1, max=65_535, help="By default 7575, or a free one if that is taken.")
    ] = None,
    bundle: Annotated[str | None, typer.Option("--bundle", hidden=True)] = None,
) -> None:
    """Show a run or an evaluation in Inspect's viewer, in a browser on this machine. Ctrl-C ends it.

    Of a run, logs are written into its folder `view` first: the first time all of it, later what it has grown by.
    """
    if bundle is not None:
        raise InputError(
            "view --bundle was removed. Run `refinesynth view` once, if it is a run, and then "
            "`inspect view bundle --log-dir LOGS --output-dir SITE`; the logs of a run are in its folder view/"
        )
    is_run = _is_run(folder)
    check_installed("evaluate", "inspect_ai")
    # What cannot be done is said before anything is written.
    free = free_port(port)
    logs = _written(folder) if is_run else folder
    notes().print(f"http://{HOST}:{free} shows {logs}; Ctrl-C ends it", soft_wrap=True)
    inspect = [sys.executable, "-m", "inspect_ai", "view", "start"]
    command = [*inspect, "--log-dir", str(logs.resolve()), "--host", HOST, "--port", str(free)]
    # Where Inspect keeps its data, a file that was left behind may name a process of somebody else, which it would end.
    with TemporaryDirectory() as data, interruptible() as interrupt:
        viewer = subprocess.Popen(command, env={**os.environ, "XDG_DATA_HOME": data})  # noqa: S603
        interrupt.stops(viewer.terminate)
        code = viewer.wait()
    if interrupt.received is None:
        raise typer.Exit(code if code >= 0 else 128 - code)
    if interrupt.received is not signal.SIGINT:  # Ctrl-C is how it is meant to end
        raise typer.Exit(EXIT_CODES[interrupt.received])


def free_port(wanted: int | None) -> int:
    """`wanted`, else the default port or a free one; raises InputError if `wanted` cannot be used."""
    try:
        return _bound(PORT if wanted is None else wanted)
    except OSError as error:
        if wanted is None:
            return _bound(0)
        raise InputError(
            f"port {wanted} of {HOST} cannot be used ({error.strerror}); give another --port, or none"
        ) from error


def _bound(port: int) -> int:
    with closing(socket.socket()) as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((HOST, port))
        return listener.getsockname()[1]


def _is_run(folder: Path) -> bool:
    """True for a run folder, false for a folder of logs; raises InputError for anything else."""
    if not folder.is_dir():
        problem = "is a file" if folder.exists() else "does not exist"
        raise InputError(
            f"{str(folder)!r} {problem}; give the folder of a run, or one that `refinesynth evaluate` wrote"
        )
    if (folder / "config.json").is_file() or (folder / "trajectories.jsonl").is_file():
        return True
    if next(folder.rglob("*.eval"), None) is None:
        raise InputError(f"{str(folder)!r} has neither a run (config.json) nor logs of an evaluation (*.eval)")
    return False


def _written(folder: Path) -> Path:
    from refinesynth.evaluate.inspect_logs import write_logs

    with progress_line() as report:
        return write_logs(folder, lambda records: report(counted(records, "record")))
