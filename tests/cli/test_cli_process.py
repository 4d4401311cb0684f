"""The command as a process: what only shows from outside."""

import os
import re
import signal
import subprocess
import sys
import time
import tomllib
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import orjson
import pytest
from cli_records import a_trajectory, write_run

from refinesynth import __version__
from refinesynth.rehearsal import Rehearsal
from refinesynth.run import RunFolder
from refinesynth.serve import create_app, running

pytestmark = pytest.mark.process

COMMAND = [sys.executable, "-m", "refinesynth"]
CANARY = "sk-canary-0815"
PATIENCE = 120
"""Seconds after which a process is taken to hang; a loaded machine needs a good part of it to import litellm."""


def call(*arguments: object, warm: Path | None = None, **environment: str) -> subprocess.CompletedProcess[str]:
    command = COMMAND if warm is None else [str(warm / "refinesynth")]
    return subprocess.run(
        [*command, *map(str, arguments)],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )


@pytest.mark.representative
def test_python_m_is_the_command() -> None:
    done = call("--version")
    assert (done.returncode, done.stdout, done.stderr) == (0, f"refinesynth {__version__}\n", "")


HEAVY = {"pydantic", "pydantic_ai", "litellm", "openai", "jinja2", "anyio", "numpy", "structlog", "orjson", "re2",
         "torch", "transformers", "datasets", "aiohttp", "httpx", "sqlite3"}  # fmt: skip

RUNS = {"pydantic", "orjson", "anyio", "re2", "sqlite3"}
"""Packages that reading a run needs."""


@pytest.mark.representative
@pytest.mark.parametrize(
    ("arguments", "allowed"),
    # typer itself reads the values of options with pydantic.
    [
        (["--help"], set[str]()),
        # Its options are fields of settings.
        (["run", "--help"], {"pydantic", "orjson"}),
        (["--version"], {"pydantic"}),
        (["rules"], {"pydantic", "orjson", "re2"}),
        (["show"], RUNS),
        (["report"], RUNS),
        (["view"], RUNS),
        (["serve-world"], RUNS),
        (["export"], RUNS),
        (["train", "--show-config", "--recipe", "lora"], RUNS),
    ],
)
def test_help_and_wrong_usage_import_nothing_heavy(arguments: list[str], allowed: set[str]) -> None:
    program = f"""
import sys
from refinesynth.cli import main
sys.argv = ["refinesynth", *{arguments!r}]
try:
    main()
finally:
    print("imported:", *sys.modules, file=sys.stderr)
"""
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=PATIENCE, check=False
    )
    imported = set(done.stderr.splitlines()[-1].removeprefix("imported: ").split())
    assert "typer" in imported
    assert imported & HEAVY <= allowed


@pytest.mark.representative
def test_without_any_extra_every_command_has_help_and_names_the_extra_that_it_needs(tmp_path: Path) -> None:
    run = write_run(tmp_path / "run", [a_trajectory()]) / "trajectories.jsonl"
    about = tomllib.loads((Path(__file__).resolve().parents[2] / "pyproject.toml").read_text(encoding="utf-8"))
    extras = about["project"]["optional-dependencies"]
    names = {re.split(r"\W*[^\w-]", text)[0] for extra in extras.keys() - {"dev"} for text in extras[extra]}
    modules = sorted(name.replace("-", "_") for name in names - {"refinesynth"})
    assert {"numpy", "torch", "huggingface_hub", "inspect_ai", "pyarrow"} <= {*modules}
    program = f"""
import sys
sys.modules.update(dict.fromkeys({modules!r}))  # so an import of them fails
from refinesynth.cli import app
from refinesynth.cli.app import _COMMANDS
commands = [[name, "--help"] for panel in _COMMANDS.values() for name in panel]
commands += [["train", "data"], ["export", {str(run)!r}, "--format", "openai", "-o", {str(tmp_path / "a.jsonl")!r}]]
commands += [["export", {str(run)!r}, "--format", "tokens", "--model", "x", "-o", {str(tmp_path / "b.jsonl")!r}]]
for command in commands:
    try:
        app(command)
    except SystemExit as ending:
        if ending.code:
            print(command[0], ending.code, file=sys.stderr)
from refinesynth.errors import ConfigurationError
try:
    from refinesynth.train import Trainer
except ConfigurationError as error:
    print(error, file=sys.stderr)
"""
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=PATIENCE, check=False
    )
    advice = "this needs the package 'numpy', which is not installed: pip install 'refinesynth[train]'"
    refused = [line for name in ("train", "export") for line in (f"refinesynth: {advice}", f"{name} 2")]
    assert done.stderr.splitlines() == [*refused, advice]


