"""The run folder keeps what it was given, refuses what does not fit, and cuts what is half-written."""

import errno
import io
import os
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st
from run_records import CONFIG, outcome

from refinesynth.errors import RunFolderError
from refinesynth.run import (
    EpisodeLine,
    RunConfig,
    RunFolder,
    RunWriter,
    differences,
    fingerprint,
    next_run_folder,
    stable_repr,
)
from refinesynth.run.lines import LineWriter, cut_tail, read_lines
from refinesynth.trajectory import Persona

DATA = ("trajectories.jsonl", "rejected.jsonl", "episodes.jsonl")


def written(path: Path, *accepted: bool, waiting: tuple[int, ...] = ()) -> RunFolder:
    folder = RunWriter.create(path, CONFIG)
    for index, good in enumerate(accepted):
        folder.append(outcome(index, accepted=good))
    folder.keep_waiting(outcome(index) for index in waiting)
    folder.log.info("run_ended", why="reached")
    folder.close()
    return RunFolder.open(path)


def contents(path: Path) -> dict[str, bytes]:
    return {name: (path / name).read_bytes() for name in DATA}


def test_what_was_appended_is_read_back(tmp_path: Path) -> None:
    folder = written(tmp_path / "runs" / "first", True, False, True, waiting=(5, 4))
    outcomes = [outcome(0), outcome(1, accepted=False), outcome(2)]
    assert list(folder.trajectories()) == [given.trajectory for given in outcomes if given.trajectory]
    assert list(folder.refused()) == [refused for given in outcomes for refused in given.refused]
    assert [line.index for line in folder.episodes()] == [0, 1, 2]
    assert folder.pending() == {4: outcome(4), 5: outcome(5)}
    assert folder.pending(after=5) == {5: outcome(5)}
    assert folder.config == CONFIG
    assert repr(folder) == f"RunFolder({str(tmp_path / 'runs' / 'first')!r})"


def test_totals_count_each_refusal_and_each_violation(tmp_path: Path) -> None:
    totals = written(tmp_path, True, False).totals()
    assert (totals.episodes, totals.accepted, totals.scripts_refused, totals.drafts_refused) == (2, 1, 4, 4)
    assert totals.by_rule == {"UniqueNames": 2, "ActionCount": 2, "TaskSucceed": 4}
    assert totals.violations == {"UniqueNames": 4, "ActionCount": 2, "TaskSucceed": 4, "NoLeaks": 2}
    assert totals.usage.requests == 8
    assert totals.usage.cached_tokens == 20
    assert totals.cost_usd == 1.0


def test_one_unknown_cost_makes_the_total_unknown(tmp_path: Path) -> None:
    folder = RunWriter.create(tmp_path, CONFIG)
    folder.append(outcome(0))
    folder.append(outcome(1, cost=None))
    folder.append(outcome(2))
    folder.close()
    assert folder.committed.cost_usd is None
    assert folder.totals().cost_usd is None


def test_episodes_are_appended_in_order_only(tmp_path: Path) -> None:
    folder = RunWriter.create(tmp_path, CONFIG)
    with pytest.raises(ValueError, match="episode 1 was appended where episode 0 is next"):
        folder.append(outcome(1))
    folder.append(outcome(0))
    with pytest.raises(ValueError, match="episode 0 was appended where episode 1 is next"):
        folder.append(outcome(0))
    folder.close()


def test_nothing_waiting_leaves_no_file(tmp_path: Path) -> None:
    folder = RunWriter.create(tmp_path, CONFIG)
    folder.keep_waiting([outcome(3)])
    assert folder.pending_file.exists()
    folder.keep_waiting([])
    folder.close()
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "config.json",
        "episodes.jsonl",
        "events.jsonl",
        "rejected.jsonl",
        "trajectories.jsonl",
    ]


