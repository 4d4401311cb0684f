"""What is committed in one transaction, who waits for it, and the connection that writes it."""

import asyncio
import sqlite3
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from threading import Event, Lock

from refinesynth.errors import StorageError
from refinesynth.journal.connecting import PAGE_SIZE, WAL_KEPT, connect_to_write, in_plain_words
from refinesynth.journal.rows import ENTRY_COLUMNS, HELD_COLUMNS, PAID_COLUMNS, Row, committed_to_row, pack, paid_to_row
from refinesynth.journal.values import Entry, Paid


@dataclass
class Failure:
    """Why nothing more can be committed."""

    message: str
    cause: BaseException
    reported: bool = False
    """Whether a caller got it."""

    def error(self) -> StorageError:
        """A new error for each caller that gets it, since each has a traceback of its own."""
        self.reported = True
        error = StorageError(self.message)
        error.__cause__ = self.cause
        return error


class Batch:
    """Filled by its owner until the writer takes it. Awaiting it returns when it is committed.

    Raises:
        StorageError: It could not be committed, and neither can anything after it.
    """

    def __init__(self) -> None:
        self.calls = 0
        """How often something was put in."""
        self.forget_from: int | None = None
        """Comes before everything else."""
        self.paid: list[Row] = []
        self.begun: list[Row] = []
        self.committed: list[Row] = []
        self.held: dict[int, Row] = {}
        self.notes: dict[str, bytes | None] = {}
        """New values; those of other names stay."""
        self.size = 0
        """Roughly, in bytes."""
        self.failure: Failure | None = None
        self._ended = False
        self._telling = Lock()
        self._waiting: dict[asyncio.AbstractEventLoop, list[asyncio.Future[None]]] = {}
        self._blocked: list[Event] = []

    def __await__(self) -> Generator[object, None, None]:
        waiter = self._waiter()
        if waiter is not None:
            # A caller that is cancelled here takes nothing back.
            yield from waiter
        self._tell()

    def wait(self) -> None:
        """Block this thread until the batch is committed.

        Raises:
            StorageError: It could not be.
        """
        event = Event()
        with self._telling:
            if self._ended:
                event.set()
            self._blocked.append(event)
        event.wait()
        self._tell()

    def end(self, failure: Failure | None) -> None:
        """Notify all that wait, on any loop or thread."""
        self.failure = failure
        with self._telling:
            self._ended = True
        for event in self._blocked:
            event.set()
        for loop, waiting in self._waiting.items():
            try:
                loop.call_soon_threadsafe(_release, waiting)
            except RuntimeError:
                # The loop is closed: nothing waits there any more.
                continue

    def _waiter(self) -> "asyncio.Future[None] | None":
        loop = asyncio.get_running_loop()
        with self._telling:
            if self._ended:
                return None
            waiter = loop.create_future()
            self._waiting.setdefault(loop, []).append(waiter)
            return waiter

    def _tell(self) -> None:
        if self.failure is not None:
            raise self.failure.error()


def _release(waiting: "list[asyncio.Future[None]]") -> None:
    for waiter in waiting:
        if not waiter.done():
            waiter.set_result(None)


_MOST_ROWS = 128
"""Rows in one statement: a power of two."""

_CHECKPOINT_EVERY = 4 * 1024 * 1024
"""What is committed before the log is copied back, in bytes."""

_PATIENCE_MS = 500
"""How long readers may keep a log that has grown too long from being emptied before the writer goes on, in
milliseconds."""


