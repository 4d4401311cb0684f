"""The run folder gives back what was written, and counts only what its journal counts."""

import errno
import io
import os
import sqlite3
from contextlib import closing
from pathlib import Path
from shutil import copyfile
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given
from hypothesis import strategies as st
from run_records import CONFIG, events, finished, outcome, write
from samples import paid

from refinesynth.errors import RunFolderError, StorageError
from refinesynth.run import CompletedEpisode, EpisodeLine, RunFolder, RunStats, RunWriter, next_run_folder, stable_repr
from refinesynth.run.jsonl import LineWriter, cut, last_line, last_line_end, read_lines, size_of
from refinesynth.run.merging import merge_runs
from refinesynth.run.run_folder import stored_trajectories
from refinesynth.run.status import Distribution, RunStatus
from refinesynth.trajectory import Persona


async def test_what_was_appended_is_read_back(tmp_path: Path) -> None:
    folder = await write(tmp_path / "runs" / "first", True, False, True, waiting=(5, 4))
    outcomes = [outcome(0), outcome(1, accepted=False), outcome(2)]
    assert list(folder.trajectories()) == [given.trajectory for given in outcomes if given.trajectory]
    assert list(folder.refused()) == [refused for given in outcomes for refused in given.refused]
    assert list(folder.episodes()) == [EpisodeLine.of(given) for given in outcomes]
    assert folder.waiting_lines() == [EpisodeLine.of(outcome(4)), EpisodeLine.of(outcome(5))]
    assert folder.config == CONFIG
    assert repr(folder) == f"RunFolder({str(tmp_path / 'runs' / 'first')!r})"


async def test_a_last_line_without_a_newline_counts_outside_a_run(tmp_path: Path) -> None:
    file = (await write(tmp_path / "run", True, True)).trajectories_file
    file.write_bytes(file.read_bytes().rstrip(b"\n"))
    assert len(list(stored_trajectories(file))) == 1
    assert len(list(stored_trajectories(copyfile(file, tmp_path / "copy.jsonl")))) == 2


async def test_status_tells_of_the_trajectories_in_the_files_alone(tmp_path: Path) -> None:
    """Of what waits, nothing is written yet."""
    figures = RunStatus.of(await write(tmp_path, True, False, True, waiting=(5, 4))).variety.figures
    assert (figures.trajectories, figures.mistakes.total(), figures.refinements, figures.unanswered) == (2, 2, 2, 0)
    assert Distribution.of(figures.turns) == Distribution(4, 4.0, 4)


async def test_totals_count_each_refusal_and_each_violation(tmp_path: Path) -> None:
    totals = (await write(tmp_path, True, False)).totals()
    assert (totals.episodes, totals.accepted, totals.scripts_refused, totals.drafts_refused) == (2, 1, 4, 4)
    assert totals.by_rule == {"UniqueNames": 2, "ActionCount": 2, "TaskSucceed": 4}
    assert totals.violations == {"UniqueNames": 4, "ActionCount": 2, "TaskSucceed": 4, "NoLeaks": 2}
    assert totals.usage.requests == 8
    assert totals.usage.cached_tokens == 20
    assert totals.cost_usd == 1.0


async def test_what_was_paid_is_summed_for_unfinished_episodes_too(tmp_path: Path) -> None:
    folder = RunWriter.claim(tmp_path, CONFIG)
    for index in (0, 1):
        await folder.memory(f"{index:06d}", index).keep(paid(index))
    await folder.append(finished(0))
    folder.close()
    read = RunFolder.open(tmp_path)
    (spent,) = read.spent()
    assert (spent.role, spent.model, spent.requests, spent.cost_usd) == ("player", "a-model", 2, 1.0)
    assert [one.episode for one in read.outstanding()] == ["000001"]


def test_a_damaged_line_is_said() -> None:
    with pytest.raises(StorageError, match="the journal is damaged, or of another version: EpisodeLine: "):
        EpisodeLine.from_json(b'{"index": 1}')
    with pytest.raises(StorageError, match="RunStats"):
        RunStats.from_json(b"[")
    with pytest.raises(StorageError, match="has lost episode 3"):
        CompletedEpisode.read(finished(3).written_entry(trajectories_end=0, rejected_end=0))


def test_a_folder_with_nothing_but_a_configuration_is_an_empty_run(tmp_path: Path) -> None:
    CONFIG.save(tmp_path / "config.json")
    folder = RunFolder.open(tmp_path)
    assert (list(folder.trajectories()), list(folder.episodes()), folder.waiting_lines()) == ([], [], [])
    assert (folder.spent(), folder.outstanding(), folder.totals().episodes) == ([], [], 0)


async def test_without_a_journal_every_complete_line_counts(tmp_path: Path) -> None:
    folder = await write(tmp_path, True, True, False)
    before = folder.totals()
    for name in ("journal.sqlite", "journal.sqlite-wal", "journal.sqlite-shm"):
        (tmp_path / name).unlink(missing_ok=True)
    with folder.trajectories_file.open("ab") as file:
        file.write(b'{"half')
    assert [trajectory.id for trajectory in folder.trajectories()] == ["000000", "000001"]
    totals = folder.totals()
    assert (totals.accepted, totals.cost_usd) == (2, None)
    assert (totals.scripts_refused, totals.drafts_refused) == (before.scripts_refused, before.drafts_refused)
    assert (totals.by_rule, totals.violations) == (before.by_rule, before.violations)


async def test_records_that_are_missing_are_not_passed_over(tmp_path: Path) -> None:
    folder = await write(tmp_path, True, True)
    for file, read in ((folder.trajectories_file, folder.trajectories), (folder.rejected_file, folder.refused)):
        os.truncate(file, file.stat().st_size - 9)
        with pytest.raises(RunFolderError, match="makes what is missing again from its journal for free"):
            list(read())
        file.unlink()
        with pytest.raises(RunFolderError, match="has 0 bytes, and the run's journal counts"):
            list(read())


