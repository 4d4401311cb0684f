"""Connections to a journal's file for writing or reading; its tables; SQLite's errors with advice.

Only SQLite may open the file. POSIX locks belong to a process: closing any other file handle releases the locks of all
connections in this process, and the next program that reads the journal then deletes the log of a running run.
"""

import os
import sqlite3
from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress
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
    sqlite3.SQLITE_CANTOPEN: "cannot be opened. Where it was not closed, its folder must be writable, also to read it: copy "
    "the whole folder to where you may write, and use the copy",
    sqlite3.SQLITE_BUSY: _IN_USE,
    sqlite3.SQLITE_LOCKED: _IN_USE,
    sqlite3.SQLITE_PROTOCOL: _IN_USE,
    sqlite3.SQLITE_IOERR: "cannot be read or written: the disk reports an error, or a limit of its size is reached",
    sqlite3.SQLITE_NOTADB: _DAMAGED,
    sqlite3.SQLITE_CORRUPT: _DAMAGED,
}


def storage_error(path: Path, error: BaseException) -> StorageError:
    """Return the StorageError for a failure with the file at `path`."""
    match error:
        case StorageError():
            return error
        case sqlite3.Error():
            # Errors without a code, which Python's module raises itself, and most other codes mean content that SQLite
            # cannot interpret.
            advice = _ADVICE.get(getattr(error, "sqlite_errorcode", 0) & 0xFF, _DAMAGED)
            return StorageError(f"{str(path)!r} {advice} ({error})")
        case UnicodeDecodeError():
            # SQLite's message quotes the damaged content.
            return damaged(path, str(error))
        case OSError():
            return StorageError(f"{str(path)!r} cannot be used: {error.strerror or error}")
        case _:
            return StorageError(f"{str(path)!r} cannot be used: {type(error).__name__}: {error}")


def damaged(path: Path, reason: str) -> StorageError:
    """Return the StorageError for content that no journal writer produces."""
    return StorageError(f"{str(path)!r} {_DAMAGED} ({reason})")


def refuse_if_gone(path: Path) -> None:
    """Raise StorageError if the file is no longer at `path`."""
    if not path.exists():
        raise StorageError(
            f"{str(path)!r} is gone: its folder was moved or deleted while the run went on. Move it back, or give its new place as "
            f"the folder, and the same command goes on with it; a deleted one has to be run again from the beginning"
        )


@contextmanager
def storage_errors(path: Path) -> Generator[None]:
    """Convert errors of SQLite and the file system about `path` to `StorageError`."""
    try:
        yield
    except sqlite3.ProgrammingError:
        # A bug of the caller, such as a closed connection, not of the file.
        raise
    except (sqlite3.Error, OSError, MemoryError, UnicodeDecodeError) as error:
        raise storage_error(path, error) from error


_WRITER_TIMEOUT_S = 30.0
_READER_TIMEOUT_S = 10.0
"""Longest wait for another process that locks the file, in seconds."""

_MAX_VALUE_BYTES = 512 * 1024 * 1024
"""Longest single value that is read, in bytes; a longer one counts as damage."""

MAX_WAL_BYTES = 64 * 1024 * 1024
"""Largest size of the emptied write-ahead log on disk, in bytes."""


def wal_of(path: Path) -> Path:
    return path.with_name(path.name + "-wal")


def connect_to_write(path: Path) -> sqlite3.Connection:
    """Open the journal for writing; create a missing one."""
    with storage_errors(path):
        if not path.exists():
            _create(path)
        # Checked for reading first: a writable connection deletes the log of a file that it cannot read.
        connect_to_read(path).close()
        return _connect(path, "mode=rw", _prepare, timeout_s=_WRITER_TIMEOUT_S)


def connect_to_read(path: Path) -> sqlite3.Connection:
    """Open the journal for reading; others may write meanwhile."""
    with storage_errors(path):
        if not path.exists():
            raise StorageError(f"there is no journal at {str(path)!r}")
        if not path.is_file():
            raise StorageError(f"{str(path)!r} is no journal but a directory or a device")
        if not path.stat().st_size:
            # SQLite would treat the empty file as a new database and delete its log.
            raise damaged(path, "it is empty")
        return _connect(path, "mode=ro", check_format, timeout_s=_READER_TIMEOUT_S)


def _connect(
    path: Path, query: str, prepare: Callable[[sqlite3.Connection, Path], None], *, timeout_s: float
) -> sqlite3.Connection:
    # Autocommit mode: the caller begins transactions. One thread at a time uses a connection, not always the same.
    connection = sqlite3.connect(
        f"{path.absolute().as_uri()}?{query}",
        uri=True,
        timeout=timeout_s,
        isolation_level=None,
        check_same_thread=False,
    )
    try:
        connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, _MAX_VALUE_BYTES)
        connection.execute("PRAGMA trusted_schema = OFF")
        connection.execute("PRAGMA cell_size_check = ON")
        prepare(connection, path)
    except BaseException:
        connection.close()
        raise
    return connection


def _create(path: Path) -> None:
    """Create an empty journal under another name, then rename it: an empty file at `path` always means damage."""
    if wal_of(path).exists():
        # SQLite would apply this log to the new journal.
        raise damaged(path, f"it is missing, and {wal_of(path).name!r} is there")
    new_path = path.with_name(path.name + ".new")
    new_path.unlink(missing_ok=True)
    new_path.touch()
    _connect(new_path, "mode=rw", create_tables, timeout_s=_WRITER_TIMEOUT_S).close()
    new_path.replace(path)
    # Some systems cannot sync a folder; a power failure in the next seconds may then undo the rename.
    with suppress(OSError):
        folder = os.open(path.parent, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)


