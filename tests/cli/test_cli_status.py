"""`refinesynth status`: where a run stands, whoever works on it, and however that one ended."""

import os
import re
import signal
import subprocess
import sys
import time
from functools import partial
from pathlib import Path
from typing import Any

import anyio
import orjson
import pytest
from command_line import cli, unwrapped

from refinesynth.diversity import Contamination, Novelty
from refinesynth.outcome import EpisodeOutcome
from refinesynth.rehearsal import Rehearsal
from refinesynth.run import CompletedEpisode, RunConfig, RunWriter
from refinesynth.serve import create_app, running
from refinesynth.synthesis import Progress, synthesize
from refinesynth.synthesis.curator import Curator
from refinesynth.trajectory import Trajectory

PATIENCE = 120


# Wide enough for whatever is in a table to stand on one line.
status = partial(cli, "status", env={"COLUMNS": "160"})


def as_json(folder: Path) -> dict[str, Any]:
    result = status(folder, "--json")
    assert result.exit_code == 0, result.output
    return orjson.loads(result.stdout)


def made(folder: Path, backend: str, n: int = 4, *, play: str = "narrated", **settings: Any) -> Path:
    """A run in `folder`."""
    anyio.run(partial(synthesize, n=n, backend=backend, play=play, output=folder / "run", **settings))
    return folder / "run"


@pytest.fixture
def complete(tmp_path: Path) -> Path:
    return made(tmp_path, "rehearsal:no_success=0.3")


def test_a_complete_run_says_what_came_of_it(complete: Path) -> None:
    result = status(complete)
    assert result.exit_code == 0, result.output
    lines = [unwrapped(line) for line in result.stdout.splitlines()]
    assert "state complete" in lines
    assert "accepted 4 of 4" in lines
    assert any(line.endswith("by TaskSucceed") for line in lines)
    assert any(line.startswith("last event run_ended reached") for line in lines)
    assert any(line.startswith("narrator rehearsal:no_success=0.3") for line in lines)
    assert any(line.startswith("all ") for line in lines)
    assert "\x1b" not in result.output
    found = as_json(complete)
    assert (found["state"], found["n"], found["accepted"], found["in_flight"]) == ("complete", 4, 4, [])
    assert found["cost_usd"] == 0
    assert {row["role"] for row in found["spent"]} == {"script_writer", "narrator"}
    assert found["process"]["pid"] == os.getpid()


def test_a_run_that_was_interrupted_says_so_and_what_it_had_begun(tmp_path: Path) -> None:
    async def run() -> None:
        with anyio.CancelScope() as scope:

            def interrupt(progress: Progress) -> None:
                if progress.finished == 2:
                    scope.cancel()

            asked: dict[str, Any] = {"n": 30, "backend": "openai/any", "call": Rehearsal(), "concurrency": 4}
            await synthesize(**asked, output=tmp_path / "run", on_progress=interrupt)

    anyio.run(run)
    found = as_json(tmp_path / "run")
    assert (found["state"], found["why"]) == ("stopped", "interrupted")
    assert found["episodes"] >= 2
    assert found["cost_usd"] is None
    result = status(tmp_path / "run")
    assert "stopped: interrupted; the same command goes on with it" in unwrapped(result.stdout)
    assert "unknown" in result.stdout


