"""Commits of the journal: batches, and the thread and connection that commit pending calls together."""

import asyncio
import os
import sqlite3
import threading
from collections.abc import Awaitable, Callable, Generator, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from pathlib import Path

from refinesynth.errors import StorageError
from refinesynth.journal.journal_values import (
    ENTRY_COLUMNS,
    HELD_COLUMNS,
    PAID_COLUMNS,
    Entry,
    PaidCompletion,
    Row,
    committed_to_row,
    held_to_row,
    pack,
    paid_to_row,
)
from refinesynth.journal.reader import ENDED_BELOW, TOTALS, JournalReader
from refinesynth.journal.sqlite_file import (
    connect_to_write,
    refuse_if_gone,
    storage_error,
    wal_of,
)


@dataclass
class Failure:
    """Failure after which nothing more can be committed."""

    message: str
    cause: BaseException
    reported: bool = False
    """True after a caller got the error."""

    def error(self) -> StorageError:
        """Return a new error for each caller: a shared one would collect the tracebacks of all."""
        self.reported = True
        error = StorageError(self.message)
        error.__cause__ = self.cause
        return error


@dataclass
class Batch:
    """Rows that are committed together. Awaiting a batch waits for its commit.

    Raises:
        StorageError: The batch could not be committed; later batches cannot be committed either.
    """

    calls: int = 0
    """Number of `Writer.put` calls in this batch."""
    forget_from: int | None = None
    """Index from which ended episodes are deleted, before all other changes."""
    paid: list[Row] = field(default_factory=list[Row])
    begun: list[Row] = field(default_factory=list[Row])
    committed: list[Row] = field(default_factory=list[Row])
    held: dict[int, Row] = field(default_factory=dict[int, Row])
    notes: dict[str, bytes | None] = field(default_factory=dict[str, bytes | None])
    """New values by name; other notes stay."""
    size: int = 0
    """Approximate bytes."""
    failure: Failure | None = None

    def __post_init__(self) -> None:
        self._ended = threading.Event()
        self._lock = threading.Lock()
        self._loops: dict[asyncio.AbstractEventLoop, asyncio.Event] = {}

    def __await__(self) -> Generator[object, None, None]:
        with self._lock:
            done = None if self._ended.is_set() else self._loops.setdefault(asyncio.get_running_loop(), asyncio.Event())
        if done is not None:
            # A cancellation here does not revert the call.
            yield from done.wait().__await__()
        self._raise()

    def wait(self) -> None:
        """Block this thread until the batch is committed."""
        self._ended.wait()
        self._raise()

    def end(self, failure: Failure | None) -> None:
        """Wake all waiters, on any loop or thread."""
        self.failure = failure
        with self._lock:
            self._ended.set()
        for loop, done in self._loops.items():
            # A closed loop has no waiters.
            with suppress(RuntimeError):
                loop.call_soon_threadsafe(done.set)

    def _raise(self) -> None:
        if self.failure is not None:
            raise self.failure.error()


_CHECKPOINT_EVERY = 4 * 1024 * 1024
"""Committed bytes between two checkpoints of the write-ahead log."""

_CLOSE_TIMEOUT_MS = 500
"""Longest wait for readers when the closing journal empties its log, in milliseconds."""


