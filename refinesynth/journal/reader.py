"""Reader of a journal, also while another process writes it and after that one died."""

from collections.abc import Callable, Iterator
from pathlib import Path
from threading import Lock
from types import TracebackType
from typing import Self, TypeVar

from refinesynth.journal.journal_values import (
    ENTRY_COLUMNS,
    HELD_COLUMNS,
    PAID_COLUMNS,
    SUMS_COLUMNS,
    Committed,
    Entry,
    Outstanding,
    Paid,
    Recorded,
    Row,
    SpentRow,
    committed_from_row,
    end_from_row,
    held_from_row,
    note_from_row,
    outstanding_from_row,
    paid_from_row,
    persona_from_row,
    spent_from_row,
    whole_from_row,
)
from refinesynth.journal.sqlite_file import connect_to_read, damaged, in_plain_words
from refinesynth.text.json_reader import scrub

_PAGE = 500
_PAGE_OF_PERSONAS = 5_000
"""Rows of one read, kept short: during a read, the writer's log cannot be emptied."""

TOTALS = "totals"
"""Note with the running sums."""

BATCHES = "batches"
"""Note with the number of batches that were sent; each has a note of its own."""

ENDED_BELOW = "ended_below"
"""Note that says which episodes had ended when some were forgotten."""

_Value = TypeVar("_Value")