@pytest.mark.process
def test_it_works_beside_a_running_process_and_after_that_one_was_killed(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    with running(create_app(Rehearsal(), latency=0.2)) as address:
        command = ["run", "-n", "50", "-o", str(folder), "--backend", "hosted_vllm/rehearsal", "--concurrency", "3"]
        with subprocess.Popen(
            [sys.executable, "-m", "refinesynth", *command],
            env={**os.environ, "HOSTED_VLLM_API_BASE": f"{address}/v1"},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        ) as process:
            deadline = time.monotonic() + PATIENCE
            alive: dict[str, Any] = {}
            while not (alive.get("in_flight") and alive.get("spent")) and process.poll() is None:
                assert time.monotonic() < deadline
                time.sleep(0.05)
                if (folder / "config.json").exists():
                    alive = as_json(folder)
            assert (alive["state"], alive["process"]["pid"]) == ("running", process.pid)
            assert 1 <= len(alive["in_flight"]) <= 3
            assert alive["spent"]
            text = unwrapped(status(folder).stdout)
            assert f"running, by process {process.pid} on" in text
            assert "in flight" in text
            process.send_signal(signal.SIGKILL)
            process.wait(PATIENCE)
    dead = as_json(folder)
    assert dead["state"] == "died"
    assert sum(row["requests"] for row in dead["spent"]) >= sum(row["requests"] for row in alive["spent"])
    assert "the same command goes on with it and pays for no completion twice" in " ".join(
        status(folder).stdout.split()
    )


@pytest.mark.parametrize(
    ("personas", "words"),
    [
        (None, "nothing was accepted"),
        (["A potter from Fez"], "stopped: the personas ran out; the same command with more of them"),
    ],
)
def test_a_run_without_anything_accepted_says_what_would_continue_it(
    tmp_path: Path, personas: list[str] | None, words: str
) -> None:
    said = unwrapped(status(made(tmp_path, "rehearsal:no_success=1.0", personas=personas, early_stop=2)).stdout)
    assert words in said
    assert re.search(r"why none (\d) of \1 episodes? without a trajectory: no draft was accepted", said)
    assert ("with --early-stop 0 goes on" in said) == (personas is None)


def test_a_process_of_another_host_may_live(complete: Path) -> None:
    holder = orjson.loads((complete / "run.lock").read_bytes())
    events = complete / "events.jsonl"
    lines = events.read_bytes().splitlines(keepends=True)
    events.write_bytes(b"".join(lines[:-1]))
    for host, pid, state in (("elsewhere", 1, "running"), (holder["host"], 2**22 + 1, "complete")):
        (complete / "run.lock").write_bytes(orjson.dumps({**holder, "host": host, "pid": pid}))
        assert as_json(complete)["state"] == state


@pytest.mark.parametrize("said", [b"", b"{\n", b"[]\n", b'{"event": "\\u001b[2J", "timestamp": 5}\n', b"\0\0\0\n"])
def test_whatever_is_in_its_files_is_shown_and_not_obeyed(complete: Path, said: bytes) -> None:
    (complete / "events.jsonl").write_bytes(said)
    (complete / "run.lock").write_bytes(said)
    for arguments in ([complete], [complete, "--json"]):
        result = status(*arguments)
        assert result.exit_code == 0, result.output
        assert "\x1b" not in result.output


def test_what_is_no_run_is_2_and_a_damaged_journal_3(tmp_path: Path, complete: Path) -> None:
    assert status(tmp_path).exit_code == 2
    (complete / "journal.sqlite").write_bytes(b"no database" * 1000)
    result = status(complete)
    assert result.exit_code == 3
    assert "is damaged" in result.stderr


def trajectories_of(folder: Path) -> list[Trajectory]:
    return [Trajectory.from_json(line) for line in (folder / "trajectories.jsonl").read_bytes().splitlines()]


SECRET = "seven wooden boats wait behind the ancient lighthouse until the keeper has painted every one of them"


async def curated(source: Path, path: Path, evaluation: Path) -> None:
    """A run with one trajectory, a copy of it, and one that an evaluation set holds."""
    first, second = trajectories_of(source)[:2]
    script = second.script.model_copy(update={"introduction": SECRET})
    curator = Curator(novelty=Novelty(), contamination=Contamination([evaluation]))
    folder = RunWriter.claim(path, RunConfig.load(source / "config.json"))
    for index, one in enumerate((first, first, second.model_copy(update={"script": script}))):
        name = f"{index:06d}"
        outcome = EpisodeOutcome(
            index=index, id=name, persona=one.persona, trajectories=(one.model_copy(update={"id": name}),)
        )
        await folder.append(CompletedEpisode.of(curator.curate(outcome)))
    folder.close()


def test_what_was_curated_is_counted_and_is_not_accepted_again(complete: Path, tmp_path: Path) -> None:
    evaluation = tmp_path / "test.txt"
    evaluation.write_text(SECRET, encoding="utf-8")
    anyio.run(curated, complete, tmp_path / "curated", evaluation)
    found = as_json(tmp_path / "curated")
    assert found["by_rule"] == {"NearDuplicate": 1, "Contaminated": 1}
    assert (found["variety"]["near_duplicates"], found["variety"]["contaminated"]) == (1, 1)
    assert (found["variety"]["environments"], found["accepted"]) == (1, 1)
    text = unwrapped(status(tmp_path / "curated").stdout)
    assert "1 near-duplicate and 1 contaminated refused" in text
    verified = cli("verify", tmp_path / "curated")
    assert "refused then, accepted now" not in verified.output
