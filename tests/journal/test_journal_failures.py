"""A disk that is full, read-only or not ours: a clear error for everyone, and nothing lost that was committed."""

import asyncio
import os
import sqlite3
import subprocess
import sys
import tempfile
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from pathlib import Path
from shutil import rmtree
from typing import Any

import anyio
import pytest
from journal_records import change, committed, count_paid, episode, fill, held, paid

from refinesynth.errors import StorageError
from refinesynth.journal import Journal, JournalReader
from refinesynth.journal.commits import Writer
from refinesynth.journal.sqlite_file import FORMAT

PAGES_OF_A_FULL_DISK = 60


def fill_the_disk(patch: pytest.MonkeyPatch) -> None:
    """From now on, files that are opened may not grow beyond a few pages."""
    connect: Callable[..., sqlite3.Connection] = sqlite3.connect

    def connect_to_little(*arguments: Any, **options: Any) -> sqlite3.Connection:
        connection = connect(*arguments, **options)
        connection.execute(f"PRAGMA max_page_count = {PAGES_OF_A_FULL_DISK}")
        return connection

    patch.setattr(sqlite3, "connect", connect_to_little)


@pytest.fixture
def full_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    fill_the_disk(monkeypatch)


@pytest.fixture
def open_folder() -> Iterator[Path]:
    """A folder that everybody can read, whoever runs the tests."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)
        yield Path(folder)


@contextmanager
def unwritable(folder: Path) -> Generator[None]:
    """As somebody whom permissions bind, where nothing can be written."""
    folder.chmod(0o555)
    was_root = os.geteuid() == 0
    if was_root:
        os.seteuid(65_534)
    try:
        yield
    finally:
        if was_root:
            os.seteuid(0)
        folder.chmod(0o755)


async def keep_until_it_fails(journal: Journal) -> tuple[int, StorageError]:
    for index in range(10_000):
        try:
            await journal.keep(paid(index, answer=b"x" * 1_000))
        except StorageError as error:
            return index, error
    raise AssertionError("the disk was never full")


class TestFullDisk:
    @pytest.mark.usefixtures("full_disk")
    async def test_what_was_committed_stays_and_everyone_after_is_told(self, path: Path) -> None:
        with Journal(path) as journal:
            count, error = await keep_until_it_fails(journal)
            assert count > 0
            assert "disk is full" in str(error)
            assert str(path) in str(error)
            for late in (lambda: journal.enter([committed(0)]), lambda: journal.forget_from(0, totals=None)):
                with pytest.raises(StorageError, match="disk is full"):
                    late()
            with pytest.raises(StorageError, match="disk is full"):
                await journal.enter([])
            # Reading goes on.
            assert count_paid(journal) == count
            assert len(journal.record_of(episode(0))) == 1
        with JournalReader(path) as reader:
            assert count_paid(reader) == count
            assert reader.committed.count == 0

    @pytest.mark.usefixtures("full_disk")
    async def test_everyone_in_a_batch_is_told_once(self, path: Path) -> None:
        told: list[StorageError] = []

        async def caller(index: int) -> None:
            try:
                await journal.keep(paid(index, answer=b"x" * 100_000))
            except StorageError as error:
                told.append(error)

        with Journal(path) as journal:
            async with anyio.create_task_group() as group:
                for index in range(50):
                    group.start_soon(caller, index)
            assert len(told) > 1
            assert len({id(error) for error in told}) == len(told) == 50 - count_paid(journal)

    @pytest.mark.usefixtures("full_disk")
    def test_a_failure_that_nobody_was_told_of_is_told_at_the_end(self, path: Path) -> None:
        journal = Journal(path)
        journal.enter([held(0, records=os.urandom(1_000_000))])
        with pytest.raises(StorageError, match="disk is full"):
            journal.close()
        journal.close()


@pytest.mark.parametrize("moved", [True, False])
async def test_a_journal_whose_folder_goes_away_takes_no_more_money(tmp_path: Path, moved: bool) -> None:
    folder = tmp_path / "run"
    folder.mkdir()
    with Journal(folder / "journal.sqlite") as journal:
        await journal.keep(paid(0))
        if moved:
            folder.rename(tmp_path / "elsewhere")
        else:
            rmtree(folder)
        with pytest.raises(StorageError, match="is gone: its folder was moved or deleted"):
            await journal.keep(paid(1))
        with pytest.raises(StorageError, match="is gone"):
            await journal.keep(paid(2))
    if moved:
        with JournalReader(tmp_path / "elsewhere" / "journal.sqlite") as reader:
            # The one that could no longer be told of is there too: it was paid for.
            assert count_paid(reader) == 2


async def test_an_error_that_nobody_foresaw_reaches_everyone(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(writer: Writer, batch: object) -> None:
        raise MemoryError("no more")

    with Journal(path) as journal:
        await journal.keep(paid(0))
        monkeypatch.setattr(Writer, "write", fail)
        with pytest.raises(StorageError, match="MemoryError") as caught:
            await journal.keep(paid(1))
        assert isinstance(caught.value.__cause__, MemoryError)
        with pytest.raises(StorageError, match="MemoryError"):
            await journal.keep(paid(2))
        assert count_paid(journal) == 1


class TestPermissions:
    def test_a_journal_that_cannot_be_written_is_refused_when_it_is_opened(self, open_folder: Path) -> None:
        path = open_folder / "journal.sqlite"
        asyncio.run(fill(path))
        path.chmod(0o444)
        with unwritable(open_folder), pytest.raises(StorageError, match="read-only"):
            Journal(path)

    def test_a_closed_journal_is_read_where_nothing_can_be_written(self, open_folder: Path) -> None:
        path = open_folder / "journal.sqlite"
        kept = asyncio.run(fill(path))
        with unwritable(open_folder), JournalReader(path) as reader:
            assert count_paid(reader) == len(kept)

    def test_a_journal_that_was_not_closed_says_so_where_nothing_can_be_written(self, open_folder: Path) -> None:
        path = open_folder / "journal.sqlite"
        with Journal(path) as journal:
            asyncio.run(journal.keep(paid(0)))
            copy = {name: (open_folder / name).read_bytes() for name in ("journal.sqlite", "journal.sqlite-wal")}
        with tempfile.TemporaryDirectory(dir=open_folder) as folder:
            for name, content in copy.items():
                (Path(folder) / name).write_bytes(content)
            with unwritable(Path(folder)), pytest.raises(StorageError, match="was not closed"):
                JournalReader(Path(folder) / path.name)
            with JournalReader(Path(folder) / path.name) as reader:
                assert count_paid(reader) == 1

    def test_there_is_nothing_to_read_where_nothing_is(self, path: Path) -> None:
        with pytest.raises(StorageError, match="no journal"):
            JournalReader(path)
        assert not list(path.parent.iterdir())

    def test_a_folder_is_no_journal(self, path: Path) -> None:
        path.mkdir()
        refused_by_both(path, "directory")


def refused_by_both(path: Path, message: str) -> None:
    for use in (Journal, JournalReader):
        with pytest.raises(StorageError, match=message):
            use(path)


class TestOtherFiles:
    @pytest.mark.parametrize(
        "content", [b"", b"\0" * 8_192, b"not a database", b"SQLite format 3\0", os.urandom(9_000)]
    )
    def test_what_is_no_journal_is_refused_and_left_alone(self, path: Path, content: bytes) -> None:
        path.write_bytes(content)
        refused_by_both(path, "can still be read and exported")
        assert path.read_bytes() == content

    def test_another_programs_database_is_refused(self, path: Path) -> None:
        change(path, "CREATE TABLE theirs (x)")
        refused_by_both(path, "no journal")

    async def test_a_newer_journal_is_refused_with_both_versions(self, path: Path) -> None:
        await fill(path)
        change(path, f"PRAGMA user_version = {FORMAT + 1}")
        refused_by_both(path, rf"newer refinesynth.*is {FORMAT + 1}.*format {FORMAT}\b")

    async def test_a_journal_with_other_tables_is_refused(self, path: Path) -> None:
        await fill(path)
        change(path, "DROP TRIGGER paid_is_summed")
        refused_by_both(path, "its tables")

    def test_a_log_without_its_journal_is_not_taken_for_a_new_one(self, path: Path) -> None:
        with Journal(path) as journal:
            asyncio.run(journal.keep(paid(0)))
            log = path.with_name("journal.sqlite-wal").read_bytes()
        path.unlink()
        path.with_name("journal.sqlite-wal").write_bytes(log)
        with pytest.raises(StorageError, match="is missing"):
            Journal(path)
        assert path.with_name("journal.sqlite-wal").read_bytes() == log

    def test_a_journal_that_was_never_born_is_made_again(self, path: Path) -> None:
        path.with_name("journal.sqlite.new").write_bytes(b"half a jour")
        Journal(path).close()
        with JournalReader(path) as reader:
            assert count_paid(reader) == 0
        assert [entry.name for entry in path.parent.iterdir()] == ["journal.sqlite"]


def elsewhere(code: str, path: Path, *arguments: Path) -> None:
    """Run `code` in another process, whose locks are its own."""
    subprocess.run([sys.executable, "-S", "-c", code, str(path), *map(str, arguments)], check=True, timeout=60)


SQL = "import sqlite3, sys; db = sqlite3.connect(sys.argv[1]); db.execute({!r}).fetchall(); db.close()"
COPY = "import shutil, sys; shutil.copytree(*sys.argv[1:])"
OUTSIDERS = {
    "a plain reader": SQL.format("SELECT count(*) FROM paid"),
    "a reader of the schema": SQL.format("SELECT * FROM sqlite_schema"),
    "a writer that changes nothing": SQL.format("BEGIN IMMEDIATE"),
    "a checkpoint": SQL.format("PRAGMA wal_checkpoint(TRUNCATE)"),
    "a check": SQL.format("PRAGMA integrity_check"),
    "a file browser": "import sys; open(sys.argv[1], 'rb').read()",
}


@pytest.mark.process
def test_whoever_looks_at_a_journal_takes_nothing_from_its_writer(tmp_path: Path) -> None:
    path = tmp_path / "run" / "journal.sqlite"
    path.parent.mkdir()
    with Journal(path) as journal:
        for step, (name, code) in enumerate(OUTSIDERS.items()):
            asyncio.run(journal.keep(paid(0, 2 * step)))
            elsewhere(code, path)
            # A status that is asked for in the same process, such as a notebook.
            with JournalReader(path) as reader:
                assert count_paid(reader) == 2 * step + 1
            elsewhere(code, path)
            asyncio.run(journal.keep(paid(0, 2 * step + 1)))
            # What a killed process would leave.
            elsewhere(COPY, path.parent, tmp_path / "copies" / name)
            with JournalReader(tmp_path / "copies" / name / path.name) as reader:
                assert count_paid(reader) == 2 * step + 2, name


@pytest.mark.process
def test_a_log_that_was_taken_away_stops_the_run_and_loses_nothing(path: Path) -> None:
    journal = Journal(path)
    asyncio.run(journal.keep(paid(0)))
    # By whom is in this process and knows nothing of SQLite: its locks are gone, and the next one cleans up.
    path.read_bytes()
    elsewhere(SQL.format("SELECT * FROM paid"), path)
    assert not path.with_name("journal.sqlite-wal").exists()
    with pytest.raises(StorageError, match=r"was deleted .* Run the same command again"):
        asyncio.run(journal.keep(paid(1)))
    journal.close()
    with Journal(path) as again:
        assert count_paid(again) == 2


async def test_a_writer_that_another_one_blocks_says_so(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("refinesynth.journal.sqlite_file._WRITER_TIMEOUT_S", 0.01)
    with Journal(path) as journal:
        other = sqlite3.connect(path, isolation_level=None)
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(StorageError, match="another process"):
            await journal.keep(paid(0))
        other.close()


@pytest.mark.process
@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork here")
@pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork:DeprecationWarning")
def test_a_forked_process_is_refused_and_harms_nothing(path: Path) -> None:
    with Journal(path) as journal:
        asyncio.run(journal.keep(paid(0)))
        child = os.fork()
        if child == 0:
            try:
                journal.enter([committed(0)])
            except RuntimeError:
                journal.close()
                os._exit(7)
            os._exit(0)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
        asyncio.run(journal.keep(paid(1)))
    with JournalReader(path) as reader:
        assert count_paid(reader) == 2
        assert reader.committed.count == 0
