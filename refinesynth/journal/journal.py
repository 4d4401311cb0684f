"""Writer of a run's journal."""

from collections.abc import Awaitable, Sequence
from pathlib import Path

from refinesynth.journal.commits import Batch, Writer
from refinesynth.journal.journal_values import Entry, Paid
from refinesynth.journal.reader import ENDED_BELOW, TOTALS, JournalReader
from refinesynth.journal.rows import committed_to_row, held_to_row, paid_to_row
from refinesynth.journal.sqlite_file import connect_to_read, connect_to_write

_ROW = 200
"""Approximate bytes of a row beside its longest values."""


class Journal(JournalReader):
    """Every paid completion and every finished episode, in one SQLite file.

    A commit outlives the process, however it ends. A power cut may lose the last moments and never damages the file.
    One journal at a time may be open for writing (see `output_folder.FolderLock`), with any number of readers. It
    belongs to the process that opened it: a forked or spawned one opens its own.

    After the first failure to write, every further call fails with a `StorageError`; nothing that was committed is
    lost.
    """

    def __init__(self, path: Path) -> None:
        self._writer = Writer(path, connect_to_write(path))
        self._begun: dict[int, str] = {}
        """Index to id of the episodes in flight that are listed as begun."""
        try:
            super().__init__(path, connect_to_read(path))
        except BaseException:
            self._writer.close()
            raise
        try:
            self._count = self.committed.count
            """Episodes that are committed, or about to be."""
        except BaseException:
            self.close()
            raise

    @classmethod
    def open(cls, path: Path) -> "Journal":
        """Open or make the journal at `path` for writing.

        Raises:
            StorageError: It cannot be made or written, is damaged, or is of a newer version.
        """
        return Journal(path)

    async def keep(self, *paid: Paid) -> None:
        """Commit completions together; an existing one with the same episode, role, step and digest stays.

        Enqueued before the first `await`, so they are committed also if the caller is cancelled.
        """
        rows = [paid_to_row(one) for one in paid]

        def fill(batch: Batch) -> None:
            for one, row in zip(paid, rows, strict=True):
                if self._begun.get(one.index) != row[1]:
                    self._begun[one.index] = row[1]
                    batch.begun.append((one.index, row[1]))
                batch.paid.append(row)
                batch.size += len(one.answer) + _ROW

        await self._writer.put(fill)

    def enter(self, entries: Sequence[Entry], *, totals: bytes | None = None) -> Awaitable[None]:
        """Commit finished episodes and the sums up to them, in the order of the calls.

        Enqueued when this returns; awaiting the result is optional. Episodes in the files come in the order of their
        indices without a gap, and replace held ones. Held ones come in any order.

        Raises:
            ValueError: An episode is out of order, or has ended already.
        """
        count = self._count
        committed = [committed_to_row(entry) for entry in entries if not entry.is_held]
        held = [held_to_row(entry) for entry in entries if entry.is_held]
        for row in committed:
            if row[0] != count:
                raise ValueError(f"episode {row[0]} is committed, and {count} is in its turn")
            count += 1
        for row in held:
            if row[0] < count:
                raise ValueError(f"episode {row[0]} is held, and is committed already")

        def fill(batch: Batch) -> None:
            batch.committed.extend(committed)
            for row in committed:
                batch.held.pop(row[0], None)
                self._begun.pop(row[0], None)
            batch.held.update((row[0], row) for row in held)
            if totals is not None:
                batch.notes[TOTALS] = totals
            batch.size += sum(len(entry.line) + len(entry.held or b"") + _ROW for entry in entries)

        batch = self._writer.put(fill)
        self._count = count
        return batch

    def forget_from(self, index: int, *, totals: bytes | None) -> None:
        """Forget that episodes from `index` on have ended, held ones included; their completions stay. Blocks until
        committed.
        """
        # What was put before is committed then, and read below.
        self._writer.put(lambda _batch: None).wait()
        ended = max(self.ended_below, self._count, *(held + 1 for held in self.held()[-1:]))

        def fill(batch: Batch) -> None:
            batch.forget_from = index
            batch.notes[TOTALS] = totals
            batch.notes[ENDED_BELOW] = b"%d" % ended

        self._writer.put(fill).wait()
        self._count = min(self._count, index)

    async def keep_note(self, name: str, value: bytes) -> None:
        """Commit a value by name, replacing the one before; enqueued before the first `await`."""

        def fill(batch: Batch) -> None:
            batch.notes[name] = value

        await self._writer.put(fill)

    def close(self) -> None:
        """Commit everything into one file and end the thread; idempotent.

        Raises:
            StorageError: Something could not be committed, and that was not reported before.
        """
        # The last to let go cleans up, and only the writer can.
        super().close()
        self._writer.close()
