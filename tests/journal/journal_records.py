"""Things to put into a journal, one journal with some of everything in it, and changes of its file by others."""

import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import samples

from refinesynth.journal import Entry, Journal, JournalReader, PaidCompletion


def episode(index: int) -> str:
    return f"{index:06d}-0123abcd"


def digest(step: int) -> bytes:
    return step.to_bytes(16, "big")


def paid(index: int, step: int = 0, *, asked: int | None = None, **changes: Any) -> PaidCompletion:
    place = {"episode": episode(index), "step": step, "digest": digest(step if asked is None else asked)}
    return samples.paid(index, **{**place, **changes})


def entry(index: int, **place: Any) -> Entry:
    known: dict[str, Any] = {
        "id": episode(index),
        "persona": "0123456789abcdef",
        "accepted": index % 2 == 0,
        "line": b'{"counts":1}',
    }
    return Entry(index=index, **known | place)


def committed(index: int, *, line: bytes = b'{"counts":1}') -> Entry:
    return entry(index, line=line, trajectories_end=1_000 * (index + 1), rejected_end=10 * (index + 1))


def held(index: int, *, records: bytes | None = None) -> Entry:
    return entry(index, held=b"records of %d" % index if records is None else records)


async def fill(path: Path, *, episodes: int = 12, steps: int = 4) -> list[PaidCompletion]:
    """A closed journal: half of the episodes committed, every third of the others held, one in flight at least."""
    kept: list[PaidCompletion] = []
    with Journal(path) as journal:
        for index in range(episodes):
            for step in range(steps):
                one = paid(index, step, answer=b"x" * (700 * step), cost_usd=None if step == 1 else 0.5)
                await journal.keep(one)
                kept.append(one)
        half = episodes // 2
        await journal.enter([committed(index) for index in range(half)], totals=b"totals")
        await journal.enter([held(index, records=b"r" * 9_000) for index in range(half + 1, episodes, 3)])
    return kept


def change(path: Path, sql: str) -> None:
    """Execute a statement in the file without the journal."""
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute(sql)


def count_paid(reader: JournalReader) -> int:
    return sum(row.requests for row in reader.spent())