def test_a_folder_with_something_in_it_is_refused(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("mine")
    with pytest.raises(RunFolderError, match="is not empty; give a new folder, or resume"):
        RunWriter.create(tmp_path, CONFIG)
    with pytest.raises(RunFolderError, match=r"is not the folder of a run: config.json cannot be read"):
        RunWriter.resume(tmp_path, CONFIG)
    assert [path.name for path in tmp_path.iterdir()] == ["notes.txt"]


def test_a_file_is_no_folder(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_text("mine")
    for use in (RunWriter.create, RunWriter.resume):
        with pytest.raises(RunFolderError, match=r"cannot use .* as a run folder"):
            use(path, CONFIG)
    with pytest.raises(RunFolderError, match="cannot make the folder"):
        RunWriter.create(path / "below", CONFIG)
    with pytest.raises(RunFolderError, match="cannot make a folder in"):
        next_run_folder(path)


def test_resuming_nothing_begins(tmp_path: Path) -> None:
    folder = RunWriter.resume(tmp_path / "new", CONFIG)
    folder.append(outcome(0))
    folder.close()
    assert len(list(RunFolder.open(tmp_path / "new").episodes())) == 1


def test_resuming_goes_on_where_it_ended(tmp_path: Path) -> None:
    whole = contents(written(tmp_path / "whole", True, False, True).path)
    written(tmp_path / "parts", True, waiting=(1, 2))
    folder = RunWriter.resume(tmp_path / "parts", CONFIG)
    assert folder.committed.episodes == 1
    assert folder.take_waiting() == {1: outcome(1), 2: outcome(2)}
    assert folder.take_waiting() == {}
    folder.append(outcome(1, accepted=False))
    folder.append(outcome(2))
    folder.close()
    assert contents(tmp_path / "parts") == whole


@given(st.data())
def test_after_any_truncation_a_resume_completes_the_same_files(data: st.DataObject) -> None:
    """A killed process leaves each file at some earlier length; episodes.jsonl is never ahead of the others."""
    with TemporaryDirectory() as home:
        path = Path(home, "run")
        accepted = data.draw(st.lists(st.booleans(), min_size=1, max_size=4))
        before = written(path, *accepted)
        whole = contents(path)
        listed = (path / "episodes.jsonl").read_bytes()
        kept = data.draw(st.integers(0, len(listed)))
        (path / "episodes.jsonl").write_bytes(listed[:kept])
        complete = listed[:kept].count(b"\n")
        lines = [EpisodeLine.model_validate_json(line) for line in listed.splitlines()[:complete]]
        ends = (lines[-1].trajectories_end, lines[-1].rejected_end) if lines else (0, 0)
        for name, end in zip(DATA, ends, strict=False):
            content = whole[name]
            (path / name).write_bytes(content[: data.draw(st.integers(end, len(content)))])
        events = (path / "events.jsonl").read_bytes()
        (path / "events.jsonl").write_bytes(events[: data.draw(st.integers(0, len(events)))])

        # To a reader, the run is what episodes.jsonl lists.
        assert len(list(before.trajectories())) == sum(accepted[:complete])
        assert len(list(before.refused())) == 4 * complete

        folder = RunWriter.resume(path, CONFIG)
        assert folder.committed.episodes == complete
        for index in range(complete, len(accepted)):
            folder.append(outcome(index, accepted=accepted[index]))
        folder.log.info("run_ended")
        folder.close()
        assert contents(path) == whole
        assert [orjson.loads(line)["event"] for line in (path / "events.jsonl").read_bytes().splitlines()][
            -1
        ] == "run_ended"


@pytest.mark.parametrize("name", ["trajectories.jsonl", "rejected.jsonl"])
@pytest.mark.parametrize("shorter", [9, 0])
def test_files_that_something_else_has_changed_are_not_cut(tmp_path: Path, name: str, shorter: int) -> None:
    written(tmp_path, True, True)
    content = (tmp_path / name).read_bytes()
    content = content[:-shorter] if shorter else content[:-1] + b"!"
    (tmp_path / name).write_bytes(content)
    with pytest.raises(RunFolderError, match="was changed after the run wrote it"):
        RunWriter.resume(tmp_path, CONFIG)
    assert (tmp_path / name).read_bytes() == content


def test_records_that_are_missing_are_not_passed_over(tmp_path: Path) -> None:
    folder = written(tmp_path, True, True)
    for file, read in ((folder.trajectories_file, folder.trajectories), (folder.rejected_file, folder.refused)):
        os.truncate(file, file.stat().st_size - 9)
        with pytest.raises(RunFolderError, match="was changed after the run wrote it"):
            list(read())
        file.unlink()
        with pytest.raises(RunFolderError, match="has 0 bytes, and a line was expected to end at"):
            list(read())


@pytest.mark.parametrize("kept", ["trajectories.jsonl", "rejected.jsonl"])
def test_a_folder_that_lost_its_episodes_is_not_emptied(tmp_path: Path, kept: str) -> None:
    written(tmp_path, True, True)
    for name in set(DATA) - {kept}:
        (tmp_path / name).unlink()
    content = (tmp_path / kept).read_bytes()
    with pytest.raises(RunFolderError, match=r"has lost episodes.jsonl"):
        RunWriter.resume(tmp_path, CONFIG)
    assert (tmp_path / kept).read_bytes() == content


@pytest.mark.parametrize("line", [b"{", b'{"id": 1}', b"[]"])
def test_a_line_that_no_run_wrote_is_named(tmp_path: Path, line: bytes) -> None:
    folder = written(tmp_path, True, True)
    kept = folder.trajectories_file.read_bytes()
    first = kept.index(b"\n")
    folder.trajectories_file.write_bytes(line.ljust(first) + kept[first:])
    reading = folder.trajectories()
    with pytest.raises(RunFolderError, match=r"line 1 of .*trajectories.jsonl' is not a Trajectory that a run wrote: "):
        next(reading)


def test_missing_episodes_are_noticed(tmp_path: Path) -> None:
    folder = written(tmp_path, True, True, True)
    lines = folder.episodes_file.read_bytes().splitlines(keepends=True)
    folder.episodes_file.write_bytes(lines[0] + lines[2])
    with pytest.raises(RunFolderError, match=r"line 2 of .* is about episode 2, not 1"):
        folder.totals()


def test_without_episodes_file_every_complete_line_counts(tmp_path: Path) -> None:
    folder = written(tmp_path, True, True)
    folder.episodes_file.unlink()
    with folder.trajectories_file.open("ab") as file:
        file.write(b'{"half')
    assert [trajectory.id for trajectory in folder.trajectories()] == ["000000", "000001"]


def test_changed_settings_are_refused_by_name(tmp_path: Path) -> None:
    written(tmp_path, True)
    changed = CONFIG.model_copy(
        update={"seed": 8, "mistakes": {"policy": "natural", "minimum": 2}, "models": {"judge": {"model": "x" * 300}}}
    )
    before = contents(tmp_path)
    with pytest.raises(RunFolderError) as caught:
        RunWriter.resume(tmp_path, changed)
    message = str(caught.value)
    assert (
        'begun with other settings: seed: 7 -> 8; mistakes.policy: "at_least" -> "natural"; models.player: {' in message
    )
    assert 'models.judge: null -> {"model":"xxx' in message
    assert "x" * 200 not in message
    assert contents(tmp_path) == before
    assert RunFolder.open(tmp_path).config == CONFIG


def test_a_difference_at_the_end_of_a_long_chain_is_shown() -> None:
    before, after = (CONFIG.model_copy(update={"rules": "strict() & " * 90 + last}) for last in ("One()", "Other()"))
    (difference,) = differences(before, after)
    assert difference == 'rules: ...ict() & strict() & One()" -> ...ict() & strict() & Other()"'


def test_settings_that_leave_the_data_alone_may_change(tmp_path: Path) -> None:
    written(tmp_path, True)
    changed = CONFIG.model_copy(
        update={
            "n": 99,
            "concurrency": 1,
            "personas": "others",
            "versions": {},
            "connections": {"player": {"timeout": 9}},
        }
    )
    assert differences(CONFIG, changed) == []
    RunWriter.resume(tmp_path, changed).close()
    assert RunFolder.open(tmp_path).config == changed


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"{", "is not JSON"),
        (b'{"n": 1}', "was not written by this version of refinesynth: concurrency: Field required"),
    ],
)
def test_a_broken_configuration_is_said(tmp_path: Path, content: bytes, message: str) -> None:
    (tmp_path / "config.json").write_bytes(content)
    with pytest.raises(RunFolderError, match=message):
        RunFolder.open(tmp_path)
    with pytest.raises(RunFolderError, match="is not the folder of a run"):
        RunFolder.open(tmp_path / "nothing")


