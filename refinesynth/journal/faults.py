"""What SQLite and the file system complain about, in words that say what to do."""

import sqlite3
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

from refinesynth.errors import StorageError

_DAMAGED = (
    "is damaged. What trajectories.jsonl and rejected.jsonl hold beside it can still be read and exported; to go on, put "
    "back a copy of it, or start in a new folder"
)
_IN_USE = "is in use by another process that does not let go of it; end that one"
_ADVICE = {
    sqlite3.SQLITE_NOMEM: "cannot be used: there is not enough memory",
    sqlite3.SQLITE_FULL: "cannot be written: the disk is full; make room and run the same command again",
    sqlite3.SQLITE_READONLY: "cannot be written: it or its folder is read-only",
    sqlite3.SQLITE_PERM: "cannot be used: permission is denied",
    sqlite3.SQLITE_CANTOPEN: "cannot be opened: it is missing, or its folder does not allow it",
    sqlite3.SQLITE_BUSY: _IN_USE,
    sqlite3.SQLITE_LOCKED: _IN_USE,
    sqlite3.SQLITE_PROTOCOL: _IN_USE,
    sqlite3.SQLITE_IOERR: "cannot be read or written: the disk reports an error, or a limit of its size is reached",
    sqlite3.SQLITE_NOTADB: _DAMAGED,
    sqlite3.SQLITE_CORRUPT: _DAMAGED,
}


def primary_code(error: sqlite3.Error) -> int | None:
    """SQLite's result code without its details; None for an error of Python's module itself."""
    # Absent, not None, where the error does not come from the library.
    code: int | None = getattr(error, "sqlite_errorcode", None)
    return None if code is None else code & 0xFF


def storage_error(path: Path, error: BaseException) -> StorageError:
    """The error to raise for what went wrong with the file at `path`."""
    match error:
        case StorageError():
            return error
        case sqlite3.Error():
            # Without a code, and with most others, it is content that SQLite could not make sense of.
            says = _ADVICE.get(primary_code(error) or 0, _DAMAGED)
            return StorageError(f"{str(path)!r} {says} ({error})")
        case UnicodeDecodeError():
            # What SQLite wanted to say quotes the damage.
            return damaged(path, str(error))
        case OSError():
            return StorageError(f"{str(path)!r} cannot be used: {error.strerror or error}")
        case _:
            return StorageError(f"{str(path)!r} cannot be used: {type(error).__name__}: {error}")


def damaged(path: Path, what: str) -> StorageError:
    """The error for content that this program did not write."""
    return StorageError(f"{str(path)!r} {_DAMAGED} ({what})")


def refuse_if_gone(path: Path) -> None:
    """See that a file that is being written is still where it was.

    Raises:
        StorageError: It is not: what is written now would not be found.
    """
    if not path.exists():
        raise StorageError(
            f"{str(path)!r} is gone: its folder was moved or deleted while the run went on. Move it back, or give its new place as "
            f"the folder, and the same command goes on with it; a deleted one has to be run again from the beginning"
        )


@contextmanager
def in_plain_words(path: Path) -> Generator[None]:
    """Within this block, what SQLite and the file system raise about `path` becomes a `StorageError`."""
    try:
        yield
    except sqlite3.ProgrammingError:
        # Used wrongly, after it was closed for example: not the file's fault.
        raise
    except (sqlite3.Error, OSError, MemoryError, UnicodeDecodeError) as error:
        raise storage_error(path, error) from error