def test_the_rehearsal_does_not_import_litellm(tmp_path: Path) -> None:
    program = f"""
import sys
from refinesynth.cli import main
sys.argv = ["refinesynth", "run", "-n", "1", "-o", {str(tmp_path / "run")!r}]
try:
    main()
finally:
    print("litellm" in sys.modules, file=sys.stderr)
"""
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=PATIENCE, check=False
    )
    assert (done.returncode, done.stderr.splitlines()[-1]) == (0, "False")


def test_a_reader_that_goes_away_ends_it_quietly(tmp_path: Path) -> None:
    run = write_run(tmp_path / "run", [a_trajectory(f"{number:06d}-x") for number in range(2_000)])
    with subprocess.Popen(
        [*COMMAND, "show", str(run), "--list"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        assert process.stdout.readline().startswith("000000-x")
        process.stdout.close()
        assert process.wait(PATIENCE) == 141
        assert process.stderr.read() == ""


def test_an_encoding_that_lacks_a_character_gets_an_escape(tmp_path: Path) -> None:
    run = write_run(tmp_path / "run", [a_trajectory()])
    done = call("show", run, PYTHONIOENCODING="ascii", PYTHONUTF8="0")
    assert done.returncode == 0
    assert "\\u2717 mistake (place)" in done.stdout


def test_nobody_reading_the_report_does_not_spoil_the_run(tmp_path: Path) -> None:
    with subprocess.Popen(
        [*COMMAND, "run", "-n", "1", "-o", str(tmp_path / "run")], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.close()
        process.stderr.close()
        assert process.wait(PATIENCE) == 0
    assert len((tmp_path / "run" / "trajectories.jsonl").read_bytes().splitlines()) == 1


@pytest.fixture
def served() -> Iterator[str]:
    """The rehearsal over HTTP, slow enough to be interrupted."""
    with running(create_app(Rehearsal(), latency=0.3)) as address:
        yield f"{address}/v1"


def finished(folder: Path) -> int:
    events = folder / "events.jsonl"
    return events.read_bytes().count(b'"episode_finished"') if events.exists() else 0


@pytest.mark.representative
def test_ctrl_c_leaves_whole_files_without_secrets_and_the_same_command_completes_them(
    tmp_path: Path, served: str, warm: Path
) -> None:
    folder = tmp_path / "run"
    environment = {"HOSTED_VLLM_API_BASE": served, "HOSTED_VLLM_API_KEY": CANARY, "OPENAI_API_KEY": CANARY}
    asked = ["run", "-n", "6", "-o", str(folder), "--backend", "hosted_vllm/rehearsal", "--concurrency", "2"]
    # Narrated: a few requests for an episode, each of them slow.
    asked += ["--play", "narrated"]
    with subprocess.Popen(
        [*COMMAND, *asked],
        env={**os.environ, **environment},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    ) as process:
        deadline = time.monotonic() + PATIENCE
        while finished(folder) < 2 and process.poll() is None and time.monotonic() < deadline:
            time.sleep(0.02)
        os.killpg(process.pid, signal.SIGINT)
        stdout, stderr = process.communicate(timeout=PATIENCE)
    assert process.returncode == 130, stderr
    assert "interrupted: everything finished so far" in stderr
    assert "Traceback" not in stderr

    stopped = RunFolder.open(folder)
    counted = list(stopped.episodes())
    assert len(counted) + len(stopped.waiting_lines()) >= 2
    assert len(list(stopped.trajectories())) == sum(line.accepted for line in counted)

    resumed = call(*asked, warm=warm, **environment)
    assert resumed.returncode == 0, resumed.stderr
    lines = (folder / "trajectories.jsonl").read_bytes().splitlines()
    ids = [orjson.loads(line)["id"] for line in lines]
    assert len(ids) == 6
    assert ids == sorted(set(ids))
    for text in (stdout, stderr, resumed.stdout, resumed.stderr):
        assert CANARY not in text
    assert [path.name for path in folder.iterdir() if CANARY.encode() in path.read_bytes()] == []


@pytest.mark.parametrize("module", ["refinesynth.cli.app", "typer", "refinesynth.cli.run_display", "pydantic_ai"])
def test_ctrl_c_while_something_is_imported_ends_it_without_a_traceback(tmp_path: Path, module: str) -> None:
    program = f"""
import os, signal, sys

class Interrupting:
    def find_spec(self, name, *_):
        if name == {module!r}:
            os.kill(os.getpid(), signal.SIGINT)

sys.meta_path.insert(0, Interrupting())
sys.argv = ["refinesynth", "run", "-n", "1", "-o", {str(tmp_path / "run")!r}]
from refinesynth.__main__ import main
main()
"""
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=PATIENCE, check=False
    )
    assert done.returncode == 130, done.stderr
    assert "Traceback" not in done.stderr
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    "when", ["atexit.register(interrupt)", "threading._register_atexit(interrupt)", "weakref.finalize(os, interrupt)"]
)
def test_ctrl_c_while_the_interpreter_ends_leaves_no_traceback(when: str) -> None:
    program = f"""
import atexit, os, signal, sys, threading, time, weakref

def interrupt():
    os.kill(os.getpid(), signal.SIGINT)
    time.sleep({PATIENCE})

{when}
sys.argv = ["refinesynth", "--version"]
from refinesynth.__main__ import main
main()
"""
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=PATIENCE, check=False
    )
    assert (done.returncode, done.stderr) == (130, "")


