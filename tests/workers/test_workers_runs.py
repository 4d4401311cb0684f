"""The command with workers: a signal leaves nothing running, and a Ray that is killed ends the run in words."""

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Generator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from bench.command import family
from refinesynth.run import RunFolder
from refinesynth.run.resume import blocks_of

pytestmark = [
    pytest.mark.process,
    pytest.mark.skipif(not Path("/proc/self/task").is_dir(), reason="processes are looked up in Linux's /proc"),
]


@contextmanager
def running(folder: Path) -> Generator[subprocess.Popen[str]]:
    personas = folder.with_name("personas.txt")
    personas.write_text("".join(f"A clerk of office {number}\n" for number in range(20_000)))
    command = [
        sys.executable,
        "-m",
        "refinesynth",
        "run",
        str(personas),
        "-n",
        "20000",
        "--seed",
        "7",
        "-o",
        str(folder),
    ]
    with subprocess.Popen(
        [*command, "--workers", "2"], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as run:
        try:
            yield run
        finally:
            run.kill()


def one_of(pid: int, name: str, *, patience: float = 120.0) -> int:
    """The process below `pid` whose command line holds `name`."""
    until = time.monotonic() + patience
    while time.monotonic() < until:
        with suppress(OSError):
            for child in family(pid):
                if name in Path(f"/proc/{child}/cmdline").read_text():
                    return child
        time.sleep(0.05)
    raise AssertionError(f"no process {name!r} was started")


def test_a_run_whose_raylet_is_killed_says_so(tmp_path: Path) -> None:
    with running(tmp_path / "run") as run:
        # Before a block is played, Ray is started again.
        one_of(run.pid, "ray::play_block")
        child = one_of(run.pid, "refinesynth")
        os.kill(one_of(run.pid, "/raylet/raylet"), signal.SIGKILL)
        said = run.communicate(timeout=100)[0]
    assert run.returncode == 3, said
    # Ray ends the process of the run, unless that notices first.
    assert re.search("Ray ended the run: one of its|the connection to the Ray cluster is lost", " ".join(said.split()))
    assert not Path(f"/proc/{child}").exists()


def test_ctrl_c_ends_the_blocks_and_leaves_nothing_running(tmp_path: Path) -> None:
    with running(tmp_path / "run") as run:
        one_of(run.pid, "ray::play_block")
        while not (tmp_path / "run" / "trajectories.jsonl").stat().st_size:
            time.sleep(0.05)
        processes = list(family(run.pid))
        run.send_signal(signal.SIGINT)
        said = run.communicate(timeout=100)[0]
    assert run.returncode == 130, said
    assert not [pid for pid in processes if Path(f"/proc/{pid}").exists()]
    assert not blocks_of(tmp_path / "run").exists()
    folder = RunFolder.open(tmp_path / "run")
    needed = sum(line.usage.requests for line in (*folder.episodes(), *folder.waiting_lines()))
    assert sum(row.requests for row in folder.spent()) == needed + sum(one.requests for one in folder.outstanding())
