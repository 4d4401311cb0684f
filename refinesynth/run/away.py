"""Journals of workers outside the run's folder, on the disks of their machines: where they are, and what is in them.

The run's own journal has a note of that, so that its sums are true where those disks cannot be read.
"""

import logging
from dataclasses import dataclass
from pathlib import Path
from uuid import uuid4

from pydantic import TypeAdapter, ValidationError

from refinesynth.errors import StorageError
from refinesynth.journal import Journal, JournalReader, Outstanding, SpentRow
from refinesynth.text.jsontext import write_json

NOTE = "workers"
_ID = "id"
"""The note in a worker's journal that says which one it is."""

_LOG = logging.getLogger("refinesynth.run")


@dataclass(frozen=True, slots=True, kw_only=True)
class JournalSums:
    """One of them, as its worker last told."""

    id: str
    """See `identify`: at its path there may be another one by now."""
    path: str
    """On its machine, whose name is in it."""
    spent: tuple[SpentRow, ...] = ()
    outstanding: tuple[Outstanding, ...] = ()
    """What is in it of episodes that had not ended."""


@dataclass(slots=True, kw_only=True)
class Away:
    """All of them that a run has had."""

    run: str
    """A name that no other run has: that of the subfolder in which they are."""
    journals: list[JournalSums]

    def learn(self, sums: JournalSums) -> None:
        """One of them has changed, or is new."""
        self.journals = [one for one in self.journals if one.id != sums.id] + [sums]

    def paths_here(self) -> set[Path]:
        """Where on this machine there is one of them, or another one in its place."""
        return {path for one in self.journals if (path := Path(one.path)).exists()}

    def to_json(self) -> bytes:
        """As a note."""
        return write_json(self)


_AWAY = TypeAdapter(Away)


async def identify(journal: Journal) -> str:
    """The id of a worker's journal, which is given one if it has none. Returns when it is committed.

    Raises:
        StorageError: It cannot be read or written.
    """
    if journal.note(_ID) is None:
        await journal.keep_note(_ID, uuid4().hex.encode())
    return id_of(journal)


def id_of(journal: JournalReader) -> str:
    """The id of a worker's journal; empty if it has none.

    Raises:
        StorageError: It cannot be read.
    """
    return (journal.note(_ID) or b"").decode()


def read_away(journal: JournalReader, *, run: str = "run") -> Away:
    """What the run's own journal says of them.

    Raises:
        StorageError: It cannot be read, or is damaged.
    """
    note = journal.note(NOTE)
    if note is None:
        return Away(run=f"{run}-{uuid4().hex[:8]}", journals=[])
    try:
        return _AWAY.validate_json(note)
    except ValidationError as error:
        raise StorageError(f"the journal at {str(journal.path)!r} is damaged: its note {NOTE!r}") from error


def tell_lost(path: str, *, episodes: int, requests: int, cost_usd: float) -> None:
    """Say that what was in a journal cannot be read, and what that costs."""
    text = (
        f"what was in {path} cannot be read: {requests:,} completions ({cost_usd:.2f} USD) of {episodes:,} episodes that had not "
        f"ended are asked for again"
    )
    facts = {"path": path, "episodes": episodes, "requests": requests, "cost_usd": cost_usd, "text": text}
    _LOG.warning("%s", text, extra={"facts": {"event": "journal_lost", **facts}})
