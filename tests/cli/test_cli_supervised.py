"""A run on Ray has a parent, which reports what the run itself cannot."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

pytestmark = pytest.mark.process

COMMAND = """
import os, signal, sys, time
from refinesynth.cli.interrupt import report_end, supervise
if sys.argv[1] == "told at once":
    fork = os.fork
    def fork_and_be_told():
        child = fork()
        if child:
            os.kill(os.getpid(), signal.SIGTERM)
        return child
    os.fork = fork_and_be_told
supervise()
print(os.getpid(), flush=True)
if sys.argv[1] in ("wait", "told at once"):
    time.sleep(100)
if sys.argv[1] == "reported":
    report_end()
os._exit(int(sys.argv[2]))
"""


@pytest.mark.skipif(not Path("/proc/self/task").is_dir(), reason="processes are looked up in Linux's /proc")
def test_a_supervised_run_ends_with_its_parent_and_as_it_is_told_to(tmp_path: Path) -> None:
    def ended(*words: str, kill: int = 0) -> tuple[int, int, str]:
        with subprocess.Popen(
            [sys.executable, "-c", COMMAND, *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        ) as run:
            assert run.stdout is not None
            child = int(run.stdout.readline() or 0)
            if kill:
                os.kill(run.pid if kill > 0 else child, abs(kill))
            said = run.communicate(timeout=60)[1]
        return child, run.returncode, " ".join(said.split())

    assert ended("reported", "1")[1:] == (1, "")
    assert ended("no word", "0")[1:] == (0, "")
    assert ended("no word", "130")[1:] == (130, "")
    assert "Ray ended the run" in ended("no word", "1")[2]
    assert ended("wait", "0", kill=signal.SIGTERM)[1:] == (143, "")
    assert ended("told at once", "0")[1:] == (143, "")
    _, exit_code, said = ended("wait", "0", kill=-signal.SIGKILL)
    assert exit_code == 137
    assert "killed (signal 9)" in said
    child, exit_code, _ = ended("wait", "0", kill=signal.SIGKILL)
    assert exit_code == -signal.SIGKILL
    until = time.monotonic() + 30
    while Path(f"/proc/{child}/cmdline").exists() and Path(f"/proc/{child}/cmdline").read_text():
        assert time.monotonic() < until
        time.sleep(0.01)