def test_the_configuration_comes_back(tmp_path: Path) -> None:
    CONFIG.save(tmp_path / "config.json")
    assert RunConfig.load(tmp_path / "config.json") == CONFIG
    with pytest.raises(RunFolderError, match="cannot write"):
        CONFIG.save(tmp_path / "missing" / "config.json")


def test_free_folders_are_numbered(tmp_path: Path) -> None:
    parent = tmp_path / "runs"
    assert [next_run_folder(parent).name for _ in range(2)] == ["001", "002"]
    (parent / "1000").mkdir()
    (parent / "notes").mkdir()
    assert next_run_folder(parent) == parent / "1001"
    (parent / "1002").write_text("not a folder, but taken")
    assert next_run_folder(parent).name == "1003"


def test_a_number_taken_meanwhile_is_passed_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "001").mkdir()

    def nothing(_: Path) -> Iterator[Path]:
        return iter(())

    monkeypatch.setattr(Path, "iterdir", nothing)
    assert next_run_folder(tmp_path).name == "002"


def test_a_full_disk_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class FullDisk(io.BytesIO):
        def flush(self) -> None:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    writer = LineWriter(tmp_path / "lines")
    writer.close()
    monkeypatch.setattr(writer, "_file", FullDisk())
    with pytest.raises(RunFolderError, match=r"cannot write .*: No space left on device; make room and resume"):
        writer.write(b"{}")
    with pytest.raises(RunFolderError, match="cannot open"):
        LineWriter(tmp_path / "missing" / "file")