class Writer:
    """Thread that commits in the order of the calls, many calls at a time.

    The thread starts with the first call. It is a daemon: a process that exits without `close` loses uncommitted
    calls, as if killed.
    """

    def __init__(self, path: Path, connection: sqlite3.Connection) -> None:
        self._path = path.absolute()
        self._process = os.getpid()
        # Only the thread uses these.
        self._connection = connection
        self._bytes_since_checkpoint = 0
        self._log_inode: int | None = None
        """Inode of the write-ahead log in use."""
        self._changed = threading.Condition()
        # The condition's lock guards all fields below.
        self._next_batch = Batch()
        self._failure: Failure | None = None
        self._closing = False
        self._thread: threading.Thread | None = None

    def put(self, fill: Callable[[Batch], None]) -> Batch:
        """Call `fill`, which must be fast, on the next batch, and return that batch; await it for the commit."""
        if self._process != os.getpid():
            # Before the lock: after a fork, the thread that holds it may not exist in this process.
            raise RuntimeError(
                f"the journal at {str(self._path)!r} was opened by process {self._process}; a forked process opens its own"
            )
        with self._changed:
            if self._failure is not None:
                raise self._failure.error()
            if self._closing:
                raise RuntimeError(f"the journal at {str(self._path)!r} is closed")
            batch = self._next_batch
            fill(batch)
            if self._thread is None:
                thread = threading.Thread(target=self._run, name="refinesynth-journal", daemon=True)
                thread.start()
                self._thread = thread
            elif not batch.calls:
                self._changed.notify()
            batch.calls += 1
            return batch

    def close(self) -> None:
        """Commit everything, end the thread and release the file; idempotent, no effect in a forked process."""
        if self._process != os.getpid():
            return
        with self._changed:
            is_first, self._closing = not self._closing, True
            self._changed.notify()
        if not is_first:
            return
        if self._thread is not None:
            self._thread.join()
        self._release()
        if self._failure is not None and not self._failure.reported:
            raise self._failure.error()

    def _run(self) -> None:
        while (batch := self._take_batch()) is not None:
            failure = self._commit(batch)
            batch.end(failure)
            if failure is None:
                self._checkpoint()

    def _take_batch(self) -> Batch | None:
        """Return the calls made during the last commit, or wait for the first; None when the writer closes."""
        with self._changed:
            self._changed.wait_for(lambda: self._closing or self._next_batch.calls)
            batch, self._next_batch = self._next_batch, Batch()
            return batch if batch.calls else None

    def _commit(self, batch: Batch) -> Failure | None:
        if self._failure is None:
            try:
                self.write(batch)
                # After the write: if the folder was only moved, the paid completions move with it.
                refuse_if_gone(self._path)
                self._check_log(wal_of(self._path))
            except Exception as error:  # noqa: BLE001 - waiters must get any error
                failure = Failure(str(storage_error(self._path, error)), error)
                with self._changed:
                    self._failure = failure
        return self._failure

    def write(self, batch: Batch) -> None:
        """Commit a batch in one transaction. Raises sqlite3.Error: the batch could not be written."""
        held = [(*row[:-1], pack(row[-1])) for row in batch.held.values()]
        execute = self._connection.execute
        execute("BEGIN IMMEDIATE")
        try:
            if batch.forget_from is not None:
                execute("DELETE FROM entries WHERE idx >= ?", (batch.forget_from,))
                execute("DELETE FROM held WHERE idx >= ?", (batch.forget_from,))
            # An existing row stays, and the trigger does not count it again.
            self._insert("INTO paid", PAID_COLUMNS, batch.paid, "ON CONFLICT (episode, role, step, digest) DO NOTHING")
            self._insert("INTO begun", "idx, episode", batch.begun, "ON CONFLICT (idx, episode) DO NOTHING")
            if batch.committed:
                self._insert("INTO entries", ENTRY_COLUMNS, batch.committed)
                execute("DELETE FROM held WHERE idx BETWEEN ? AND ?", (batch.committed[0][0], batch.committed[-1][0]))
            self._insert("OR REPLACE INTO held", HELD_COLUMNS, held)
            for note in batch.notes.items():
                execute("INSERT OR REPLACE INTO notes VALUES (?, ?)", note)
            execute("COMMIT")
        except BaseException:
            with suppress(sqlite3.Error):
                self._connection.rollback()
            raise
        self._bytes_since_checkpoint += batch.size

    def _check_log(self, log_path: Path) -> None:
        """Raise StorageError if `log_path` is no longer this connection's file; the journal then has all commits."""
        inode = log_path.stat().st_ino if log_path.exists() else None
        if inode is None or self._log_inode not in {None, inode}:
            self._connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
            raise StorageError(
                f"{str(log_path)!r} was deleted while the run wrote to it, as happens when this process opens the journal "
                f"beside refinesynth, to copy it for example, and another program reads it. Nothing is lost. Run the "
                f"same command again, and copy a run folder from another process"
            )
        self._log_inode = inode

    def _checkpoint(self) -> None:
        """Copy the log into the file every `_CHECKPOINT_EVERY` bytes, after waiters are notified; ignore a failure."""
        if self._bytes_since_checkpoint >= _CHECKPOINT_EVERY:
            self._bytes_since_checkpoint = 0
            with suppress(sqlite3.Error):
                self._connection.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchone()

    def _release(self) -> None:
        """Close the connection and leave a single file; the log stays if a reader or a full disk prevents that."""
        with suppress(sqlite3.Error):
            self._connection.execute(f"PRAGMA busy_timeout = {_CLOSE_TIMEOUT_MS}")
            self._connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
            self._connection.execute("PRAGMA journal_mode = DELETE").fetchone()
        self._connection.close()

    def _insert(self, target: str, columns: str, rows: Sequence[Row], on_conflict: str = "") -> None:
        placeholders = ", ".join("?" * (columns.count(",") + 1))
        statement = f"INSERT {target} ({columns}) VALUES ({placeholders}) {on_conflict}"  # noqa: S608 - constants
        self._connection.executemany(statement, rows)


