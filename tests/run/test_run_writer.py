"""A run folder is written by one process alone, goes on where it ended, and mends what its last process left behind."""

import os
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st
from run_records import CONFIG, FEWER, contents, events, finished, scratch, write
from samples import paid

from refinesynth.errors import RefinesynthError, RunFolderError, StorageError
from refinesynth.files.output_folder import next_old_path
from refinesynth.run import RunFolder, RunWriter, next_run_folder
from refinesynth.run.jsonl import LineWriter, cut

FILES = ("trajectories.jsonl", "rejected.jsonl")


def names(path: Path) -> list[str]:
    return sorted(entry.name for entry in path.iterdir())


def snapshot(path: Path) -> dict[str, bytes]:
    return {entry.name: entry.read_bytes() for entry in path.iterdir()}


async def test_episodes_are_appended_in_order_only_and_end_once(tmp_path: Path) -> None:
    folder = RunWriter.claim(tmp_path, CONFIG)
    with pytest.raises(ValueError, match="episode 1 was appended where episode 0 is next"):
        await folder.append(finished(1))
    await folder.append(finished(0))
    await folder.keep_waiting(finished(2))
    with pytest.raises(ValueError, match="episode 0 was appended where episode 1 is next"):
        await folder.append(finished(0))
    for index in (0, 2):
        with pytest.raises(ValueError, match=f"episode {index} has finished twice"):
            await folder.keep_waiting(finished(index))
    assert (folder.committed.episodes, folder.waiting) == (1, {2})
    folder.close()


async def test_what_was_paid_is_remembered_by_episodes_that_were_begun(tmp_path: Path) -> None:
    folder = RunWriter.claim(tmp_path, CONFIG)
    await folder.memory("000003", 3).keep(paid(3))
    # In this process it was asked and answered: there is nothing to ask the journal for.
    assert folder.memory("000003", 3).recall("player", 0, paid(3).digest) is None
    folder.close()
    again = RunWriter.claim(tmp_path, CONFIG)
    assert again.memory("000003", 3).recall("player", 0, paid(3).digest) == paid(3)
    assert again.memory("000003", 3).recall("player", 1, paid(3).digest) is None
    assert again.memory("000004", 4).recall("player", 0, paid(3).digest) is None
    again.close()


@FEWER
@given(st.data())
async def test_after_any_cut_of_the_files_the_run_completes_to_the_same(data: st.DataObject) -> None:
    """A power cut may take any end of the files, put zeros in its place, and take any last commits of the journal."""
    with scratch() as home:
        path = Path(home, "run")
        accepted = data.draw(st.lists(st.booleans(), min_size=1, max_size=4))
        whole = contents((await write(Path(home, "whole"), *accepted)).path)
        counted = data.draw(st.integers(0, len(accepted)))
        await write(path, *accepted[:counted])
        for name in FILES:
            content = (Path(home, "whole") / name).read_bytes()
            (path / name).write_bytes(
                content[: data.draw(st.integers(0, len(content)))] + b"\0" * data.draw(st.integers(0, 3))
            )
        log = (path / "events.jsonl").read_bytes()
        (path / "events.jsonl").write_bytes(log[: data.draw(st.integers(0, len(log)))])

        folder = RunWriter.claim(path, CONFIG)
        again = folder.committed.episodes
        assert again <= counted
        for index in range(again, len(accepted)):
            await folder.append(finished(index, accepted=accepted[index]))
        folder.log.info("run_ended")
        folder.close()
        assert contents(path) == whole
        said = [(event["first_episode"], event["episodes"]) for event in events(path, "lines_missing")]
        assert said == ([(again, counted - again)] if again < counted else [])


@pytest.mark.parametrize("name", FILES)
async def test_a_file_that_something_else_has_changed_is_left_alone(tmp_path: Path, name: str) -> None:
    await write(tmp_path, True, True)
    content = (tmp_path / name).read_bytes()[:-1] + b"!"
    (tmp_path / name).write_bytes(content)
    with pytest.raises(RunFolderError, match="was changed after the run wrote it"):
        RunWriter.claim(tmp_path, CONFIG)
    assert (tmp_path / name).read_bytes() == content


