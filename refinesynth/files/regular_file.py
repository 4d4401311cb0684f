"""Regular files: a link, a FIFO or a device would lead written bytes elsewhere."""

import os
import stat
from pathlib import Path
from typing import BinaryIO

from refinesynth.errors import InputError

_KINDS = (
    (stat.S_ISLNK, "a link"),
    (stat.S_ISFIFO, "a FIFO"),
    (stat.S_ISCHR, "a device"),
    (stat.S_ISBLK, "a device"),
    (stat.S_ISSOCK, "a socket"),
)


def irregular(path: Path, *, follow: bool = False) -> str | None:
    """Return `a link`, `a FIFO`, `a device` or `a socket`, if one is at `path`; None for files, folders and nothing.

    With `follow`, a link counts as its target.
    """
    try:
        mode = (path.stat() if follow else path.lstat()).st_mode
    except OSError:
        return None
    return next((name for is_one, name in _KINDS if is_one(mode)), None)


def refuse_irregular(path: Path) -> None:
    """Refuse to write to anything but a file or a folder. Raises InputError: something else is at `path`."""
    if kind := irregular(path):
        raise InputError(f"{str(path)!r} is {kind}, which nothing is written to; remove it, or choose another name")


def open_to_append(path: Path) -> BinaryIO:
    """Open or create a regular file for appending, without blocking on a FIFO.

    Raises:
        OSError: It cannot be opened, or is something else.
    """
    flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
    file = open(os.open(path, flags, 0o666), "ab")  # noqa: PTH123, SIM115 - the caller closes it
    if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
        file.close()
        raise OSError(0, "it is no regular file", str(path))
    return file