class Commits:
    """Commits batches. For one thread."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection
        self._since_checkpoint = 0
        self._too_long = WAL_KEPT
        """Size of the log at which readers are made to wait, in bytes."""
        self._log: int | None = None
        """Inode of the log that was written to."""

    def commit(self, batch: Batch) -> None:
        """Commit all of a batch or nothing.

        Raises:
            sqlite3.Error: It could not be written.
        """
        held = [(*row[:-1], pack(row[-1])) for row in batch.held.values()]
        run = self._connection.execute
        run("BEGIN IMMEDIATE")
        try:
            if batch.forget_from is not None:
                run("DELETE FROM entries WHERE idx >= ?", (batch.forget_from,))
                run("DELETE FROM held WHERE idx >= ?", (batch.forget_from,))
            # What is there already is left alone, and the trigger does not count it again.
            self._insert("INTO paid", PAID_COLUMNS, batch.paid, "ON CONFLICT (episode, role, step, digest) DO NOTHING")
            self._insert("INTO begun", "idx, episode", batch.begun, "ON CONFLICT (idx, episode) DO NOTHING")
            if batch.committed:
                self._insert("INTO entries", ENTRY_COLUMNS, batch.committed)
                run("DELETE FROM held WHERE idx BETWEEN ? AND ?", (batch.committed[0][0], batch.committed[-1][0]))
            self._insert("OR REPLACE INTO held", HELD_COLUMNS, held)
            for note in batch.notes.items():
                run("INSERT OR REPLACE INTO notes VALUES (?, ?)", note)
            run("COMMIT")
        except BaseException:
            with suppress(sqlite3.Error):
                self._connection.rollback()
            raise
        self._since_checkpoint += batch.size

    def check_log(self, log: Path) -> None:
        """See that `log` is still the file that this connection writes to.

        Raises:
            StorageError: It was deleted. Everything that was committed has been copied into the journal by then.
        """
        found = log.stat().st_ino if log.exists() else None
        if found is None or self._log not in {None, found}:
            self._connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
            raise StorageError(
                f"{str(log)!r} was deleted while the run wrote to it, as happens when this process opens the journal "
                f"beside refinesynth, to copy it for example, and another program reads it. Nothing is lost. Run the "
                f"same command again, and copy a run folder from another process"
            )
        self._log = found

    def tidy(self) -> None:
        """Now and then copy the log back into the file. What fails here is still in the log and is tried again."""
        if self._since_checkpoint < _CHECKPOINT_EVERY:
            return
        self._since_checkpoint = 0
        with suppress(sqlite3.Error):
            _, pages, _ = self._connection.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchone()
            if pages * PAGE_SIZE > self._too_long:
                # Readers follow so closely on each other that the log is never free. If one of them stands still,
                # waiting for it does not help, and soon again even less.
                self._too_long = WAL_KEPT if self._empty_log() else 2 * pages * PAGE_SIZE

    def _empty_log(self) -> bool:
        """Copy the log back and cut it, making readers wait; False if one of them did not end soon enough."""
        patience = self._connection.execute("PRAGMA busy_timeout").fetchone()[0]
        self._connection.execute(f"PRAGMA busy_timeout = {_PATIENCE_MS}")
        try:
            busy, _, _ = self._connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
        finally:
            self._connection.execute(f"PRAGMA busy_timeout = {patience}")
        return not busy

    def close(self) -> None:
        """Leave one file behind that can be read and copied as it is, and let go of it.

        Where a reader or a full disk is in the way, the log stays beside it, and both together are the journal.
        """
        with suppress(sqlite3.Error):
            self._connection.execute(f"PRAGMA busy_timeout = {_PATIENCE_MS}")
            self._connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
            self._connection.execute("PRAGMA journal_mode = DELETE").fetchone()
        self._connection.close()

    def _insert(self, into: str, columns: str, rows: Sequence[Row], otherwise: str = "") -> None:
        # Many rows to a statement, and not `executemany`: between two rows that one waits for the interpreter, which a
        # busy event loop gives away every few milliseconds only.
        at = 0
        while at < len(rows):
            size = min(_MOST_ROWS, 1 << (len(rows) - at).bit_length() - 1)
            values = [value for row in rows[at : at + size] for value in row]
            self._connection.execute(_insertion(into, columns, size, otherwise), values)
            at += size


@cache
def _insertion(into: str, columns: str, rows: int, otherwise: str) -> str:
    places = f"({', '.join('?' * (columns.count(',') + 1))})"
    return f"INSERT {into} ({columns}) VALUES {', '.join([places] * rows)} {otherwise}"  # noqa: S608 - constants


Restore = Callable[[Sequence[Paid], Sequence[Entry], Mapping[str, bytes | None]], None]
"""Commits completions, episodes and notes, in one step. What is there already stays; episodes take the place of what
was there from the first of them on, so the same may come twice.
"""


@contextmanager
def restoring(path: Path) -> Generator[Restore]:
    """What writes to the journal at `path`, which is made if it is missing; for one process alone.

    Raises:
        StorageError: It cannot be made or written.
    """
    connection, _ = connect_to_write(path, lasting=False)
    commits = Commits(connection)

    def restore(paid: Sequence[Paid], entries: Sequence[Entry], notes: Mapping[str, bytes | None]) -> None:
        batch = Batch()
        batch.paid = [paid_to_row(one) for one in paid]
        batch.begun = [*dict.fromkeys((row[0], row[1]) for row in batch.paid)]
        batch.forget_from = entries[0].index if entries else None
        batch.committed = [committed_to_row(entry) for entry in entries]
        batch.notes = dict(notes)
        with in_plain_words(path):
            commits.commit(batch)

    try:
        yield restore
    finally:
        commits.close()