_ROW_BYTES = 200
"""Approximate bytes of a row without its longest values."""


class Journal(JournalReader):
    """Writer and reader of a journal: every paid completion and every ended episode, in one SQLite file.

    A commit survives any end of the process. A power failure may lose the latest commits, but does not damage the file.
    One journal at a time may be open for writing (see `output_folder.FolderLock`), with any number of readers. It
    belongs to the process that opened it: a forked or spawned process opens its own.

    After the first failure to write, every later commit raises `StorageError`; earlier commits are not lost.
    """

    def __init__(self, path: Path) -> None:
        """Open or create the journal at `path`. Raises StorageError: it is unwritable, damaged or of another version."""
        self._begun_ids: dict[int, str] = {}
        """Index to id of the episodes in flight that are recorded as begun."""
        with ExitStack() as on_failure:
            self._writer = Writer(path, connect_to_write(path))
            on_failure.callback(self._writer.close)
            super().__init__(path)
            on_failure.callback(super().close)
            self._next_index = self.committed.count
            """Number of committed or enqueued episodes."""
            on_failure.pop_all()

    async def keep(self, *paid: PaidCompletion) -> None:
        """Commit completions together; an existing one with the same episode, role, step and digest stays.

        They are enqueued before the first `await`: a cancellation of the caller does not prevent the commit.
        """
        rows = [paid_to_row(completion) for completion in paid]

        def fill(batch: Batch) -> None:
            for completion, row in zip(paid, rows, strict=True):
                if self._begun_ids.get(completion.index) != row[1]:
                    self._begun_ids[completion.index] = row[1]
                    batch.begun.append((completion.index, row[1]))
                batch.paid.append(row)
                batch.size += len(completion.answer) + _ROW_BYTES

        await self._writer.put(fill)

    def enter(self, entries: Sequence[Entry], *, totals: bytes | None = None) -> Awaitable[None]:
        """Commit ended episodes and the sums up to them, in the order of the calls.

        They are enqueued when this returns; awaiting the result is optional. Committed entries come in the order of
        their indices without a gap, and replace held ones. Held entries come in any order.

        Raises:
            ValueError: A committed entry is out of order, or a held one is committed already.
        """
        next_index = self._next_index
        committed = [committed_to_row(entry) for entry in entries if not entry.is_held]
        held = [held_to_row(entry) for entry in entries if entry.is_held]
        for row in committed:
            if row[0] != next_index:
                raise ValueError(f"episode {row[0]} is committed, and {next_index} is in its turn")
            next_index += 1
        for row in held:
            if row[0] < next_index:
                raise ValueError(f"episode {row[0]} is held, and is committed already")

        def fill(batch: Batch) -> None:
            batch.committed.extend(committed)
            for row in committed:
                batch.held.pop(row[0], None)
                self._begun_ids.pop(row[0], None)
            batch.held.update((row[0], row) for row in held)
            if totals is not None:
                batch.notes[TOTALS] = totals
            batch.size += sum(len(entry.line) + len(entry.held or b"") + _ROW_BYTES for entry in entries)

        batch = self._writer.put(fill)
        self._next_index = next_index
        return batch

    def forget_from(self, index: int, *, totals: bytes | None) -> None:
        """Delete the entries from `index` on, held ones included; their completions stay. Block until the commit."""
        # Commits all earlier calls, which are read below.
        self._writer.put(lambda _batch: None).wait()
        ended = max(self.ended_below, self._next_index, *(held + 1 for held in self.held_indices()[-1:]))

        def fill(batch: Batch) -> None:
            batch.forget_from = index
            batch.notes[TOTALS] = totals
            batch.notes[ENDED_BELOW] = b"%d" % ended

        self._writer.put(fill).wait()
        self._next_index = min(self._next_index, index)

    async def keep_note(self, name: str, value: bytes) -> None:
        """Commit a value by name, replacing an earlier one; enqueued before the first `await`."""

        def fill(batch: Batch) -> None:
            batch.notes[name] = value

        await self._writer.put(fill)

    def close(self) -> None:
        """Commit everything into one file and end the thread; idempotent. Raises StorageError: an unreported failure."""
        # The reader first: the last connection merges the log, which only the writer can.
        super().close()
        self._writer.close()
