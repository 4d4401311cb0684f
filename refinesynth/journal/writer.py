"""The one thread that writes: it takes everything that has come meanwhile and commits it together."""

import os
import sqlite3
from collections.abc import Callable
from pathlib import Path
from threading import Condition, Thread
from time import monotonic

from refinesynth.journal.commits import Batch, Commits, Failure
from refinesynth.journal.connecting import refuse_if_gone, storage_error, wal_of

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
