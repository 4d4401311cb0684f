"""Opens a journal's file, for writing or for reading.

SQLite alone opens it. POSIX locks belong to a process: closing any other handle of the file would drop those of every
connection in this process, and the next program that reads the journal would take it for unused and delete the log of
a running run.
"""

import os
import sqlite3
from contextlib import suppress
from pathlib import Path

from refinesynth.errors import StorageError
from refinesynth.journal.faults import damaged, in_plain_words, primary_code
from refinesynth.journal.schema import check, set_up

_WRITER_WAITS_S = 30.0
_READER_WAITS_S = 10.0
"""How long another process may keep the file to itself, in seconds."""

_LARGEST = 512 * 1024 * 1024
"""Longest single value that is read, in bytes: a damaged length is not believed."""

WAL_KEPT = 64 * 1024 * 1024
"""What the write-ahead log may keep on the disk once it is empty, in bytes."""


def wal_of(path: Path) -> Path:
    """SQLite's write-ahead log of a journal."""
    return path.with_name(path.name + "-wal")


def connect_to_write(path: Path, *, lasting: bool) -> tuple[sqlite3.Connection, bool]:
    """A connection that may write, and whether the journal was made by this call.

    Raises:
        StorageError: It cannot be made, opened or written, or is no journal of this version.
    """
    with in_plain_words(path):
        made = not path.exists()
        if made:
            _make(path)
        # A connection that may write deletes the log of a file that it cannot read.
        connect_to_read(path).close()
        connection = _connect(path, "mode=rw", waits_s=_WRITER_WAITS_S)
        try:
            _prepare(connection, path, lasting=lasting)
        except BaseException:
            connection.close()
            raise
        return connection, made


def connect_to_read(path: Path) -> sqlite3.Connection:
    """A connection that never writes; others may write meanwhile.

    Raises:
        StorageError: There is no journal, it cannot be read, or is none of this version.
    """
    with in_plain_words(path):
        if not path.exists():
            raise StorageError(f"there is no journal at {str(path)!r}")
        if not path.is_file():
            raise StorageError(f"{str(path)!r} is no journal but a directory or a device")
        if not path.stat().st_size:
            # SQLite would take it for a new journal and delete its log.
            raise damaged(path, "it is empty")
        connection = _connect(path, "mode=ro", waits_s=_READER_WAITS_S)
        try:
            check(connection, path)
        except sqlite3.Error as error:
            connection.close()
            if primary_code(error) not in {sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_READONLY, sqlite3.SQLITE_PERM}:
                raise
            return _connect_where_nothing_can_be_written(path)
        except BaseException:
            connection.close()
            raise
        return connection


def _connect_where_nothing_can_be_written(path: Path) -> sqlite3.Connection:
    """SQLite keeps a small file beside the journal even for readers; where it cannot, no other process may write
    either.
    """
    log = wal_of(path)
    if log.exists() and log.stat().st_size:
        raise StorageError(
            f"{str(path)!r} was not closed and lies in a folder that cannot be written, so what {log.name!r} holds cannot "
            f"be read; copy the whole folder to where you may write, and use the copy"
        )
    connection = _connect(path, "mode=ro&immutable=1", waits_s=_READER_WAITS_S)
    try:
        check(connection, path)
    except BaseException:
        connection.close()
        raise
    return connection


def _connect(path: Path, query: str, *, waits_s: float) -> sqlite3.Connection:
    # Transactions are ours to begin; connections are used by one thread at a time, not always the same.
    connection = sqlite3.connect(
        f"{path.absolute().as_uri()}?{query}",
        uri=True,
        timeout=waits_s,
        isolation_level=None,
        check_same_thread=False,
    )
    connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, _LARGEST)
    connection.execute("PRAGMA trusted_schema = OFF")
    connection.execute("PRAGMA cell_size_check = ON")
    return connection


def _make(path: Path) -> None:
    """Make an empty journal under another name first: one that is there is whole, so an empty file means damage."""
    if wal_of(path).exists():
        # SQLite would take what it holds for the new journal's.
        raise damaged(path, f"it is missing, and {wal_of(path).name!r} is there")
    unborn = path.with_name(path.name + ".new")
    unborn.unlink(missing_ok=True)
    unborn.touch()
    connection = _connect(unborn, "mode=rw", waits_s=_WRITER_WAITS_S)
    try:
        set_up(connection)
    finally:
        connection.close()
    unborn.replace(path)
    # Not on every system; there, a power cut in the next seconds may take the new name away.
    with suppress(OSError):
        _sync_folder(path.parent)


def _sync_folder(folder: Path) -> None:
    opened = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(opened)
    finally:
        os.close(opened)


def _prepare(connection: sqlite3.Connection, path: Path, *, lasting: bool) -> None:
    mode = connection.execute("PRAGMA journal_mode = WAL").fetchone()[0]
    if mode != "wal":
        raise StorageError(f"{str(path)!r} is on a file system without shared memory; choose a folder on a local disk")
    connection.execute(f"PRAGMA synchronous = {'FULL' if lasting else 'NORMAL'}")
    # The writer copies the log back itself, after those who wait for a commit were notified.
    connection.execute("PRAGMA wal_autocheckpoint = 0")
    connection.execute(f"PRAGMA journal_size_limit = {WAL_KEPT}")
    # Some builds write zeros over everything that is deleted.
    connection.execute("PRAGMA secure_delete = OFF")
    # A file that cannot be written is found now, not when the first completion is paid.
    connection.execute("BEGIN IMMEDIATE")
    connection.execute("ROLLBACK")
