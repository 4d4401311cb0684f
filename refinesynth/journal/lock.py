"""Keeps two runs off one folder."""

import os
import socket
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType
from typing import Self

import orjson
from filelock import FileLock, Timeout
from pydantic import BaseModel, ValidationError

from refinesynth.errors import RunFolderError, StorageError

LOCK_FILE = "run.lock"
"""Name of the lock's file in a run folder. It stays there; only what the operating system says of it counts."""

_LONGEST = 1_000
"""Characters of the file that are read."""


class Holder(BaseModel, frozen=True):
    """Who has a folder."""

    pid: int
    host: str
    since: datetime

    def __str__(self) -> str:
        return f"process {self.pid} on {self.host!r}, since {self.since:%Y-%m-%d %H:%M:%S} UTC"


class RunLock:
    """A run folder for one run alone, for as long as the block lasts.

    The operating system holds the lock, so it is free as soon as its owner is dead, however it died. Two runs in one process
    are kept apart as well. Not promised on network file systems that do not pass locks on to other hosts.
    """

    def __init__(self, folder: Path) -> None:
        """Lock the folder at `folder`, which must be there, when the block is entered."""
        self._folder = folder
        self._file = folder / LOCK_FILE
        # Given back by whatever thread leaves the block. A lock that a dead owner keeps would be worse than none.
        self._lock = FileLock(self._file, thread_local=False, fallback_to_soft=False)

    def __enter__(self) -> Self:
        """Take the folder.

        Raises:
            RunFolderError: A live process has it; the message says which.
            StorageError: It cannot be locked: it is read-only, missing, or on a file system without locks.
        """
        if not self._folder.is_dir():
            raise StorageError(f"{str(self._folder)!r} cannot be locked: there is no such folder")
        try:
            self._lock.acquire(timeout=0)
        except Timeout as error:
            raise RunFolderError(
                f"{str(self._folder)!r} is in use by another run{_by(self._file)}. Wait until it ends, end it, or choose "
                f"another folder"
            ) from error
        except (OSError, NotImplementedError) as error:
            problem = error.strerror if isinstance(error, OSError) else None
            raise StorageError(
                f"{str(self._folder)!r} cannot be locked: {problem or error}. A run needs a folder that it can write, on a "
                f"file system with locks"
            ) from error
        holder = Holder(pid=os.getpid(), host=socket.gethostname(), since=datetime.now(UTC))
        # The lock holds without it: a full disk will be told of by something that matters.
        with suppress(OSError):
            self._file.write_bytes(holder.model_dump_json().encode() + b"\n")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._lock.release()


def holder_of(folder: Path) -> Holder | None:
    """Who took a folder last, dead or alive; None if that cannot be read."""
    try:
        with (folder / LOCK_FILE).open("rb") as file:
            return Holder.model_validate(orjson.loads(file.read(_LONGEST)))
    except (OSError, orjson.JSONDecodeError, ValidationError):
        return None


def _by(file: Path) -> str:
    holder = holder_of(file.parent)
    return "" if holder is None else f": {holder}"
