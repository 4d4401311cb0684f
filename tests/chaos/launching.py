"""Starts the same run again and again at next to no cost: one process has imported everything, and forks those that are to end badly."""

import os
import select
import signal
import subprocess
import sys
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import orjson

LAUNCHER = """
import os, resource, sys
import anyio
import orjson
import refinesynth as rs
import refinesynth.cli.running
from refinesynth.__main__ import main
from refinesynth.backends import lean, litellm_model
from refinesynth.episode import play

synthesize = rs.synthesize

async def make(asked):
    asked["backend"] = rs.Backend(**asked["backend"])
    result = await synthesize(**asked)
    assert result.reached, result.shortfall

if "litellm" in sys.argv:
    from refinesynth.backends.litellm_sdk import litellm

    litellm()

def begin(task):
    os.setsid()
    os.environ.update(task["environment"])
    said = os.open(task["said"], os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.dup2(said, 1)
    os.dup2(said, 2)
    if task["most_bytes"] is not None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (task["most_bytes"], task["most_bytes"]))
    if task["command"] is None:
        anyio.run(make, task["asked"])
    else:
        sys.argv = ["refinesynth", *task["command"]]
        main()

for line in sys.stdin.buffer:
    pid = os.fork()
    if not pid:
        status = 70
        try:
            begin(orjson.loads(line))
            status = 0
        except SystemExit as end:
            status = end.code
        except BaseException:
            import traceback
            traceback.print_exc()
        finally:
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(status)
    print(pid, flush=True)
    # Its number stays its own until the next one is asked for.
    ended = os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
    print(ended.si_status if ended.si_code == os.CLD_EXITED else -ended.si_status, flush=True)
    sys.stdin.buffer.peek(1)
    os.waitpid(pid, 0)
"""


@dataclass
class Launched:
    """One process, until it ends or is killed."""

    pid: int
    said: Path
    """What it prints, and what those before it printed."""
    _results: IO[bytes]

    @property
    def ended(self) -> bool:
        """Whether it has ended."""
        return bool(select.select([self._results], [], [], 0)[0])

    def signal(self, number: int) -> None:
        """Send it a signal. Harmless if it has ended, as long as no other was launched."""
        os.kill(self.pid, number)

    def kill(self) -> int:
        """Kill it with `kill -9`, unless it has ended; how it ended."""
        self.signal(signal.SIGKILL)
        return self.wait()

    def wait(self) -> int:
        """How it ended: an exit code, or minus a signal."""
        return int(self._results.readline())


@dataclass
class Launcher:
    """A process that forks others, one at a time."""

    _process: subprocess.Popen[bytes]
    said: Path

    def make(self, asked: dict[str, Any]) -> Launched:
        """Call `synthesize` with these arguments, in a process of its own; it fails if the run falls short."""
        return self._launch({"asked": asked, "command": None, "most_bytes": None, "environment": {}})

    def command(
        self, command: Sequence[str], *, most_bytes: int | None = None, environment: dict[str, str] | None = None
    ) -> Launched:
        """The command line; no file may grow beyond `most_bytes`, as on a disk that is full."""
        return self._launch({"command": command, "most_bytes": most_bytes, "environment": environment or {}})

    def run(
        self, command: Sequence[str], *, most_bytes: int | None = None, environment: dict[str, str] | None = None
    ) -> tuple[int, str]:
        """A command's exit code, and all that it printed."""
        self.said.unlink(missing_ok=True)
        code = self.command(command, most_bytes=most_bytes, environment=environment).wait()
        return code, self.said.read_text()

    def _launch(self, task: dict[str, Any]) -> Launched:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(orjson.dumps({**task, "said": str(self.said)}) + b"\n")
        return Launched(int(self._process.stdout.readline()), self.said, self._process.stdout)


@contextmanager
def launching(folder: Path, *, litellm: bool = False) -> Generator[Launcher]:
    """A launcher while the block runs, with litellm in it or not; what its processes print goes to a file in `folder`."""
    with subprocess.Popen(
        [sys.executable, "-c", LAUNCHER, *(["litellm"] if litellm else [])],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        bufsize=0,
    ) as process:
        try:
            yield Launcher(process, folder / "said")
        finally:
            process.kill()
