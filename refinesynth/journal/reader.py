"""Reader of a journal, also while another process writes it and after that process died."""

from collections.abc import Callable, Iterator
from pathlib import Path
from threading import Lock
from typing import Self, TypeVar

from refinesynth.journal.journal_values import (
    ENTRY_COLUMNS,
    HELD_COLUMNS,
    PAID_COLUMNS,
    SUMS_COLUMNS,
    Committed,
    Entry,
    EpisodeRecord,
    Outstanding,
    PaidCompletion,
    Row,
    SpentRow,
    committed_from_row,
    held_from_row,
    note_from_row,
    numbers_from_row,
    outstanding_from_row,
    paid_from_row,
    persona_from_row,
    spent_from_row,
)
from refinesynth.journal.sqlite_file import connect_to_read, damaged, storage_errors
from refinesynth.text.formatting import scrub

_PAGE_ROWS = 500
_PERSONA_PAGE_ROWS = 5_000
"""Rows of one read, which must be short: the writer cannot empty its log during a read."""

TOTALS = "totals"
"""Name of the note with the running sums."""

BATCHES = "batches"
"""Name of the note with the number of recorded batches; each batch has a note of its own."""

ENDED_BELOW = "ended_below"
"""Name of the note with the value of `JournalReader.ended_below`."""

_Value = TypeVar("_Value")