def test_a_configuration_that_cannot_be_written_leaves_nothing(tmp_path: Path) -> None:
    (tmp_path / "config.json").mkdir()
    with pytest.raises(RunFolderError, match=r"cannot write .*config.json"):
        CONFIG.save(tmp_path / "config.json")
    assert [path.name for path in tmp_path.iterdir()] == ["config.json"]


def test_waiting_episodes_that_cannot_be_kept_are_said(tmp_path: Path) -> None:
    folder = RunWriter.create(tmp_path, CONFIG)
    (tmp_path / "pending.jsonl").mkdir()
    with pytest.raises(RunFolderError, match=r"cannot write .*pending.jsonl"):
        folder.keep_waiting([outcome(3)])
    folder.close()


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
        assert cut_tail(path) == len(torn)
        assert cut_tail(path) == 0
        assert path.stat().st_size == writer.end


def test_a_torn_line_longer_than_a_block_is_cut(tmp_path: Path) -> None:
    path = tmp_path / "lines"
    path.write_bytes(b"whole\n" + b"x" * 300_000)
    assert cut_tail(path) == 300_000
    path.write_bytes(b"x" * 300_000)
    assert cut_tail(path) == 300_000
    assert cut_tail(tmp_path / "missing") == 0
    assert list(read_lines(tmp_path / "missing")) == []


def test_events_hold_anything_and_leave_structlog_alone(tmp_path: Path) -> None:
    import structlog

    before = structlog.get_config()
    folder = RunWriter.create(tmp_path, CONFIG)
    folder.log.bind(episode="a").info("odd", text="\ud800\n", number=2**70, other=Persona(text="Somebody"))
    folder.log.warning("worse")
    folder.log.debug("not written")
    folder.close()
    assert structlog.get_config() == before
    first, second = [orjson.loads(line) for line in folder.events_file.read_bytes().splitlines()]
    assert first["text"] == "\ufffd\n"
    assert first["other"] == "Persona(text='Somebody')"
    assert (first["event"], first["level"], first["episode"]) == ("odd", "info", "a")
    assert first["timestamp"].endswith("Z")
    assert (second["event"], second["level"]) == ("worse", "warning")


def test_a_fingerprint_tells_personas_apart() -> None:
    assert fingerprint(Persona(text="Somebody")) == fingerprint(Persona(text=" Somebody "))
    assert fingerprint(Persona(text="Somebody")) != fingerprint(Persona(text="somebody"))


def test_a_description_does_not_change_from_process_to_process() -> None:
    assert stable_repr(object()) == "<object object>"
    assert stable_repr("at 0x") == "'at 0x'"
