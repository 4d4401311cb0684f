"""`refinesynth status`: where a run stands, whoever works on it, and however that one ended."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import anyio
import orjson
import pytest
from typer.testing import CliRunner, Result

from refinesynth.backends.rehearsal import Rehearsal
from refinesynth.cli import app
from refinesynth.serve import create_app, running
from refinesynth.synthesis import Progress, synthesize

PATIENCE = 120


def status(*arguments: object) -> Result:
    # Wide enough for whatever is in a table to stand on one line.
    return CliRunner().invoke(app, ["status", *map(str, arguments)], env={"COLUMNS": "160"})


def as_json(folder: Path) -> dict[str, Any]:
    result = status(folder, "--json")
    assert result.exit_code == 0, result.output
    return orjson.loads(result.stdout)


@pytest.fixture
def complete(tmp_path: Path) -> Path:
    async def run() -> None:
        await synthesize(None, 4, "rehearsal:no_success=0.3", play="narrated", output=tmp_path / "run")

    anyio.run(run)
    return tmp_path / "run"


def test_a_complete_run_says_what_came_of_it(complete: Path) -> None:
    result = status(complete)
    assert result.exit_code == 0, result.output
    lines = [" ".join(line.split()) for line in result.stdout.splitlines()]
    assert "state complete" in lines
    assert "accepted 4 of 4" in lines
    assert any(line.endswith("by TaskSucceed") for line in lines)
    assert any(line.startswith("last event run_ended reached") for line in lines)
    assert any(line.startswith("narrator rehearsal:no_success=0.3") for line in lines)
    assert any(line.startswith("all ") for line in lines)
    assert "\x1b" not in result.output
    found = as_json(complete)
    assert (found["state"], found["n"], found["written"], found["in_flight"]) == ("complete", 4, 4, [])
    assert found["cost_usd"] == 0
    assert {row["role"] for row in found["spent"]} == {"script_writer", "narrator"}
    assert found["process"]["pid"] == os.getpid()


def test_a_run_that_was_interrupted_says_so_and_what_it_had_begun(tmp_path: Path) -> None:
    async def run() -> None:
        rehearsal = Rehearsal()

        with anyio.CancelScope() as scope:

            async def call(**request: Any) -> object:
                if not str(request["messages"]).count("A"):
                    raise AssertionError("every request has words")
                return await rehearsal(**request)

            def interrupt(progress: Progress) -> None:
                if progress.finished == 2:
                    scope.cancel()

            await synthesize(
                None, 30, "openai/any", output=tmp_path / "run", call=call, on_progress=interrupt, concurrency=4
            )

    anyio.run(run)
    found = as_json(tmp_path / "run")
    assert (found["state"], found["why"]) == ("stopped", "interrupted")
    assert found["episodes"] >= 2
    assert found["cost_usd"] is None
    result = status(tmp_path / "run")
    assert "stopped: interrupted; the same command goes on with it" in " ".join(result.stdout.split())
    assert "unknown" in result.stdout


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
            text = " ".join(status(folder).stdout.split())
            assert f"running, by process {process.pid} on" in text
            assert "in flight" in text
            process.send_signal(signal.SIGKILL)
            process.wait(PATIENCE)
    dead = as_json(folder)
    assert dead["state"] == "died"
    assert sum(row["requests"] for row in dead["spent"]) >= sum(row["requests"] for row in alive["spent"])
    assert "the same command goes on with it and pays for nothing twice" in " ".join(status(folder).stdout.split())


def test_a_run_without_enough_personas_says_what_would_continue_it(tmp_path: Path) -> None:
    async def run() -> None:
        await synthesize(["A potter from Fez"], 4, play="narrated", output=tmp_path / "run")

    anyio.run(run)
    assert "stopped: the personas ran out; the same command with more of them" in status(tmp_path / "run").stdout


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


def test_lines_without_a_journal_are_counted(complete: Path) -> None:
    for file in complete.glob("journal.sqlite*"):
        file.unlink()
    found = as_json(complete)
    assert (found["written"], found["spent"]) == (4, [])


def test_what_is_no_run_is_2_and_a_damaged_journal_3(tmp_path: Path, complete: Path) -> None:
    assert status(tmp_path).exit_code == 2
    (complete / "journal.sqlite").write_bytes(b"no database" * 1000)
    result = status(complete)
    assert result.exit_code == 3
    assert "is damaged" in result.stderr
