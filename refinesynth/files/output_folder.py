"""Output folders: locks, and moves for a fresh start."""

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
"""Name of the lock file in a run folder. The file stays; only the operating system's lock counts."""

_RUN_FILE = re.compile(
    r"config\.json|(trajectories|rejected|events)\.jsonl|journal(-[A-Za-z0-9._-]+)?\.sqlite(-wal|-shm|-journal)?|"
    + re.escape(LOCK_FILE)
)


def is_run_file(name: str) -> bool:
    """Return True for the name of a file that a run writes into its folder."""
    return _RUN_FILE.fullmatch(name) is not None


def is_file_of_run(path: Path) -> bool:
    """Return True for the path of a run's file, present or missing, in a folder with a config.json."""
    return is_run_file(path.name) and path.with_name("config.json").is_file()


CACHE = "REFINESYNTH_CACHE"
"""Environment variable with the folder for working copies of runs in object stores and for unpacked GGUF files."""
_MAX_LOCK_BYTES = 1_000
"""Maximum number of bytes read from the lock file."""


def cache_folder() -> Path:
    """Return the folder for cached files."""
    return Path(
        os.environ.get(CACHE) or Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "refinesynth"
    )


class Holder(BaseModel, frozen=True):
    """Process that holds a folder's lock."""

    pid: int
    host: str
    since: datetime

    def __str__(self) -> str:
        return f"process {self.pid} on {self.host!r}, since {self.since:%Y-%m-%d %H:%M:%S} UTC"


class FolderLock:
    """Exclusive lock of a folder for one run or training, as a context or from `acquire` to `release`.

    The operating system holds the lock and releases it when the owner dies. It also separates two users in one process,
    and survives a rename of the folder. On network file systems without distributed locks, it does not bind other hosts.
    """

    def __init__(self, folder: Path, file: str = LOCK_FILE, *, work: str = "run", names_holder: bool = True) -> None:
        """Prepare the lock; the folder must exist at `acquire`. The lock is on `file`, which stays. `work` names the user
        in messages; `names_holder` writes the process into the file.
        """
        self._folder = folder
        self._file = folder / file
        self._work = work
        self._names_holder = names_holder
        # Another thread may leave the block. A soft lock would stay after its owner's death.
        self._lock = FileLock(self._file, thread_local=False, fallback_to_soft=False)

    def acquire(self) -> Self:
        """Acquire the lock without waiting.

        Raises:
            RunFolderError: A live process has it; the message names the process if known.
            StorageError: The folder is read-only, missing, or on a file system without locks.
        """
        if not self._folder.is_dir():
            raise StorageError(f"{str(self._folder)!r} cannot be locked: there is no such folder")
        try:
            self._lock.acquire(timeout=0)
        except Timeout as error:
            holder = read_holder(self._folder) if self._names_holder else None
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
            # The lock works without this content; later writes report a full disk.
            with suppress(OSError):
                self._file.write_bytes(holder.model_dump_json().encode() + b"\n")
        return self

    def release(self) -> None:
        """Release the lock; idempotent."""
        self._lock.release()

    def __enter__(self) -> Self:
        return self.acquire()

    def __exit__(self, *_: object) -> None:
        self.release()


def read_holder(folder: Path) -> Holder | None:
    """Return the last holder of a run folder, dead or alive; None if unknown."""
    try:
        with (folder / LOCK_FILE).open("rb") as file:
            return Holder.model_validate(orjson.loads(file.read(_MAX_LOCK_BYTES)))
    except (OSError, orjson.JSONDecodeError, ValidationError):
        return None


def next_old_path(path: Path) -> Path:
    """Return the first free path `NAME.old-1`, `NAME.old-2` and so on for a folder."""
    number = 1
    while (old_path := path.with_name(f"{path.name}.old-{number}")).exists():
        number += 1
    return old_path


def refuse_working_folder(path: Path) -> None:
    """Raise RunFolderError if the folder contains the working folder, because it cannot be moved."""
    if Path.cwd().is_relative_to(path.resolve()):
        raise RunFolderError(
            f"{str(path)!r} cannot be moved aside from within; go to another folder first, or give another output"
        )


def move_aside(path: Path) -> Path:
    """Rename a folder to the path of `next_old_path`, and return that path.

    Raises:
        RunFolderError: The folder contains the working folder.
        OSError: The folder cannot be renamed.
    """
    refuse_working_folder(path)
    return path.rename(next_old_path(path))


_URL = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://")


def is_url(value: object) -> bool:
    """Return whether a value is a text with a URL scheme, such as `s3://bucket/runs/first`."""
    return isinstance(value, str) and _URL.match(value) is not None