def _prepare(connection: sqlite3.Connection, path: Path) -> None:
    mode = connection.execute("PRAGMA journal_mode = WAL").fetchone()[0]
    if mode != "wal":
        raise StorageError(f"{str(path)!r} is on a file system without shared memory; choose a folder on a local disk")
    connection.execute("PRAGMA synchronous = NORMAL")
    # The writer runs checkpoints itself, after it has notified the waiters of a commit.
    connection.execute("PRAGMA wal_autocheckpoint = 0")
    connection.execute(f"PRAGMA journal_size_limit = {MAX_WAL_BYTES}")
    # Some builds of SQLite overwrite deleted content with zeros by default.
    connection.execute("PRAGMA secure_delete = OFF")
    # Detects an unwritable file now, not after the first paid completion.
    connection.execute("BEGIN IMMEDIATE")
    connection.execute("ROLLBACK")


APPLICATION_ID = 0x52_46_53_59
"""SQLite application id of a journal, "RFSY"."""

FORMAT = 1
"""Version of the tables; every other version is refused."""

PAGE_SIZE = 4_096

# paid     every paid completion, in commit order
# begun    episodes with a paid completion; an index of `paid` instead would cost a third of all write time
# sums     usage and cost per role and model; a trigger updates it, which keeps it consistent with `paid`
# entries  ended episodes whose records are in the files, without gaps from 0
# held     ended episodes with an earlier one that has not ended
# notes    single values by name
#
# The answer is the last column: SQLite reads the columns before it without the answer.
TABLES = (
    """CREATE TABLE paid (
        idx INTEGER NOT NULL, episode TEXT NOT NULL, attempt INTEGER NOT NULL, role TEXT NOT NULL,
        step INTEGER NOT NULL, digest BLOB NOT NULL, model TEXT NOT NULL, input_tokens INTEGER NOT NULL,
        cached_tokens INTEGER NOT NULL, cache_write_tokens INTEGER NOT NULL, output_tokens INTEGER NOT NULL,
        cost_usd REAL, answer BLOB NOT NULL)""",
    "CREATE UNIQUE INDEX paid_once ON paid (episode, role, step, digest)",
    "CREATE TABLE begun (idx INTEGER NOT NULL, episode TEXT NOT NULL, PRIMARY KEY (idx, episode)) WITHOUT ROWID",
    """CREATE TABLE sums (
        role TEXT NOT NULL, model TEXT NOT NULL, requests INTEGER NOT NULL, input_tokens INTEGER NOT NULL,
        cached_tokens INTEGER NOT NULL, cache_write_tokens INTEGER NOT NULL, output_tokens INTEGER NOT NULL,
        cost_usd REAL NOT NULL, unpriced INTEGER NOT NULL, PRIMARY KEY (role, model)) WITHOUT ROWID""",
    """CREATE TRIGGER paid_is_summed AFTER INSERT ON paid BEGIN
        INSERT INTO sums VALUES (new.role, new.model, 1, new.input_tokens, new.cached_tokens, new.cache_write_tokens,
            new.output_tokens, coalesce(new.cost_usd, 0.0), new.cost_usd IS NULL)
        ON CONFLICT (role, model) DO UPDATE SET
            requests = requests + 1, input_tokens = input_tokens + excluded.input_tokens,
            cached_tokens = cached_tokens + excluded.cached_tokens,
            cache_write_tokens = cache_write_tokens + excluded.cache_write_tokens,
            output_tokens = output_tokens + excluded.output_tokens,
            cost_usd = cost_usd + excluded.cost_usd, unpriced = unpriced + excluded.unpriced;
        END""",
    """CREATE TABLE entries (
        idx INTEGER PRIMARY KEY, id TEXT NOT NULL, persona TEXT NOT NULL, accepted INTEGER NOT NULL,
        trajectories_end INTEGER NOT NULL, rejected_end INTEGER NOT NULL, line BLOB NOT NULL)""",
    """CREATE TABLE held (
        idx INTEGER PRIMARY KEY, id TEXT NOT NULL, persona TEXT NOT NULL, accepted INTEGER NOT NULL,
        line BLOB NOT NULL, records BLOB NOT NULL)""",
    "CREATE TABLE notes (name TEXT PRIMARY KEY, value BLOB) WITHOUT ROWID",
)


def create_tables(connection: sqlite3.Connection, _path: Path) -> None:
    connection.execute(f"PRAGMA page_size = {PAGE_SIZE}")
    connection.execute("BEGIN")
    for statement in TABLES:
        connection.execute(statement)
    connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
    connection.execute(f"PRAGMA user_version = {FORMAT}")
    connection.execute("COMMIT")


def check_format(connection: sqlite3.Connection, path: Path) -> None:
    """Raise StorageError for a file that is no journal or has another format version."""
    application, version = (
        connection.execute(f"PRAGMA {name}").fetchone()[0] for name in ("application_id", "user_version")
    )
    if application != APPLICATION_ID:
        raise damaged(path, "it is no journal of a run")
    if version != FORMAT:
        raise StorageError(
            f"{str(path)!r} was written by a {'newer' if version > FORMAT else 'different'} refinesynth: its format is "
            f"{version}, and this one reads format {FORMAT}. Use the version that wrote it, or a later one"
        )
    tables = {row[0] for row in connection.execute("SELECT sql FROM sqlite_schema WHERE sql IS NOT NULL")}
    if tables != set(TABLES):
        raise damaged(path, "its tables are not those that a run makes")