@pytest.mark.parametrize("line", [b"{", b'{"id": 1}', b"[]"])
async def test_a_line_that_no_run_wrote_is_named(tmp_path: Path, line: bytes) -> None:
    folder = await write(tmp_path, True, True)
    before = folder.trajectories_file.read_bytes()
    first = before.index(b"\n")
    folder.trajectories_file.write_bytes(line.ljust(first) + before[first:])
    reading = folder.trajectories()
    with pytest.raises(RunFolderError, match=r"line 1 of .*trajectories.jsonl' is not a Trajectory that a run wrote: "):
        next(reading)


@pytest.mark.parametrize(
    "change",
    [
        "DELETE FROM notes",
        "UPDATE entries SET trajectories_end = 1 << 40 WHERE idx = 0",
        "UPDATE entries SET rejected_end = 1 WHERE idx = 1",
    ],
)
async def test_a_journal_whose_numbers_do_not_fit_is_said_to_be_damaged(tmp_path: Path, change: str) -> None:
    folder = await write(tmp_path / "run", True, False, True)
    with closing(sqlite3.connect(folder.journal_file, isolation_level=None)) as journal:
        journal.execute(change)

    async def merge_and_resume() -> None:
        await merge_runs([folder.path], tmp_path / "merged")
        RunWriter.claim(folder.path, CONFIG).close()

    with pytest.raises(StorageError, match="is damaged"):
        await merge_and_resume()


async def test_a_merged_run_that_lost_lines_is_not_made_again_by_new_requests(tmp_path: Path) -> None:
    folder = await write(tmp_path / "run", True, True)
    await merge_runs([folder.path], tmp_path / "merged")
    merged = RunFolder.open(tmp_path / "merged")
    before = merged.totals()
    os.truncate(merged.trajectories_file, merged.trajectories_file.stat().st_size - 9)
    with pytest.raises(RunFolderError, match="merged run has no completions to make them again from"):
        RunWriter.claim(merged.path, merged.config)
    assert merged.totals() == before


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"{", "is not JSON"),
        (
            b'{"schema_version": 1, "n": 1}',
            r"was written by refinesynth of a newer version, and this is .*: concurrency: Field required",
        ),
        (b'{"architectures": ["LlamaForCausalLM"]}', "was not written by a run; give the folder that a run wrote"),
    ],
)
def test_a_broken_configuration_is_said(tmp_path: Path, content: bytes, message: str) -> None:
    (tmp_path / "config.json").write_bytes(content)
    with pytest.raises(RunFolderError, match=message):
        RunFolder.open(tmp_path)
    with pytest.raises(RunFolderError, match="is not the folder of a run"):
        RunFolder.open(tmp_path / "nothing")


def test_free_folders_are_numbered(tmp_path: Path) -> None:
    parent = tmp_path / "runs"
    assert [next_run_folder(parent).name for _ in range(2)] == ["001", "002"]
    (parent / "1000").mkdir()
    (parent / "notes").mkdir()
    assert next_run_folder(parent) == parent / "1001"
    (parent / "1002").write_text("not a folder, but taken")
    assert next_run_folder(parent).name == "1003"


def test_a_full_disk_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class FullDisk(io.BytesIO):
        def flush(self) -> None:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    writer = LineWriter(tmp_path / "lines")
    writer.close()
    monkeypatch.setattr(writer, "_file", FullDisk())
    with pytest.raises(
        StorageError, match=r"cannot write .*: No space left on device. Everything finished so far is kept"
    ):
        writer.write(b"{}")
    with pytest.raises(StorageError, match="cannot open"):
        LineWriter(tmp_path / "missing" / "file")


@given(lines=st.lists(st.binary(max_size=9).filter(lambda line: b"\n" not in line)), torn=st.binary(max_size=9))
def test_complete_lines_are_read_and_a_torn_one_is_cut(lines: list[bytes], torn: bytes) -> None:
    torn = torn.replace(b"\n", b"")
    with TemporaryDirectory() as home:
        path = Path(home, "lines")
        writer = LineWriter(path)
        writer.write(*lines)
        writer.close()
        with path.open("ab") as file:
            file.write(torn)
        assert list(read_lines(path)) == lines
        assert list(read_lines(path, end=writer.end)) == lines
        assert last_line(path) == (lines[-1] if lines else None)
        # Zeros are what a power cut leaves where the last block should be.
        assert size_of(path) == len(path.read_bytes().rstrip(b"\0"))
        assert cut(path, end=last_line_end(path)) == len(torn)
        assert cut(path, end=writer.end) == 0
        assert path.stat().st_size == writer.end


def test_events_hold_anything_and_leave_structlog_alone(tmp_path: Path) -> None:
    import structlog

    before = structlog.get_config()
    folder = RunWriter.claim(tmp_path, CONFIG)
    folder.log.bind(episode="a").info("odd", text="\ud800\n", number=2**70, other=Persona(text="Somebody"))
    folder.log.warning("worse")
    folder.log.debug("not written")
    folder.close()
    assert structlog.get_config() == before
    first, second = events(tmp_path)
    assert first["text"] == "\ufffd\n"
    assert first["other"] == "Persona(text='Somebody')"
    assert (first["event"], first["level"], first["episode"]) == ("odd", "info", "a")
    assert first["timestamp"].endswith("Z")
    assert (second["event"], second["level"]) == ("worse", "warning")


def test_a_description_does_not_change_from_process_to_process() -> None:
    assert stable_repr(object()) == "<object object>"
    assert stable_repr("at 0x") == "'at 0x'"