class JournalReader:
    """Committed state. Usable from any thread, by one at a time.

    Every method raises `StorageError` if the file is damaged or cannot be read. Not promised: that two calls see the
    same state while another process writes.
    """

    def __init__(self, path: Path) -> None:
        """Open the journal at `path`, which is never changed.

        Raises:
            StorageError: There is none, it is damaged, or of a newer version.
        """
        self.path = path
        self._connection = connect_to_read(path)
        self._reading = Lock()

    def __repr__(self) -> str:
        return f"{type(self).__name__}({str(self.path)!r})"

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        with self._reading:
            self._connection.close()

    def recorded(self, episode: str) -> Recorded:
        """Return every paid completion of an episode."""
        sql = f"SELECT {PAID_COLUMNS} FROM paid WHERE episode = ? ORDER BY rowid"  # noqa: S608 - a constant
        return Recorded(self._values(paid_from_row, sql, scrub(episode)))

    def entry(self, index: int) -> Entry | None:
        """Return how an episode ended, with its records if they are held; None if it has not ended."""
        committed = f"SELECT {ENTRY_COLUMNS} FROM entries WHERE idx = ?"  # noqa: S608 - a constant
        held = f"SELECT {HELD_COLUMNS} FROM held WHERE idx = ?"  # noqa: S608 - a constant
        for found in self._values(committed_from_row, committed, index) or self._values(held_from_row, held, index):
            return found
        return None

    def entries(self, start: int = 0) -> Iterator[Entry]:
        """Yield finished episodes from index `start` on, without the records of held ones, page by page."""
        committed = f"SELECT {ENTRY_COLUMNS} FROM entries WHERE idx >= ? ORDER BY idx LIMIT {_PAGE}"  # noqa: S608 - constants
        for entry in self._pages(committed_from_row, committed, start):
            start = entry.index + 1
            yield entry
        # What is held is later than everything that is committed.
        columns = HELD_COLUMNS.replace("records", "NULL")
        held = f"SELECT {columns} FROM held WHERE idx >= ? ORDER BY idx LIMIT {_PAGE}"  # noqa: S608 - constants
        yield from self._pages(held_from_row, held, start)

    def personas(self) -> Iterator[str]:
        """Yield the fingerprints of the committed episodes' personas, by index; much cheaper than `entries`."""
        start = 0
        sql = f"SELECT idx, persona FROM entries WHERE idx >= ? ORDER BY idx LIMIT {_PAGE_OF_PERSONAS}"  # noqa: S608 - a constant
        while page := self._values(persona_from_row, sql, start):
            if page[0][0] != start or page[-1][0] != start + len(page) - 1:
                raise damaged(self.path, f"of the episodes from {start} on, one is missing or listed twice")
            start += len(page)
            yield from (persona for _, persona in page)

    def held(self) -> list[int]:
        """Return the indices of held episodes."""
        return [index for (index,) in self._values(whole_from_row, "SELECT idx FROM held ORDER BY idx")]

    @property
    def committed(self) -> Committed:
        """Part of the run's files that counts."""
        sql = "SELECT idx, trajectories_end, rejected_end FROM entries ORDER BY idx DESC LIMIT 1"
        for found in self._values(end_from_row, sql):
            return found
        return Committed(0, 0, 0)

    @property
    def totals(self) -> bytes | None:
        """Running sums that came with the last entries; None if none came."""
        return self.note(TOTALS)

    @property
    def ended_below(self) -> int:
        """Outstanding episodes below this index, or earlier ones, had ended and were forgotten."""
        return int(self.note(ENDED_BELOW) or b"0")

    def note(self, name: str) -> bytes | None:
        """Return a single value by its name; None if there is none."""
        return dict(self._values(note_from_row, "SELECT name, value FROM notes WHERE name = ?", name)).get(name)

    def started(self) -> int:
        """Return one more than the highest known index; 0 for an empty journal."""
        highest = [
            f"SELECT idx FROM {table} ORDER BY idx DESC LIMIT 1"  # noqa: S608 - constants
            for table in ("begun", "entries", "held")
        ]
        return max((found + 1 for sql in highest for (found,) in self._values(whole_from_row, sql)), default=0)

    def spent(self) -> list[SpentRow]:
        """Return usage and cost per role and model, unfinished episodes included."""
        return self._values(spent_from_row, f"SELECT {SUMS_COLUMNS} FROM sums ORDER BY role, model")  # noqa: S608 - a constant

    def paid_after(self, row: int, *, most: int) -> list[tuple[int, Paid]]:
        """Return up to `most` completions committed after the one in this row (0 for all), with their rows."""
        sql = f"SELECT rowid, {PAID_COLUMNS} FROM paid WHERE rowid > ? ORDER BY rowid LIMIT ?"  # noqa: S608 - a constant
        return self._values(lambda found: (int(found[0]), paid_from_row(found[1:])), sql, row, most)

    def last_row(self) -> int:
        """Return the row of the last completion; 0 if there is none."""
        return self._values(whole_from_row, "SELECT coalesce(max(rowid), 0) FROM paid")[0][0]

    def notes(self) -> dict[str, bytes | None]:
        """Return all single values by name, without the running sums."""
        sql = "SELECT name, value FROM notes WHERE name <> ?"
        return dict(self._values(note_from_row, sql, TOTALS))

    def outstanding(self, *, start: int | None = None) -> list[Outstanding]:
        """Return the episodes that were begun and have not ended, by index; takes time with what is in flight, not with
        the run.

        `start` is the first index, for a journal of completions alone, where another says what has ended.
        """
        # SQLite takes the other columns from the row that has the maximum.
        sql = """
            SELECT idx, episode, requests, attempt, role, step, cost FROM (
                SELECT begun.idx, begun.episode, count(*) AS requests, attempt, role, step, total(cost_usd) AS cost,
                    max(paid.rowid)
                FROM begun JOIN paid ON paid.episode = begun.episode
                WHERE begun.idx >= ? AND begun.idx NOT IN (SELECT idx FROM held) GROUP BY begun.idx, begun.episode)"""
        return self._values(outstanding_from_row, sql, self.committed.count if start is None else start)

    def _values(self, value_of: Callable[[Row], _Value], sql: str, *parameters: object) -> list[_Value]:
        """Return a query's values, read at once: an open read would keep the writer's log from being emptied."""
        with in_plain_words(self.path), self._reading:
            rows = self._connection.execute(sql, parameters).fetchall()
        try:
            return [value_of(row) for row in rows]
        except ValueError as error:
            raise damaged(self.path, str(error)) from error

    def _pages(self, value_of: Callable[[Row], Entry], sql: str, start: int) -> Iterator[Entry]:
        while page := self._values(value_of, sql, start):
            for entry in page:
                if entry.index < start:
                    raise damaged(self.path, f"episode {entry.index} is listed twice")
                start = entry.index + 1
                yield entry