@pytest.mark.representative
@pytest.mark.parametrize("blocks", [80, 140])
def test_a_disk_that_fills_up_while_it_runs_is_3(tmp_path: Path, warm: Path, blocks: int) -> None:
    """No file may become longer than so many KiB: the system refuses as it does when there is no room."""
    folder = tmp_path / "run"
    asked = ["run", "-n", "9", "-o", str(folder), "--play", "narrated"]
    limited = ["bash", "-c", f'ulimit -f {blocks} && exec "$@"', "bash", *COMMAND, *asked]
    # Else Python writes down what it has compiled, cut off where the limit is.
    plain = os.environ | {"PYTHONDONTWRITEBYTECODE": "1"}
    done = subprocess.run(limited, capture_output=True, text=True, timeout=PATIENCE, check=False, env=plain)
    assert done.returncode == 3, done.stderr
    assert "Traceback" not in done.stderr
    spent = sum(row.requests for row in RunFolder.open(folder).spent())
    assert spent > 0
    assert (done := call(*asked, warm=warm)).returncode == 0, done.stderr
    assert call("run", "-n", "9", "-o", tmp_path / "whole", "--play", "narrated", warm=warm).returncode == 0
    for name in ("trajectories.jsonl", "rejected.jsonl"):
        assert (folder / name).read_bytes() == (tmp_path / "whole" / name).read_bytes()


def test_ctrl_c_ends_it_while_a_source_gives_nothing(tmp_path: Path) -> None:
    os.mkfifo(source := tmp_path / "silent.jsonl")
    with subprocess.Popen(
        [*COMMAND, "run", str(source), "-n", "1", "-o", str(tmp_path / "run")], stderr=subprocess.PIPE, text=True
    ) as process:
        # Until it opens the pipe to read, opening it to write is refused.
        deadline = time.monotonic() + PATIENCE
        writer = -1
        while writer < 0 and process.poll() is None and time.monotonic() < deadline:
            with suppress(OSError):
                writer = os.open(source, os.O_WRONLY | os.O_NONBLOCK)
            time.sleep(0.02)
        process.send_signal(signal.SIGINT)
        # The pipe stays open, so that nothing but the signal can end it.
        assert process.wait(PATIENCE) == 130
        assert process.stderr is not None
        assert process.stderr.read().endswith("interrupted before anything was written\n")
        os.close(writer)


def test_serve_says_where_it_is_and_ends_with_ctrl_c() -> None:
    with subprocess.Popen(
        [*COMMAND, "serve", "--port", "0", "--latency", "0.001"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        line = process.stdout.readline()
        assert line.startswith("serving rehearsal at http://127.0.0.1:")
        process.send_signal(signal.SIGINT)
        _, stderr = process.communicate(timeout=PATIENCE)
    assert (process.returncode, stderr) == (130, "")