@pytest.mark.parametrize("there", FILES)
async def test_a_folder_that_lost_its_journal_is_not_emptied(tmp_path: Path, there: str) -> None:
    await write(tmp_path, True, True)
    for name in set(names(tmp_path)) - {there, "config.json"}:
        (tmp_path / name).unlink()
    content = (tmp_path / there).read_bytes()
    with pytest.raises(RunFolderError, match=r"has lost journal.sqlite"):
        RunWriter.claim(tmp_path, CONFIG)
    assert (tmp_path / there).read_bytes() == content


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"schema_version": 2}, r"written by refinesynth 99\.1, and this is "),
        ({"prophecy": True}, r"written by refinesynth 99\.1, and this is .*there is no setting prophecy"),
    ],
)
def test_a_run_of_a_newer_version_is_said_and_stays(tmp_path: Path, changed: dict[str, object], said: str) -> None:
    RunWriter.claim(tmp_path, CONFIG).close()
    fields = CONFIG.model_dump(mode="json") | {"versions": {"refinesynth": "99.1"}} | changed
    (tmp_path / "config.json").write_bytes(orjson.dumps(fields))
    before = snapshot(tmp_path)
    for opened in (lambda: RunFolder.open(tmp_path), lambda: RunWriter.claim(tmp_path, CONFIG)):
        with pytest.raises(RunFolderError, match=said):
            opened()
    assert snapshot(tmp_path) == before


async def test_changed_settings_are_refused_by_name_and_change_nothing(tmp_path: Path) -> None:
    await write(tmp_path, True)
    changed = CONFIG.model_copy(
        update={"seed": 8, "mistakes": {"policy": "natural", "minimum": 2}, "models": {"judge": {"model": "x" * 300}}}
    )
    before = snapshot(tmp_path)
    with pytest.raises(RunFolderError) as caught:
        RunWriter.claim(tmp_path, changed)
    message = str(caught.value)
    assert (
        'begun with other settings: seed: 7 -> 8; mistakes.policy: "at_least" -> "natural"; models.player: {' in message
    )
    assert 'models.judge: null -> {"model":"xxx' in message
    assert "x" * 200 not in message
    assert "--fresh" in message
    assert snapshot(tmp_path) == before


@pytest.mark.parametrize(("name", "text"), [("notes.txt", "mine"), ("config.json", '{"model_type": "llama"}')])
def test_a_folder_with_something_else_in_it_is_refused(tmp_path: Path, name: str, text: str) -> None:
    (tmp_path / name).write_text(text)
    for fresh in (False, True):
        with pytest.raises(RunFolderError, match="is not empty, and no run is in it"):
            RunWriter.claim(tmp_path, CONFIG, fresh=fresh)
    assert names(tmp_path) == [name]


def test_what_a_process_left_that_died_before_it_began_is_no_obstacle(tmp_path: Path) -> None:
    (tmp_path / "run.lock").touch()
    (tmp_path / "config.json.new").write_text("{")
    (tmp_path / ".config.json.0badcafe.part").write_text("{")
    RunWriter.claim(tmp_path, CONFIG).close()
    assert RunFolder.open(tmp_path).config == CONFIG


@pytest.mark.parametrize(
    "name",
    ["config.json", "trajectories.jsonl", "rejected.jsonl", "events.jsonl", "journal.sqlite", "journal-1.sqlite"],
)
async def test_a_linked_file_of_a_run_is_refused_and_what_it_leads_to_stays(tmp_path: Path, name: str) -> None:
    path = (await write(tmp_path / "run", True, False)).path
    (path / name).unlink(missing_ok=True)
    (target := tmp_path / "precious").write_bytes(b"precious\n")
    (path / name).symlink_to(target)
    with pytest.raises(RefinesynthError, match="is a link, and a run" if name != "config.json" else "is not JSON"):
        RunWriter.claim(path, CONFIG)
    with pytest.raises(RunFolderError, match="is a link"):
        RunWriter.claim(path, CONFIG, fresh=True)
    assert target.read_bytes() == b"precious\n"


async def test_a_line_is_never_written_through_a_link_that_came_in_between(tmp_path: Path) -> None:
    (target := tmp_path / "precious").write_bytes(b"precious\n")
    (tmp_path / "events.jsonl").symlink_to(target)
    with pytest.raises(StorageError, match=r"cannot open .*events.jsonl"):
        LineWriter(tmp_path / "events.jsonl")
    with pytest.raises(StorageError, match=r"cannot write .*events.jsonl"):
        cut(tmp_path / "events.jsonl", end=0)
    assert target.read_bytes() == b"precious\n"


