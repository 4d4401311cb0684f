"""Commits of the journal: batches, the connection that writes them, and the one thread that commits together everything
that has come meanwhile.
"""

import asyncio
import os
import sqlite3
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from threading import Condition, Event, Lock, Thread
from time import monotonic

from refinesynth.errors import StorageError
from refinesynth.journal.connecting import (
    PAGE_SIZE,
    WAL_KEPT,
    connect_to_write,
    in_plain_words,
    refuse_if_gone,
    storage_error,
    wal_of,
)
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
    commits = Commits(connect_to_write(path))

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


LONGEST_S = 0.005
"""How long a commit waits at most for others to join it, in seconds. It adds to a completion that took a hundred times
longer."""

_TRY_EVERY_S = 0.1
"""How often it is found out how many would join, in seconds."""

_WORTH_IT = 4
"""Fewer than these are not waited for."""

ALL = 1 << 62
"""More than will ever come."""


class Gathering:
    """Finds out how many calls come together within `LONGEST_S`, by waiting that long now and then.

    A commit costs the same for one call and for ten. Where many come, waiting for them saves most of that. Where one
    comes after the other, or as many as there are callers, waiting any longer gives nothing: those who would call are
    waiting too.
    """

    def __init__(self) -> None:
        self._usual = 1
        self._next_try = float("-inf")
        self._trying = False

    def begin(self, now: float) -> int:
        """How many calls to wait for, `LONGEST_S` at most, once the first is there at `now` (seconds of any clock)."""
        self._trying = now >= self._next_try
        return ALL if self._trying else self._usual

    def end(self, came: int, now: float) -> None:
        """What came by `now`, when the wait was over."""
        if self._trying:
            self._usual = came if came >= _WORTH_IT else 1
            self._next_try = now + _TRY_EVERY_S


class Writer:
    """Commits in the order of the calls, many calls at a time.

    The thread starts with the first call. It is a daemon: a process that ends without `close` loses what was not
    reported to be committed, as if it had been killed.
    """

    def __init__(self, path: Path, connection: sqlite3.Connection) -> None:
        """Write through `connection`, which becomes this writer's own."""
        self._path = path.absolute()
        self._commits = Commits(connection)
        self._process = os.getpid()
        self._gathering = Gathering()
        self._changed = Condition()
        # All below are guarded by the condition's lock.
        self._filling = Batch()
        self._last = self._filling
        self._failure: Failure | None = None
        self._closing = False
        self._wanted = 0
        """Calls for which the thread is to be woken; 0 while it is awake."""
        self._thread: Thread | None = None

    def put(self, fill: Callable[[Batch], None]) -> Batch:
        """Add something to the next batch with `fill`, which must be quick; await the batch to know it committed.

        Raises:
            StorageError: Something before it could not be committed.
            RuntimeError: The writer is closed, or belongs to the process that this one was forked from.
        """
        if self._process != os.getpid():
            # Before the lock, which no one in this process may be there to give back.
            raise RuntimeError(
                f"the journal at {str(self._path)!r} was opened by process {self._process}; a forked process opens its own"
            )
        with self._changed:
            self._check()
            batch = self._last = self._filling
            fill(batch)
            batch.calls += 1
            if self._thread is None:
                thread = Thread(target=self._run, name="refinesynth-journal", daemon=True)
                thread.start()
                self._thread = thread
            elif 0 < self._wanted <= batch.calls:
                self._changed.notify()
            return batch

    def last(self) -> Batch | None:
        """The batch that everything before this call is committed with; None if nothing came yet.

        Raises:
            StorageError: Something could not be committed.
        """
        with self._changed:
            if self._failure is not None:
                raise self._failure.error()
            return None if self._thread is None else self._last

    def close(self) -> None:
        """Commit everything that came, end the thread, let go of the file. More calls do nothing, nor do those of a
        fork.

        Raises:
            StorageError: Something could not be committed, and that was not reported before.
        """
        if self._process != os.getpid():
            return
        with self._changed:
            first, self._closing = not self._closing, True
            self._changed.notify()
        if not first:
            return
        if self._thread is not None:
            self._thread.join()
        self._commits.close()
        if self._failure is not None and not self._failure.reported:
            raise self._failure.error()

    def _check(self) -> None:
        if self._failure is not None:
            raise self._failure.error()
        if self._closing:
            raise RuntimeError(f"the journal at {str(self._path)!r} is closed")

    def _run(self) -> None:
        while (batch := self._next()) is not None:
            failure = self._commit(batch)
            batch.end(failure)
            if failure is None:
                self._commits.tidy()

    def _next(self) -> Batch | None:
        """The next batch that has anything in it; None when there will be none."""
        with self._changed:
            self._wait_for(1)
            wanted = self._gathering.begin(monotonic())
            if self._filling.calls < wanted:
                self._wait_for(wanted, LONGEST_S)
            batch, self._filling = self._filling, Batch()
            self._gathering.end(batch.calls, monotonic())
            return batch if batch.calls else None

    def _wait_for(self, calls: int, seconds: float | None = None) -> None:
        """Sleep until so many calls have come, the journal closes, or the time is up; the lock is free meanwhile."""
        self._wanted = calls
        self._changed.wait_for(lambda: self._closing or self._filling.calls >= calls, seconds)
        self._wanted = 0

    def _commit(self, batch: Batch) -> Failure | None:
        if self._failure is None:
            try:
                self._commits.commit(batch)
                # Afterwards: where the folder was only moved, all that was paid for goes with it.
                refuse_if_gone(self._path)
                self._commits.check_log(wal_of(self._path))
            except Exception as error:  # noqa: BLE001 - of any error all that wait must be notified
                found = Failure(str(storage_error(self._path, error)), error)
                with self._changed:
                    self._failure = found
        return self._failure
