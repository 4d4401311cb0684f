"""Output folders: locked while they are written, and moved aside for a fresh start."""

import os
import re
import socket
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Self

import orjson
from filelock import FileLock, Timeout
from pydantic import BaseModel, ValidationError

from refinesynth.errors import RunFolderError, StorageError

LOCK_FILE = "run.lock"
"""Name of the lock's file in a run folder. The file stays; only the operating system's lock counts."""

CACHE = "REFINESYNTH_CACHE"
"""Variable with the folder for work on runs in stores, for copies of them, and for unpacked GGUF files."""
_LONGEST = 1_000
"""Characters of the file that are read."""


def cache_folder() -> Path:
    """Return the folder for what can be made again."""
    return Path(
        os.environ.get(CACHE) or Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "refinesynth"
    )


class Holder(BaseModel, frozen=True):
    """Process that holds a folder."""

    pid: int
    host: str
    since: datetime

    def __str__(self) -> str:
        return f"process {self.pid} on {self.host!r}, since {self.since:%Y-%m-%d %H:%M:%S} UTC"


class FolderLock:
    """Exclusive use of a folder by one run or training, as a context or from `acquire` to `release`.

    The operating system holds the lock, so it is free as soon as its owner is dead. It also separates two users in one
    process, and survives a rename of the folder. Not promised on network file systems that do not pass locks to other
    hosts.
    """

    def __init__(self, folder: Path, file: str = LOCK_FILE, *, work: str = "run", names_holder: bool = True) -> None:
        """Prepare the lock; the folder must exist when it is taken. `file` is locked in its stead and stays; `work`
        names the user in messages; `names_holder` writes the process into the file.
        """
        self._folder = folder
        self._file = folder / file
        self._work = work
        self._names_holder = names_holder
        # Released by any thread that leaves the block. A lock that a dead owner keeps would be worse than none.
        self._lock = FileLock(self._file, thread_local=False, fallback_to_soft=False)

    def acquire(self) -> Self:
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
            holder = holder_of(self._folder) if self._names_holder else None
            raise RunFolderError(
                f"{str(self._folder)!r} is in use by another {self._work}{'' if holder is None else f': {holder}'}. Wait until it ends, "
                f"end it, or choose another folder"
            ) from error
        except (OSError, NotImplementedError) as error:
            problem = error.strerror if isinstance(error, OSError) else None
            raise StorageError(
                f"{str(self._folder)!r} cannot be locked: {problem or error}. A {self._work} needs a folder that it can write, on a "
                f"file system with locks"
            ) from error
        if self._names_holder:
            holder = Holder(pid=os.getpid(), host=socket.gethostname(), since=datetime.now(UTC))
            # The lock holds without it: a full disk will be reported by something that matters.
            with suppress(OSError):
                self._file.write_bytes(holder.model_dump_json().encode() + b"\n")
        return self

    def release(self) -> None:
        """Release the folder; idempotent."""
        self._lock.release()

    def __enter__(self) -> Self:
        return self.acquire()

    def __exit__(self, *_: object) -> None:
        self.release()


def holder_of(folder: Path) -> Holder | None:
    """Return the last holder of a run folder, dead or alive; None if it cannot be read."""
    try:
        with (folder / LOCK_FILE).open("rb") as file:
            return Holder.model_validate(orjson.loads(file.read(_LONGEST)))
    except (OSError, orjson.JSONDecodeError, ValidationError):
        return None


def next_aside(path: Path) -> Path:
    """Return the next free `NAME.old-1` for a folder."""
    number = 1
    while (aside := path.with_name(f"{path.name}.old-{number}")).exists():
        number += 1
    return aside


def refuse_from_within(path: Path) -> None:
    """Refuse to move a folder that contains the working folder. Raises RunFolderError: it does."""
    if Path.cwd().is_relative_to(path.resolve()):
        raise RunFolderError(
            f"{str(path)!r} cannot be moved aside from within; go to another folder first, or give another output"
        )


def move_aside(path: Path) -> Path:
    """Rename a folder to the next free `NAME.old-1`, and return its new path.

    Raises:
        RunFolderError: The working folder is in it.
        OSError: It cannot be renamed.
    """
    refuse_from_within(path)
    return path.rename(next_aside(path))


_URL = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://")


def is_url(value: object) -> bool:
    """Return whether this text names a place in an object store, such as `s3://bucket/runs/first`."""
    return isinstance(value, str) and _URL.match(value) is not None
