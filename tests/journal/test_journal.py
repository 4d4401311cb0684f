"""What is committed is read back, by whoever reads it."""

import asyncio
import sqlite3
import threading
from pathlib import Path

import anyio
import pytest
from journal_records import committed, count_paid, digest, episode, held, paid

from refinesynth.journal import Entry, Journal, JournalReader


class TestPaidCompletions:
    async def test_the_same_place_asked_otherwise_is_another_completion(self, path: Path) -> None:
        with Journal(path) as journal:
            await journal.keep(paid(0, 1, asked=7))
            await journal.keep(paid(0, 1, asked=8))
            recorded = journal.record_of(episode(0))
        assert len(recorded) == 2
        assert recorded.get("player", 1, digest(8)) == paid(0, 1, asked=8)
        assert recorded.get("player", 1, digest(9)) is None
        assert recorded.get("player", 2, digest(8)) is None
        assert recorded.get("verifier", 1, digest(8)) is None

    async def test_what_a_server_says_of_itself_cannot_break_a_journal(self, path: Path) -> None:
        strange = paid(0, model="a\ud800\0b\u202e", cost_usd=float("nan"), answer=b"\0\xff")
        greedy = paid(1, cost_usd=float("inf"))
        object.__setattr__(greedy, "input_tokens", 10**30)
        object.__setattr__(greedy, "output_tokens", -5)
        with Journal(path) as journal:
            await journal.keep(strange)
            await journal.keep(greedy)
            (found,) = journal.record_of(episode(0))
            assert (found.model, found.cost_usd, found.answer) == ("a\ufffd\0b\u202e", None, b"\0\xff")
            (found,) = journal.record_of(episode(1))
            assert (found.input_tokens, found.output_tokens, found.cost_usd) == (2**32, 0, None)
            assert sum(row.unpriced for row in journal.spent()) == 2

    @pytest.mark.parametrize("wrong", [{"digest": b"short"}, {"index": -1}, {"step": -1}, {"attempt": 2**80}])
    async def test_a_completion_of_no_place_is_refused_alone(self, path: Path, wrong: dict[str, object]) -> None:
        one = paid(0)
        for name, value in wrong.items():
            object.__setattr__(one, name, value)
        with Journal(path) as journal:
            with pytest.raises(ValueError):
                await journal.keep(one)
            await journal.keep(paid(1))
            assert count_paid(journal) == 1

    async def test_a_completion_is_committed_though_its_caller_was_cancelled(self, path: Path) -> None:
        with Journal(path) as journal:
            with anyio.CancelScope() as scope:
                scope.cancel()
                await journal.keep(paid(0))
            await journal.enter([])
            assert scope.cancelled_caught
            assert list(journal.record_of(episode(0))) == [paid(0)]

    async def test_callers_may_be_on_several_loops_and_threads(self, path: Path) -> None:
        async def callers(first: int) -> None:
            for index in range(first, first + 20):
                await journal.keep(paid(index))

        with Journal(path) as journal:
            threads = [threading.Thread(target=asyncio.run, args=(callers(at),)) for at in (100, 200, 300)]
            for thread in threads:
                thread.start()
            await callers(0)
            for thread in threads:
                await anyio.to_thread.run_sync(thread.join)
            assert count_paid(journal) == 80

    async def test_a_loop_that_is_gone_keeps_nobody_waiting(self, path: Path) -> None:
        async def begin_and_leave() -> None:
            task = asyncio.ensure_future(journal.keep(paid(0)))
            await asyncio.sleep(0)
            task.cancel()

        with Journal(path) as journal:
            await anyio.to_thread.run_sync(lambda: asyncio.run(begin_and_leave()))
            await journal.keep(paid(1))
            assert count_paid(journal) == 2


class TestEntries:
    async def test_entries_come_by_index_from_anywhere(self, path: Path) -> None:
        with Journal(path) as journal:
            await journal.enter([committed(index) for index in range(1_100)])
            await journal.enter([held(index) for index in range(1_139, 1_100, -2)])
            everything = [*range(1_100), *range(1_101, 1_140, 2)]
            assert list(journal.personas()) == [entry.persona for entry in journal.entries() if not entry.is_held]
            for start in (0, 1, 499, 500, 1_099, 1_100, 1_120, 5_000):
                assert [entry.index for entry in journal.entries(start)] == [at for at in everything if at >= start]
            assert [entry.held for entry in journal.entries(1_100)] == [None] * 20
            assert journal.entry(1_101) == held(1_101)

    @pytest.mark.parametrize(
        "wrong",
        [
            [committed(1)],
            [committed(0), committed(0)],
            [committed(0), committed(2)],
            [committed(0), held(0)],
            [Entry(index=0, id="0", persona="p", accepted=True, line=b"{}")],
            [Entry(index=0, id="0", persona="p", accepted=True, line=b"{}", held=b"r", rejected_end=5)],
            [Entry(index=0, id="0", persona="p", accepted=True, line=b"{}", trajectories_end=5)],
        ],
        ids=["too soon", "twice", "gap", "held again", "no records", "one end", "the other end"],
    )
    async def test_an_entry_out_of_its_turn_is_refused_alone(self, path: Path, wrong: list[Entry]) -> None:
        with Journal(path) as journal:
            with pytest.raises(ValueError, match="episode"):
                journal.enter(wrong)
            await journal.enter([committed(0)])
            assert list(journal.entries()) == [committed(0)]


class TestTheWhole:
    async def test_closing_commits_what_nobody_waited_for(self, path: Path) -> None:
        journal = Journal(path)
        journal.enter([committed(0)], totals=b"t")
        journal.close()
        journal.close()
        with pytest.raises(RuntimeError, match="closed"):
            await journal.keep(paid(0))
        with JournalReader(path) as reader:
            assert reader.committed.count == 1
        assert [entry.name for entry in path.parent.iterdir()] == ["journal.sqlite"]

    async def test_a_reader_that_stands_still_lets_the_writer_go_on(
        self, path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("refinesynth.journal.commits._CHECKPOINT_EVERY", 100_000)
        monkeypatch.setattr("refinesynth.journal.sqlite_file.MAX_WAL_BYTES", 200_000)
        with Journal(path) as journal:
            stands_still = sqlite3.connect(path, isolation_level=None)
            stands_still.execute("BEGIN")
            stands_still.execute("SELECT count(*) FROM paid").fetchall()
            for index in range(50):
                await journal.keep(paid(index, answer=b"x" * 20_000))
            assert path.with_name("journal.sqlite-wal").stat().st_size > 1_000_000
            stands_still.close()
            for index in range(50, 300):
                await journal.keep(paid(index, answer=b"x" * 20_000))
            assert path.with_name("journal.sqlite-wal").stat().st_size < 1_000_000
            assert count_paid(journal) == 300

    def test_a_folder_may_be_called_anything(self, tmp_path: Path) -> None:
        for name in ("a b", "100%25?mode=memory#x", "ünïcode", "a\nb", "'\"; --", "\udcff"):
            (tmp_path / name).mkdir()
            path = tmp_path / name / "journal.sqlite"
            with Journal(path) as journal:
                journal.enter([committed(0)])
            with JournalReader(path) as reader:
                assert reader.committed.count == 1
            assert repr(path) or repr(reader)
