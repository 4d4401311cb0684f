"""`refinesynth view`: a run, or an evaluation, in Inspect's viewer."""

from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import RenderableType

from refinesynth.cli.screen import Screen, bar
from refinesynth.cli.terminal import notes, styled
from refinesynth.errors import InputError
from refinesynth.extras import check_installed
from refinesynth.text.figures import counted

if TYPE_CHECKING:
    from refinesynth.evaluate.viewing.logs import Progress

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
    from refinesynth.evaluate.viewing import opening

    # What cannot be done is said before anything is written.
    if bundle is not None:
        opening.refuse_existing(bundle)
        opening.bundle(_written(folder) if is_run else folder, bundle)
        notes().print(f"Written. To look at it: python -m http.server --directory {bundle}", soft_wrap=True)
        return
    free = opening.free_port(port)
    logs = _written(folder) if is_run else folder
    notes().print(f"http://{opening.HOST}:{free} shows {logs}; Ctrl-C ends it", soft_wrap=True)
    with suppress(KeyboardInterrupt):
        opening.serve(logs, free)


def _is_run(folder: Path) -> bool:
    """Whether a folder has a run; else it has logs.

    Raises:
        InputError: Neither, or it is no folder.
    """
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
    """Write a run's logs, and show how far that is where it takes a while."""
    from refinesynth.evaluate.viewing.logs import Progress, write_logs

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