@pytest.mark.parametrize("name", ["config.json", "trajectories.jsonl", "journal.sqlite"])
async def test_a_fifo_in_a_run_is_refused_and_not_waited_for(tmp_path: Path, name: str) -> None:
    path = (await write(tmp_path / "run", True)).path
    (path / name).unlink()
    os.mkfifo(path / name)
    with pytest.raises(RunFolderError, match="is a FIFO"):
        RunFolder.open(path)
    with pytest.raises(RunFolderError, match=r"is a FIFO|is not empty, and no run"):
        RunWriter.claim(path, CONFIG)


def test_a_file_is_no_folder(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_text("mine")
    with pytest.raises(RunFolderError, match=r"cannot use .* give another folder"):
        RunWriter.claim(path, CONFIG)
    with pytest.raises(RunFolderError, match=r"cannot (use|make the folder)"):
        RunWriter.claim(path / "below", CONFIG)
    with pytest.raises(RunFolderError, match="cannot make a folder in"):
        next_run_folder(path)


async def test_two_runs_do_not_share_a_folder(tmp_path: Path) -> None:
    path = tmp_path / "run"
    first = RunWriter.claim(path, CONFIG)
    for fresh in (False, True):
        with pytest.raises(RunFolderError, match=f"is in use by another run: process {os.getpid()} "):
            RunWriter.claim(path, CONFIG, fresh=fresh)
    await first.append(finished(0))
    first.close()
    second = RunWriter.claim(path, CONFIG)
    assert second.committed.episodes == 1
    second.close()


@pytest.mark.representative
@pytest.mark.process
def test_of_many_processes_that_begin_one_run_one_does(tmp_path: Path) -> None:
    program = """
import sys
sys.path.insert(0, sys.argv[2])
from run_records import CONFIG
from refinesynth.errors import RunFolderError
from refinesynth.run import RunWriter
sys.stdin.readline()
try:
    folder = RunWriter.claim(sys.argv[1], CONFIG)
    print("has it", flush=True)
except RunFolderError as error:
    print("refused" if "in use by another run" in str(error) else error, flush=True)
sys.stdin.readline()
"""
    command = [sys.executable, "-c", program, str(tmp_path / "run"), str(Path(__file__).parents[1])]
    with ExitStack() as until:
        racing = [
            until.enter_context(subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True))
            for _ in range(3)
        ]
        said: list[str] = []
        for process in racing:
            assert process.stdin is not None
            process.stdin.write("go\n")
            process.stdin.flush()
        for process in racing:
            assert process.stdout is not None
            said.append(process.stdout.readline().strip())
        assert sorted(said) == ["has it", "refused", "refused"]
        # A dead owner holds nothing.
        for process in racing:
            process.kill()
            process.wait()
        RunWriter.claim(tmp_path / "run", CONFIG).close()


async def test_a_fresh_run_keeps_the_old_one_beside_it(tmp_path: Path) -> None:
    path = tmp_path / "run"
    for seed in (1, 2):
        folder = RunWriter.claim(path, CONFIG.model_copy(update={"seed": seed}), fresh=True)
        await folder.append(finished(seed - seed))
        folder.close()
    old = contents(path)
    assert next_old_path(path) == tmp_path / "run.old-2"
    fresh = RunWriter.claim(path, CONFIG.model_copy(update={"seed": 3}), fresh=True)
    assert fresh.committed.episodes == 0
    # While it runs, nobody can take the old folder for it.
    with pytest.raises(RunFolderError, match="in use"):
        RunWriter.claim(tmp_path / "run.old-2", CONFIG.model_copy(update={"seed": 2}))
    fresh.close()
    assert names(tmp_path) == ["run", "run.old-1", "run.old-2"]
    assert contents(tmp_path / "run.old-2") == old
    assert events(path)[0]["to"] == str(tmp_path / "run.old-2")
    # The old one can be gone on with.
    RunWriter.claim(tmp_path / "run.old-1", CONFIG.model_copy(update={"seed": 1})).close()


async def test_a_link_to_a_folder_stays_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    await write(tmp_path / "big disk" / "run", True)
    (tmp_path / "link").symlink_to(tmp_path / "big disk" / "run")
    RunWriter.claim(tmp_path / "link", CONFIG, fresh=True).close()
    assert names(tmp_path / "big disk") == ["run", "run.old-1"]
    assert RunFolder.open(tmp_path / "link").totals().episodes == 0
    monkeypatch.chdir(tmp_path / "big disk" / "run")
    with pytest.raises(RunFolderError, match="cannot be moved aside from within"):
        RunWriter.claim(".", CONFIG, fresh=True)
