"""However the files were damaged, a journal works or says that it is damaged; nothing else is raised."""

import asyncio
import functools
import tempfile
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from journal_records import committed, count_paid, episode, fill, held, paid

from refinesynth.errors import StorageError
from refinesynth.journal import Journal, JournalReader


@functools.cache
def closed() -> dict[str, bytes]:
    """A journal's files as a run leaves them."""
    with tempfile.TemporaryDirectory() as folder:
        asyncio.run(fill(Path(folder) / "journal.sqlite"))
        return {file.name: file.read_bytes() for file in Path(folder).iterdir()}


async def last_words(journal: Journal) -> None:
    await journal.keep(paid(20, answer=b"y" * 3_000))
    await journal.enter([committed(6), held(9)], totals=b"more")


@functools.cache
def killed() -> dict[str, bytes]:
    """A journal's files as a killed process leaves them: the last that was committed is in the log only."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "journal.sqlite"
        asyncio.run(fill(path))
        with Journal(path) as journal:
            asyncio.run(last_words(journal))
            return {name: (Path(folder) / name).read_bytes() for name in ("journal.sqlite", "journal.sqlite-wal")}


@dataclass(frozen=True)
class Damage:
    """What happened to one file. Places beyond its end are taken from its beginning."""

    killed: bool
    log: bool
    """Whether it happened to the log, where there is one."""
    cut: int | None
    """Where the file ends now."""
    changed: list[tuple[int, int]]
    """Place and new byte."""
    copied: tuple[int, int] | None
    """A page that was written where another belongs."""

    def do(self, folder: Path) -> Path:
        """Put damaged files into `folder`; the journal's path."""
        files = dict(killed() if self.killed else closed())
        name = sorted(files)[-1 if self.log else 0]
        content = bytearray(files[name])
        for at, byte in self.changed:
            content[at % len(content)] = byte
        if self.copied is not None:
            one, other = (4_096 * (page % (len(content) // 4_096)) for page in self.copied)
            content[one : one + 4_096] = content[other : other + 4_096]
        if self.cut is not None:
            del content[self.cut % len(content) :]
        files[name] = bytes(content)
        for file, written in files.items():
            (folder / file).write_bytes(written)
        return folder / "journal.sqlite"


# Half of the bytes where a page says what is in it.
offsets = st.one_of(st.integers(0, 120), st.integers(0, 4_095))
places: st.SearchStrategy[int] = st.tuples(st.integers(0, 60), offsets).map(lambda at: 4_096 * at[0] + at[1])
damages = st.builds(
    Damage,
    killed=st.booleans(),
    log=st.booleans(),
    cut=st.none() | places,
    changed=st.lists(st.tuples(places, st.integers(0, 255)), max_size=8),
    copied=st.none() | st.tuples(st.integers(0, 60), st.integers(0, 60)),
)


def read_all(reader: JournalReader) -> None:
    questions: list[Callable[[], object]] = [
        lambda: list(reader.entries()),
        lambda: list(reader.entries(3)),
        lambda: [reader.entry(index) for index in range(12)],
        lambda: [list(reader.record_of(episode(index))) for index in (0, 5, 11, 20)],
        reader.held_indices,
        lambda: list(reader.personas()),
        lambda: reader.committed,
        lambda: reader.totals,
        reader.next_index,
        reader.spent,
        reader.outstanding,
    ]
    for question in questions:
        try:
            question()
        except StorageError as error:
            assert "journal.sqlite" in str(error)  # noqa: PT017 - it may also not be raised


async def write_some(journal: Journal) -> None:
    await journal.keep(paid(5, 9, answer=b"z" * 5_000))
    await journal.keep(paid(30))
    count = journal.committed.count
    await journal.enter([held(count + 3), committed(count)], totals=b"after")
    journal.forget_from(2, totals=None)


def write_and_read(path: Path) -> None:
    with Journal(path) as journal:
        read_all(journal)
        asyncio.run(write_some(journal))
        read_all(journal)


def only_read(path: Path) -> None:
    with JournalReader(path) as reader:
        read_all(reader)


@pytest.mark.parametrize("use", [only_read, write_and_read])
@given(damage=damages)
def test_a_damaged_journal_is_used_or_refused(use: Callable[[Path], None], damage: Damage) -> None:
    with tempfile.TemporaryDirectory() as folder, suppress(StorageError):
        use(damage.do(Path(folder)))


@pytest.mark.parametrize("table", ["paid_once", "notes", "held", "begun", "sums"])
def test_tables_of_no_name_at_all_are_refused(path: Path, table: str) -> None:
    # SQLite quotes the name when it complains, which is no text any more.
    path.write_bytes(closed()[path.name].replace(f" {table} ".encode(), b" " + b"\xff" * len(table) + b" "))
    for use in (Journal, JournalReader):
        with pytest.raises(StorageError, match="damaged"):
            use(path)


def test_undamaged_ones_are_read_whole() -> None:
    for is_killed, count in ((False, 48), (True, 49)):
        with tempfile.TemporaryDirectory() as folder:
            path = Damage(killed=is_killed, log=False, cut=None, changed=[], copied=None).do(Path(folder))
            with JournalReader(path) as reader:
                assert count_paid(reader) == count
                assert reader.entry(9) == (held(9) if is_killed else None)
