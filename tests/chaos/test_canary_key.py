"""A key never leaves the process but in its requests: not into a file, a log, an error, a traceback or an export."""

import logging
import subprocess
from collections.abc import Iterator
from pathlib import Path
from traceback import format_exception

import anyio
import pytest
from chaos_stage import PATHS, backend, served
from echo_server import MANNERS, echoing, spellings
from launching import Launcher

import refinesynth as rs
from refinesynth.errors import RefinesynthError
from refinesynth.serve import running

pytestmark = pytest.mark.process

PATIENCE = 120
PERSONAS = ["A sailor who mends nets", "A cook on a train"]
KEY = "canary+08/15 is=a'key"
"""Nothing that a pattern of keys would find, and spelt otherwise in JSON, in URLs and in Python."""


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    with echoing() as address:
        yield address


@pytest.fixture(scope="module")
def launcher(warm: Path, tmp_path_factory: pytest.TempPathFactory) -> Launcher:
    return Launcher(warm, tmp_path_factory.mktemp("launcher") / "said")


def leaks(text: str | bytes, key: str) -> list[str]:
    """The spellings in which the key is in a text."""
    text = text.encode(errors="surrogateescape") if isinstance(text, str) else text
    return [spelling for spelling in spellings(key) if spelling.encode() in text]


def leaking_files(folder: Path, key: str) -> list[str]:
    """The files under a folder that hold the key, or have it in their name."""
    files = [path for path in folder.rglob("*") if path.is_file()]
    return [str(path) for path in files if leaks(path.read_bytes(), key) or leaks(str(path), key)]


async def failure(address: str, manner: str, path: str, folder: Path) -> str:
    """What is said of a run that fails in this manner."""
    asked = backend(
        f"{address}/{manner}", path=path, api_key_env="CANARY_API_KEY", retries=1, content_retries=1, timeout=0.5
    )
    with anyio.fail_after(60):
        try:
            result = await rs.synthesize(PERSONAS, n=1, play="narrated", backend=asked, output=folder)
        except RefinesynthError as error:
            return "".join(format_exception(error))
    return f"{result} {result.shortfall} {result.by_rule}"


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("manner", MANNERS)
async def test_a_key_that_a_server_repeats_goes_nowhere(
    *,
    manner: str,
    path: str,
    address: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    capfd: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("CANARY_API_KEY", KEY)
    with caplog.at_level(logging.DEBUG, logger="refinesynth"):
        said = await failure(address, manner, path, tmp_path / "run")
    assert not leaks("".join((said, *capfd.readouterr(), caplog.text)), KEY)
    assert not leaking_files(tmp_path, KEY)


def run_options(address: str, folder: Path, **settings: object) -> list[str]:
    given = {"base_url": f"{address}/v1", "api_key_env": "CANARY_API_KEY", "retries": 1, "timeout": 2, **settings}
    asked = [option for name, value in given.items() for option in ("--set", f"{name}={value}")]
    return ["run", "-n", "2", "--play", "narrated", "--backend", "openai/rehearsal", "-o", str(folder), *asked]


@pytest.mark.parametrize("path", PATHS)
def test_what_the_command_prints_of_a_refused_key_does_not_hold_it(
    path: str, address: str, launcher: Launcher, tmp_path: Path
) -> None:
    options = run_options(f"{address}/401", tmp_path / "run", path=path)
    _, printed = launcher.run(["--debug", *options], environment={"CANARY_API_KEY": KEY})
    assert "CANARY_API_KEY" in printed, printed
    assert "Traceback" in printed
    assert not leaks(printed, KEY)
    assert not leaking_files(tmp_path, KEY)


CRASH = """
import os, sys
from refinesynth.cli import main
from refinesynth.synthesis import pool

async def crash(self, *arguments, **options):
    raise RuntimeError(f"with {os.environ['CANARY_API_KEY']} at hand")

pool.Pool.run = crash
sys.argv[0] = "refinesynth"
main()
"""


@pytest.mark.parametrize("debug", [(), ("--debug",)])
def test_a_crash_does_not_print_a_key(
    debug: tuple[str, ...], warm: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CANARY_API_KEY", KEY)
    command = [str(warm / "python"), "-c", CRASH, *debug, "run", "-n", "1", "-o", str(tmp_path / "run")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE, check=False)
    assert ("Traceback" in done.stderr) == bool(debug), done.stderr
    assert "RuntimeError" in done.stderr
    assert not leaks(done.stdout + done.stderr, KEY)
    assert not leaking_files(tmp_path, KEY)


def test_a_whole_run_its_reports_and_its_export_do_not_hold_a_key(launcher: Launcher, tmp_path: Path) -> None:
    folder, environment = tmp_path / "run", {"CANARY_API_KEY": KEY, "OPENAI_API_KEY": KEY}

    def call(*command: str) -> str:
        code, printed = launcher.run(command, environment=environment)
        assert code == 0, printed
        return printed

    faults = {500: 0.1, 429: 0.1, "before": 0.05, "garbage": 0.05}
    with running(served(faults)) as address:
        printed = [call("--debug", *run_options(address, folder, retries=9, longest_wait=0.05))]
    commands = (["status"], ["status", "--json"], ["show"], ["show", "--json"], ["verify"])
    printed += [call(name, str(folder), *options) for name, *options in commands]
    printed.append(call("export", str(folder), "--format", "trl", "-o", str(tmp_path / "data.jsonl")))
    card = ("me/first", "--license", "cc0-1.0", "--format", "traces", "--dry-run", "-o", str(tmp_path / "made"))
    printed.append(call("publish", str(folder), *card))
    assert (tmp_path / "made" / "README.md").exists(), printed
    assert (folder / "trajectories.jsonl").read_bytes().count(b"\n") == 2
    assert not leaks("".join(printed), KEY)
    assert not leaking_files(tmp_path, KEY)
