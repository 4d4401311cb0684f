"""`refinesynth view`: a run, or an evaluation, in Inspect's viewer or as a static site."""

import re
import socket
from contextlib import closing, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer
from rich.console import RenderableType

from refinesynth.cli.screen import Screen, bar
from refinesynth.cli.terminal import notes, styled
from refinesynth.errors import InputError
from refinesynth.extras import check_installed
from refinesynth.text.figures import counted

if TYPE_CHECKING:
    from refinesynth.evaluate.run_logs import Progress

HOST: Final = "127.0.0.1"
PORT: Final = 7575
"""Inspect's own."""

_ABSOLUTE: Final = re.compile(r', "abs_log_dir": "(?:[^"\\]|\\.)*"')

Folder = Annotated[Path, typer.Argument(metavar="FOLDER", help="Folder of a run, or one with logs of `evaluate`.")]


def view(
    folder: Folder,
    *,
    bundle: Annotated[
        Path | None,
        typer.Option(
            "--bundle", metavar="FOLDER", help="Write a static site there instead, which any web server serves."
        ),
    ] = None,
    port: Annotated[
        int | None, typer.Option("--port", min=1, max=65_535, help="By default 7575, or a free one if that is taken.")
    ] = None,
) -> None:
    """Show a run or an evaluation in Inspect's viewer, in a browser on this machine. Ctrl-C ends it.

    Of a run, logs are written into its folder `view` first: the first time all of it, later what it has grown by.
    """
    is_run = _is_run(folder)
    check_installed("evaluate", "inspect_ai")
    # What cannot be done is said before anything is written.
    if bundle is not None:
        if bundle.exists():
            raise InputError(f"{str(bundle)!r} exists already; give a new folder for the site, or remove that one")
        _bundle(_written(folder) if is_run else folder, bundle)
        notes().print(f"Written. To look at it: python -m http.server --directory {bundle}", soft_wrap=True)
        return
    free = free_port(port)
    logs = _written(folder) if is_run else folder
    notes().print(f"http://{HOST}:{free} shows {logs}; Ctrl-C ends it", soft_wrap=True)
    # Inspect's command for it would first end whatever process has the number that a file names for this port.
    from inspect_ai._view.fastapi_server import view_server

    with suppress(KeyboardInterrupt):
        view_server(str(logs.resolve()), host=HOST, port=free)


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


def _bundle(folder: Path, site: Path) -> None:
    """Write the viewer with these logs as a static site; raises InputError if `site` is within `folder`."""
    from inspect_ai.log import bundle_log_dir

    if site.resolve().is_relative_to(folder.resolve()):
        raise InputError(f"the site {str(site)!r} would be within the logs {str(folder)!r}; give a folder elsewhere")
    # In full: a name like hf/NAME/SPACE would be uploaded.
    bundle_log_dir(str(folder.resolve()), str(site.resolve()))
    # Where the logs lie on this machine is nobody's business who looks at the site.
    index = site / "index.html"
    index.write_text(_ABSOLUTE.sub("", index.read_text(encoding="utf-8")), encoding="utf-8")


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
    from refinesynth.evaluate.run_logs import Progress, write_logs

    last = Progress(0, 1, 0)

    def tell(progress: "Progress") -> None:
        nonlocal last
        last = progress

    def draw() -> RenderableType:
        return bar("logs", last.done, last.of, styled(counted(last.samples, "trajectory", "trajectories")))

    screen = Screen(notes(), draw)
    screen.open()
    try:
        return write_logs(folder, tell)
    finally:
        screen.close()