class JournalReader:
    """Reader of the committed state. Threads may share it; a lock serializes the reads.

    Every method raises `StorageError` if the file is damaged or unreadable. While another process writes, two calls may
    see different states.
    """

    def __init__(self, path: Path) -> None:
        """Open the journal at `path`. Raises StorageError: it is missing, damaged, or of another format version."""
        self.path = path
        self._connection = connect_to_read(path)
        self._lock = Lock()

    def __repr__(self) -> str:
        return f"{type(self).__name__}({str(self.path)!r})"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        with self._lock:
            self._connection.close()

    def record_of(self, episode: str) -> EpisodeRecord:
        """Return every paid completion of an episode."""
        sql = f"SELECT {PAID_COLUMNS} FROM paid WHERE episode = ? ORDER BY rowid"  # noqa: S608 - a constant
        return EpisodeRecord(self._values(paid_from_row, sql, scrub(episode)))

    def entry(self, index: int) -> Entry | None:
        """Return the entry of an ended episode, with its records if they are held; None if it has not ended."""
        committed = f"SELECT {ENTRY_COLUMNS} FROM entries WHERE idx = ?"  # noqa: S608 - a constant
        held = f"SELECT {HELD_COLUMNS} FROM held WHERE idx = ?"  # noqa: S608 - a constant
        found = self._values(committed_from_row, committed, index) or self._values(held_from_row, held, index)
        return found[0] if found else None

    def entries(self, start: int = 0) -> Iterator[Entry]:
        """Yield ended episodes from index `start` on, without the records of held ones, read page by page."""
        committed = f"SELECT {ENTRY_COLUMNS} FROM entries WHERE idx >= ? ORDER BY idx LIMIT {_PAGE_ROWS}"  # noqa: S608 - constants
        for entry in self._pages(committed_from_row, committed, start):
            start = entry.index + 1
            yield entry
        # Held episodes have higher indices than all committed ones.
        columns = HELD_COLUMNS.replace("records", "NULL")
        held = f"SELECT {columns} FROM held WHERE idx >= ? ORDER BY idx LIMIT {_PAGE_ROWS}"  # noqa: S608 - constants
        yield from self._pages(held_from_row, held, start)

    def personas(self) -> Iterator[str]:
        """Yield the persona fingerprints of the committed episodes in index order; much cheaper than `entries`."""
        start = 0
        sql = f"SELECT idx, persona FROM entries WHERE idx >= ? ORDER BY idx LIMIT {_PERSONA_PAGE_ROWS}"  # noqa: S608 - a constant
        while page := self._values(persona_from_row, sql, start):
            if page[0][0] != start or page[-1][0] != start + len(page) - 1:
                raise damaged(self.path, f"of the episodes from {start} on, one is missing or listed twice")
            start += len(page)
            yield from (persona for _, persona in page)

    def held_indices(self) -> list[int]:
        return [index for (index,) in self._values(numbers_from_row, "SELECT idx FROM held ORDER BY idx")]

    @property
    def committed(self) -> Committed:
        """Committed part of the run's files."""
        sql = "SELECT idx, trajectories_end, rejected_end FROM entries ORDER BY idx DESC LIMIT 1"
        for last_index, *ends in self._values(numbers_from_row, sql):
            return Committed(last_index + 1, *ends)
        return Committed(0, 0, 0)

    @property
    def totals(self) -> bytes | None:
        """Running sums committed with the last entries; None without any."""
        return self.note(TOTALS)

    @property
    def ended_below(self) -> int:
        """One more than the highest index of an episode that had ended before `forget_from` deleted entries; else 0."""
        return int(self.note(ENDED_BELOW) or b"0")

    def note(self, name: str) -> bytes | None:
        """Return the note with this name; None without one."""
        return dict(self._values(note_from_row, "SELECT name, value FROM notes WHERE name = ?", name)).get(name)

    def next_index(self) -> int:
        """Return one more than the highest known index; 0 for an empty journal."""
        queries = [
            f"SELECT idx FROM {table} ORDER BY idx DESC LIMIT 1"  # noqa: S608 - constants
            for table in ("begun", "entries", "held")
        ]
        return max((index + 1 for sql in queries for (index,) in self._values(numbers_from_row, sql)), default=0)

    def spent(self) -> list[SpentRow]:
        """Return usage and cost per role and model, unfinished episodes included."""
        return self._values(spent_from_row, f"SELECT {SUMS_COLUMNS} FROM sums ORDER BY role, model")  # noqa: S608 - a constant

    def paid_after(self, after: int, *, limit: int) -> list[tuple[int, PaidCompletion]]:
        """Return up to `limit` completions after row number `after` (0 for the first), with their row numbers."""
        sql = f"SELECT rowid, {PAID_COLUMNS} FROM paid WHERE rowid > ? ORDER BY rowid LIMIT ?"  # noqa: S608 - a constant
        return self._values(lambda found: (int(found[0]), paid_from_row(found[1:])), sql, after, limit)

    def last_row(self) -> int:
        """Return the row number of the last completion; 0 without any."""
        return self._values(numbers_from_row, "SELECT coalesce(max(rowid), 0) FROM paid")[0][0]

    def notes(self) -> dict[str, bytes | None]:
        """Return all notes by name, without the running sums."""
        sql = "SELECT name, value FROM notes WHERE name <> ?"
        return dict(self._values(note_from_row, sql, TOTALS))

    def outstanding(self) -> list[Outstanding]:
        """Return the episodes that have begun and not ended, by index, in time proportional to their completions."""
        # SQLite takes the bare columns from the row with the maximum.
        sql = """
            SELECT idx, episode, requests, attempt, role, step, cost FROM (
                SELECT begun.idx, begun.episode, count(*) AS requests, attempt, role, step, total(cost_usd) AS cost,
                    max(paid.rowid)
                FROM begun JOIN paid ON paid.episode = begun.episode
                WHERE begun.idx >= ? AND begun.idx NOT IN (SELECT idx FROM held) GROUP BY begun.idx, begun.episode)"""
        return self._values(outstanding_from_row, sql, self.committed.count)

    def _values(self, convert: Callable[[Row], _Value], sql: str, *parameters: object) -> list[_Value]:
        """Return all values of a query at once: an open read would keep the writer from emptying its log."""
        with storage_errors(self.path), self._lock:
            rows = self._connection.execute(sql, parameters).fetchall()
        try:
            return [convert(row) for row in rows]
        except ValueError as error:
            raise damaged(self.path, str(error)) from error

    def _pages(self, convert: Callable[[Row], Entry], sql: str, start: int) -> Iterator[Entry]:
        while page := self._values(convert, sql, start):
            for entry in page:
                if entry.index < start:
                    raise damaged(self.path, f"episode {entry.index} is listed twice")
                start = entry.index + 1
                yield entry
