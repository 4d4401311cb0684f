"""A run as Inspect logs, and what the command says."""

import json
import shutil
import socket
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import anyio
import pytest
from typer.testing import CliRunner, Result

import refinesynth as rs
from refinesynth.cli import app

pytest.importorskip("inspect_ai", reason="needs the extra evaluate")

from inspect_ai.log import EvalLog, EvalSample, list_eval_logs, read_eval_log

from refinesynth.cli import view as view_command
from refinesynth.errors import InputError, RunFolderError
from refinesynth.evaluate import inspect_logs
from refinesynth.evaluate.inspect_logs import write_logs
from refinesynth.files.output_folder import FolderLock
from refinesynth.rules.repairs import refinements

HOSTILE = "<script>document.title='run'</script><img src=x onerror=\"document.title='run'\"> **b** [a](javascript:alert(1)) \x1b[31m\x00\u202e"


def rehearse(folder: Path, n: int) -> Path:
    async def synthesize() -> None:
        await rs.synthesize(n=n, backend="rehearsal", output=folder)

    anyio.run(synthesize)
    return folder


@pytest.fixture(scope="session")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return rehearse(tmp_path_factory.mktemp("runs") / "first", 20)


@pytest.fixture
def run(finished: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(finished, tmp_path / "first"))


def view(*arguments: object) -> Result:
    return CliRunner().invoke(app, ["view", *map(str, arguments)])


def read(folder: Path, kind: str) -> list[EvalLog]:
    return [read_eval_log(str(path)) for path in sorted(folder.glob(f"{kind}-*.eval"))]


def samples(folder: Path, kind: str) -> list[EvalSample]:
    return [sample for log in read(folder, kind) for sample in log.samples or []]


def text_of(sample: EvalSample) -> str:
    return "\n".join(message.model_dump_json() for message in sample.messages)


def lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def only_lines(run: Path, folder: Path, **records: Sequence[object]) -> Path:
    """A copy of a run with other records, as someone may hand it on."""
    folder.mkdir()
    shutil.copy(run / "config.json", folder)
    for name in ("trajectories", "rejected"):
        text = "".join(f"{json.dumps(record)}\n" for record in records.get(name, ()))
        (folder / f"{name}.jsonl").write_text(text)
    return folder


def test_every_trajectory_is_a_sample_with_its_mistakes_and_refinements_marked(run: Path):
    result = rs.SynthesisResult.open(run)
    (log,) = read(write_logs(run), "accepted")
    assert log.status == "success"
    assert log.stats.started_at < log.stats.completed_at
    for trajectory, sample in zip(result, log.samples or [], strict=True):
        assert sample.id == trajectory.id
        assert len(sample.messages) == 1 + len(trajectory.turns)
        marked = [at for at, message in enumerate(sample.messages[1:]) if ", mistake (" in message.text]
        assert tuple(marked) == trajectory.mistakes()
        for at, (turn, message) in enumerate(zip(trajectory.turns, sample.messages[1:], strict=True)):
            assert turn.thought in message.model_dump(mode="json")["content"][0]["reasoning"]
            assert ("· " in message.text) == (at - 1 in trajectory.mistakes())
        scores = sample.scores or {}
        assert scores["mistakes"].value == len(marked)
        assert scores["refinements"].value == refinements(trajectory).answered
        assert (", refinement of turn" in text_of(sample)) == bool(marked)
        assert scores["verdict"].value == "accepted"
        assert sample.metadata["persona"] == trajectory.persona.text
        assert sample.metadata["script"]["environment"] == trajectory.script.environment
        assert sum(usage.total_tokens for usage in sample.model_usage.values()) == (
            trajectory.provenance.usage.input_tokens + trajectory.provenance.usage.output_tokens
        )


def test_what_was_refused_says_by_which_rules_and_where(run: Path):
    refused = list(rs.SynthesisResult.open(run).rejected)
    written = samples(write_logs(run), "refused")
    assert len(refused) == len(written) > 0
    for item, sample in zip(refused, written, strict=True):
        scores = sample.scores or {}
        assert scores["verdict"].value == item.rejecting[0]
        for violation in item.violations:
            assert f"({violation.code})" in str(scores["verdict"].explanation)
            assert violation.message in str(scores["verdict"].explanation)
            assert violation.message in "\n".join(message.text for message in sample.messages)


