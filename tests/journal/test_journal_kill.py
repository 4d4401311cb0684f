"""A process is killed in the middle of its commits: whatever it was told to be committed is there."""

import random
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest
from journal_records import count_paid, episode

from refinesynth.journal import JournalReader

pytestmark = pytest.mark.process

HERE = [str(folder) for folder in Path(__file__).parents[:2]]
"""Where what a process of its own imports from the tests lies."""

WRITER = """
import asyncio, os, sys
from pathlib import Path
sys.path[:0] = {tests!r}
from journal_records import committed, held, paid
from refinesynth.journal import Journal

async def caller(journal, index):
    for step in range(1_000):
        await journal.keep(paid(index, step, answer=b"x" * (step * 37 % 3_000)))
        os.write(1, b"paid %d %d\\n" % (index, step))

async def enter(journal):
    for index in range(journal.committed.count, 1_000_000):
        journal.enter([held(index + 1)])
        await journal.enter([committed(index)], totals=b"%d" % index)
        os.write(1, b"entry %d 0\\n" % index)

async def main():
    with Journal(Path({path!r})) as journal:
        async with asyncio.TaskGroup() as group:
            group.create_task(enter(journal))
            for index in range({first}, {first} + 20):
                group.create_task(caller(journal, index))

asyncio.run(main())
"""


def killed_after(path: Path, lines: int, *, first: int) -> list[tuple[str, int, int]]:
    """What a writer was told, up to the moment of its death."""
    code = WRITER.format(tests=HERE, path=str(path), first=first)
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        told = [process.stdout.readline() for _ in range(lines)]
        # Somebody looks with another program, which takes the log away from a journal that nobody seems to use.
        with closing(sqlite3.connect(path)) as other:
            other.execute("SELECT count(*) FROM paid").fetchone()
        told += [process.stdout.readline() for _ in range(lines)]
        process.kill()
        told += process.stdout.read().splitlines(keepends=True)
    words = [line.split() for line in told if line.endswith(b"\n")]
    return [(kind.decode(), int(index), int(step)) for kind, index, step in words]


@pytest.mark.representative
def test_nothing_is_lost_that_was_committed(tmp_path: Path) -> None:
    path = tmp_path / "journal.sqlite"
    chance = random.Random(7)
    told: list[tuple[str, int, int]] = []
    for kill in range(5):
        told += killed_after(path, chance.choice([1, 30, 300, 2_000]), first=100 * kill)
        with JournalReader(path) as reader:
            entries = list(reader.entries())
            assert [entry.index for entry in entries] == list(range(len(entries)))
            assert reader.committed.count > max((index for kind, index, _ in told if kind == "entry"), default=-1)
            assert reader.totals == (b"%d" % (reader.committed.count - 1) if entries else None)
            paid = {
                (one.index, one.step)
                for first in range(0, 100 * kill + 1, 100)
                for index in range(first, first + 20)
                for one in reader.record_of(episode(index))
            }
            assert paid >= {(index, step) for kind, index, step in told if kind == "paid"}
            assert count_paid(reader) == len(paid)
