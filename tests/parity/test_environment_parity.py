"""Our worlds in other people's trainers: TRL's GRPO, verifiers' evaluation and OpenEnv's validator, each run as its users
run it, and each with the rewards that we give.
"""

import json
import os
import re
import socket
import subprocess
import time
from collections.abc import Generator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest
from parity_cases import VENVS, installed
from typer.testing import CliRunner

from refinesynth.cli import app
from refinesynth.environments import GroundedEnvironment, read_worlds
from refinesynth.trajectory import Script

pytestmark = pytest.mark.train

WORLDS = 6


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("runs") / "worlds"
    asked = ["run", "-n", str(WORLDS), "--play", "grounded", "--seed", "7", "-o", str(folder)]
    assert CliRunner().invoke(app, asked).exit_code == 0
    return folder


def done(command: list[str], folder: Path, **own: str) -> str:
    ended = subprocess.run(command, cwd=folder, env={**os.environ, **own}, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stdout[-2000:] + ended.stderr[-4000:]
    return ended.stdout


@contextmanager
def serving(command: list[str], folder: Path, port: int) -> Generator[str]:
    """A server, until it answers and while it is needed."""
    process = subprocess.Popen(command, cwd=folder, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        for _ in range(600):
            with closing(socket.socket()) as probe:
                if probe.connect_ex(("127.0.0.1", port)) == 0:
                    break
            assert process.poll() is None
            time.sleep(0.1)
        yield f"http://127.0.0.1:{port}"
    finally:
        process.terminate()
        process.wait(timeout=30)


def free_port() -> int:
    with closing(socket.socket()) as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


@installed("trl")
def test_trl_trains_by_grpo_in_our_worlds(run: Path, tmp_path: Path) -> None:
    rows = tmp_path / "rows.jsonl"
    assert CliRunner().invoke(app, ["export", str(run), "--format", "rl", "-o", str(rows)]).exit_code == 0
    job = str(Path(__file__).with_name("trl_grpo_job.py"))
    python = str(VENVS / "trl" / "bin" / "python")
    done([python, job, str(rows), "3", str(tmp_path)], tmp_path, HF_HOME=str(tmp_path / "hub"))
    report = json.loads((tmp_path / "report.json").read_bytes())
    assert [len(group) for group in report["rewards"]] == [4] * 3
    assert any(len(set(group)) > 1 for group in report["rewards"])
    assert report["solution"] == 1.0
    assert [schema["function"]["name"] for schema in report["schemas"]] == ["act"]


@installed("verifiers")
@pytest.mark.parametrize("form", ["react", "tools"])
def test_verifiers_rewards_are_ours(run: Path, tmp_path: Path, form: str) -> None:
    port = free_port()
    serve = [str(VENVS / "verifiers" / "bin" / "python"), "-m", "refinesynth", "serve", "--port", str(port)]
    with serving(serve, tmp_path, port) as url:
        evaluate = [str(VENVS / "verifiers" / "bin" / "vf-eval"), "refinesynth-worlds", "--no-rich", "--no-push"]
        evaluate += ["--env.taskset.source", str(run), "--env.progress", "0.5", "--env.mistake", "0.1"]
        evaluate += ["--env.taskset.task.form", form]
        evaluate += ["--model", "rehearsal", "--client.base-url", f"{url}/v1", "--client.api-key-var", "ANY_KEY"]
        done([*evaluate, "-o", str(tmp_path / "out")], tmp_path, ANY_KEY="x")
    (traces,) = tmp_path.glob("out/*/traces.jsonl")
    found = [json.loads(line) for line in traces.read_bytes().splitlines()]
    assert len(found) == WORLDS
    played: set[str] = set()
    for episode in found:
        for trace in episode.get("traces", [episode]):
            data = trace["task"]["data"]
            world = GroundedEnvironment(Script.model_validate(data["script"]))
            for said, calls in _said(trace):
                if form == "react":
                    world.reply(said)
                for call in calls:
                    world.act({"name": call["name"], "arguments": json.loads(call["arguments"])})
            assert trace["rewards"]["world"]["score"] == world.reward(progress=0.5, mistake=0.1)
            assert trace["metrics"]["success"] == float(world.success)
            assert world.taken > 1
            played.add(data["id"])
    assert played == {world.id for world in read_worlds(run)}


def _said(trace: dict[str, Any]) -> list[tuple[str, list[dict[str, str]]]]:
    """Text and calls of the assistant's messages, in order."""
    messages = [node["message"] for node in trace["nodes"]]
    return [(one["content"], one.get("tool_calls") or []) for one in messages if one["role"] == "assistant"]


_SERVE = "import sys, uvicorn; from refinesynth.environments.openenv import app_of; uvicorn.run(app_of(sys.argv[1]), port=int(sys.argv[2]))"
_SOLVE = """
import sys
from openenv.core.generic_client import GenericEnvClient
from refinesynth.environments import read_worlds
with GenericEnvClient(base_url=sys.argv[2]).sync() as client:
    for index, world in enumerate(read_worlds(sys.argv[1])):
        result = client.reset(index=index)
        for action in world.script.rulebook.solution:
            result = client.step({"action": action})
        print(world.id, result.reward, result.done)
    drawn = {client.reset().observation["text"] for _ in range(20)}
    print("drawn", len(drawn))
"""


@installed("openenv")
def test_openenv_validates_the_server_and_its_own_client_solves_it(run: Path, tmp_path: Path) -> None:
    bin_ = VENVS / "openenv" / "bin"
    port = free_port()
    with serving([str(bin_ / "python"), "-c", _SERVE, str(run), str(port)], tmp_path, port) as url:
        assert "Verdict: PASS" in done([str(bin_ / "openenv"), "validate", "--url", url], tmp_path)
        played = done([str(bin_ / "python"), "-c", _SOLVE, str(run), url], tmp_path)
    solved = re.findall(r"^(\S+) 1.0 True$", played, re.MULTILINE)
    assert int(played.split()[-1]) > 1
    assert solved == [world.id for world in read_worlds(run)]