@pytest.mark.long
def test_only_what_has_grown_is_written_again(run: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(inspect_logs, "_MOST_SAMPLES", 8)
    folder = write_logs(run)
    before = {path.name: path.stat().st_mtime_ns for path in folder.glob("*.eval")}
    accepted = sorted(name for name in before if name.startswith("accepted"))
    assert [len(log.samples or []) for log in read(folder, "accepted")] == [8, 8, 4]
    write_logs(run)
    assert {path.name: path.stat().st_mtime_ns for path in folder.glob("*.eval")} == before

    (folder / ".inspect_tmp_x.writing").write_bytes(b"half")
    (folder / "notes.txt").write_text("a user's")
    rehearse(run, 30)
    write_logs(run)
    after = {path.name: path.stat().st_mtime_ns for path in folder.glob("*.eval")}
    assert after.items() >= {name: before[name] for name in accepted[:2]}.items()
    assert accepted[2] not in after
    assert [sample.id for sample in samples(folder, "accepted")] == [one.id for one in rs.SynthesisResult.open(run)]
    assert not (folder / ".inspect_tmp_x.writing").exists()
    assert (folder / "notes.txt").exists()


def test_interrupted_writing_leaves_whole_logs_that_the_next_time_completes(run: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(inspect_logs, "_MOST_SAMPLES", 8)

    def interrupt(records: int) -> None:
        if records > 8:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        write_logs(run, interrupt)
    assert [read_eval_log(found).status for found in list_eval_logs(str(run / "view"))] == ["success"] * 2
    assert [len(log.samples or []) for log in read(write_logs(run), "accepted")] == [8, 8, 4]


@pytest.mark.long
def test_hostile_texts_are_kept_readable_and_harmless(run: Path, tmp_path: Path):
    trajectory, item = lines(run / "trajectories.jsonl")[0], lines(run / "rejected.jsonl")[0]
    script = trajectory["script"]
    for turn in trajectory["turns"]:
        turn["thought"] = HOSTILE
        turn["observation" if turn["role"] == "DM" else "action"] = HOSTILE + "x" * 300_000
    trajectory |= {"id": "../" + HOSTILE, "persona": {"text": HOSTILE}}
    trajectory["script"] |= {"goal": HOSTILE, "introduction": HOSTILE, "environment": {HOSTILE: HOSTILE}}
    unreadable: dict[str, Any] = {
        **item,
        "stage": "script",
        "draft": None,
        "script": None,
        "text": HOSTILE,
        "violations": [],
    }
    malformed = {
        **item,
        "stage": "draft",
        "draft": {"script": script, "turns": [{"role": "malformed", "raw": HOSTILE, "problem": HOSTILE}]},
    }
    malformed["violations"] = [{"rule": HOSTILE, "turn": 10**6, "code": "c", "message": HOSTILE}]
    folder = only_lines(
        run, tmp_path / "odd", trajectories=[trajectory, trajectory], rejected=[unreadable, malformed, malformed]
    )
    folder = write_logs(folder)
    (log,) = read(folder, "accepted")
    assert log.eval.viewer is not None
    assert log.eval.viewer.trust_content is False
    found = [*(log.samples or []), *samples(folder, "refused")]
    assert len({sample.id for sample in found}) == 5
    for sample in found:
        assert "/" not in str(sample.id)
        assert "onerror" in text_of(sample)
        for text in [str(sample.input), *(message.text for message in sample.messages)]:
            assert all(character.isprintable() or character == "\n" for character in text)


def test_a_line_that_is_none_is_named_and_nothing_half_is_left(run: Path, tmp_path: Path):
    broken = only_lines(run, tmp_path / "broken", trajectories=[*lines(run / "trajectories.jsonl"), {"id": "x"}])
    with pytest.raises(RunFolderError, match=r"line 21 of .*trajectories\.jsonl"):
        write_logs(broken)
    assert list_eval_logs(str(broken / "view")) == []


def test_two_do_not_write_at_once(run: Path):
    (run / "view").mkdir()
    with FolderLock(run / "view", ".lock"), pytest.raises(RunFolderError, match="another view"):
        write_logs(run)


def test_the_run_is_as_it_was_beside_its_logs(run: Path, tmp_path: Path):
    files = {path.name: path.read_bytes() for path in run.iterdir() if path.suffix in {".json", ".jsonl"}}
    write_logs(run)
    assert {path.name: path.read_bytes() for path in run.iterdir() if path.suffix in {".json", ".jsonl"}} == files
    exported = CliRunner().invoke(app, ["export", str(run), "--format", "openai", "-o", str(tmp_path / "out.jsonl")])
    assert exported.exit_code == 0
    assert len(lines(tmp_path / "out.jsonl")) == 20
    assert CliRunner().invoke(app, ["status", str(run)]).exit_code == 0


def test_wrong_input_is_named_before_anything_is_written(run: Path, tmp_path: Path):
    empty = tmp_path / "empty"
    empty.mkdir()
    nothing = only_lines(run, tmp_path / "nothing")
    for arguments, said in (
        ((tmp_path / "nowhere",), "does not exist"),
        ((empty,), "neither a run"),
        ((run / "trajectories.jsonl",), "is a file"),
        ((nothing,), "neither accepted nor refused"),
        ((run, "--bundle", empty), "inspect view bundle --log-dir"),
    ):
        result = view(*arguments)
        assert (result.exit_code, said in result.stderr.replace("\n", " ")) == (2, True), result.stderr
    assert not (run / "view").exists()


def test_a_port_that_is_taken_is_refused_where_it_was_asked_for_and_else_avoided(monkeypatch: pytest.MonkeyPatch):
    with socket.socket() as listener:
        listener.bind((view_command.HOST, 0))
        listener.listen()
        taken = listener.getsockname()[1]
        with pytest.raises(InputError, match="cannot be used"):
            view_command.free_port(taken)
        monkeypatch.setattr(view_command, "PORT", taken)
        assert view_command.free_port(None) != taken
