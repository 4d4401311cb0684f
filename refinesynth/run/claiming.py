"""A folder for one run alone: made if it is missing, locked, and with an older run moved aside if that is asked for."""

import errno
from contextlib import ExitStack
from pathlib import Path

import orjson

from refinesynth.errors import RefinesynthError, RunFolderError
from refinesynth.files.atomic_write import is_unfinished
from refinesynth.files.output_folder import LOCK_FILE, FolderLock, move_aside
from refinesynth.run.config import is_of_run
from refinesynth.run.folder import refuse_irregular_files
from refinesynth.run.lines import cannot

CONFIG = "config.json"
_NO_SUCH_PLACE = frozenset({errno.ENOTDIR, errno.EEXIST, errno.ENAMETOOLONG, errno.EINVAL, errno.ELOOP, errno.ENOENT})
"""Errors of a path that no folder can have, on any disk."""


def claim(path: Path, *, fresh: bool, until: ExitStack) -> Path | None:
    """Take the folder at `path` until `until` is closed; with `fresh`, a run in it is moved aside first.

    Returns where that one is now; None if there was none.

    Raises:
        RunFolderError: Something else than a run is in it, a file of the run is a link, a FIFO or a device, a live
            process has it, or no folder can be there.
        StorageError: It cannot be written.
    """
    _refuse_strangers(path)
    refuse_irregular_files(path, follow=False)
    _make(path)
    until.enter_context(FolderLock(path))
    _refuse_strangers(path)
    if not (fresh and holds_run(path)):
        return None
    # Through a link, the folder itself is moved and made again, and the link stays right.
    real = path.resolve()
    aside = _move_aside(real)
    _make(real)
    # The lock of the old folder is kept as well: a process that has opened it meanwhile does not take that folder for
    # this one.
    until.enter_context(FolderLock(path))
    return aside


def holds_run(path: Path) -> bool:
    """Whether a run was begun in this folder. One whose configuration is damaged is there; what another program has
    configured, such as a model, is none.
    """
    file = path / CONFIG
    if not file.is_file():
        return False
    try:
        return is_of_run(orjson.loads(file.read_bytes()))
    except (OSError, orjson.JSONDecodeError):
        return True


def free_run_folder(parent: str | Path = "runs") -> Path:
    """The next free folder `parent/NNN`, which is not made.

    Raises:
        RunFolderError: No folder can be there.
        StorageError: `parent` cannot be read.
    """
    parent = Path(parent)
    try:
        taken = [int(entry.name) for entry in parent.iterdir() if entry.name.isdecimal()]
    except FileNotFoundError:
        taken = []
    except OSError as error:
        raise _unusable("make a folder in", parent, error) from error
    return parent / f"{max(taken, default=0) + 1:03d}"


def next_run_folder(parent: str | Path = "runs") -> Path:
    """Make and return the next free folder `parent/NNN`; two callers at once get two folders.

    Raises:
        RunFolderError: No folder can be there.
        StorageError: It cannot be written.
    """
    parent = Path(parent)
    try:
        parent.mkdir(parents=True, exist_ok=True)
        folder = free_run_folder(parent)
        while True:
            try:
                folder.mkdir()
            except FileExistsError:
                folder = parent / f"{int(folder.name) + 1:03d}"
                continue
            return folder
    except OSError as error:
        raise _unusable("make a folder in", parent, error) from error


def _refuse_strangers(path: Path) -> None:
    try:
        found = {entry.name for entry in path.iterdir()} if path.exists() else set[str]()
    except OSError as error:
        raise _unusable("use", path, error) from error
    if not holds_run(path) and not all(_is_of_no_run(name) for name in found):
        raise RunFolderError(
            f"{str(path)!r} is not empty, and no run is in it (no config.json of one); give a new folder"
        )


def _is_of_no_run(name: str) -> bool:
    """Whether a process may have left it that died before it had begun a run."""
    return name in {LOCK_FILE, "config.json.new"} or is_unfinished(name, CONFIG)


def _make(path: Path) -> None:
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise _unusable("make the folder", path, error) from error


def _move_aside(path: Path) -> Path:
    try:
        return move_aside(path)
    except OSError as error:
        raise _unusable("move aside", path, error) from error


def _unusable(do: str, path: Path, error: OSError) -> RefinesynthError:
    if error.errno in _NO_SUCH_PLACE:
        return RunFolderError(f"cannot {do} {str(path)!r}: {error.strerror or error}; give another folder")
    return cannot(do, path, error)
