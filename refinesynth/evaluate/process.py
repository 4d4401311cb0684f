"""An environment in a process of its own: asked by one line, answered by one line, within a time limit; or in this one.

Blocking, and used from a thread: it does not depend on an event loop, of which an evaluation may have several.
"""

import json
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import IO, Any, cast

from refinesynth.errors import InputError
from refinesynth.evaluate.environments.environment import (
    Action,
    Benchmark,
    Compat,
    Exchange,
    Instance,
    Start,
    Step,
)
from refinesynth.evaluate.environments.worker import Served

_PACKAGE_PARENT = str(Path(__file__).resolve().parents[2])
_MAX_ANSWER = 64_000_000
"""Bytes of one answer at most; one that is longer is a fault."""
_CHUNK = 1 << 16
_GRACE = 1.0
"""Seconds that a process has to end by itself."""


class EnvironmentFault(Exception):
    """The process has ended, has not answered in time, or what it said is no answer; it is of no more use."""


class EnvironmentProcess:
    """One environment's process, started when this is made."""

    def __init__(self, benchmark: Benchmark, *, compat: Compat, perturb: str, python: str | None) -> None:
        """Nothing is waited for yet: the first request waits for the environment's package to be imported.

        Raises:
            InputError: The interpreter cannot be started.
        """
        self._describe(benchmark, compat, perturb)
        command = [python or sys.executable, "-m", "refinesynth.evaluate.environments.worker"]
        # An environment of the user's own may be found on a path that only this process has.
        paths = [_PACKAGE_PARENT, *(sys.path if python is None else [os.environ.get("PYTHONPATH", "")])]
        environment = {**os.environ, **benchmark.process_variables, "PYTHONUTF8": "1"}
        environment["PYTHONPATH"] = os.pathsep.join(filter(None, paths))
        # numpy's own threads would compete with the other environments for the same cores.
        environment |= {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "PYTHONDONTWRITEBYTECODE": "1"}
        try:
            self._process = subprocess.Popen(  # noqa: S603
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                env=environment,
                # Ctrl-C is for the evaluation, which then ends its environments itself.
                start_new_session=True,
            )
        except OSError as error:
            raise InputError(
                f"the interpreter {command[0]!r} of {benchmark.name} cannot be started: {error}; "
                f"name one by --python {benchmark.name}=PATH"
            ) from error
        pipes = cast("tuple[IO[bytes], IO[bytes]]", (self._process.stdin, self._process.stdout))
        self._requests, self._answers = (pipe.fileno() for pipe in pipes)
        os.set_blocking(self._requests, False)
        self._buffer = bytearray()
        self._ends = 0.0

    def _describe(self, benchmark: Benchmark, compat: Compat, perturb: str) -> None:
        self.benchmark = benchmark
        self.episodes = 0
        """Number of episodes begun in it."""
        self.solves = False
        """The environment has a `solution()`; known once it was opened."""
        self._opening = {"do": "open", "environment": benchmark.environment, "compat": compat, "perturb": perturb}
        self._opened = False

    @property
    def pid(self) -> int:
        """Of the process."""
        return self._process.pid

    def open(self) -> None:
        """Import the environment's package, if it was not done.

        Raises:
            InputError: The package is missing, or the environment cannot be made; the message says what to install.
            EnvironmentFault: The process died or did not answer in time.
        """
        if not self._opened:
            self.solves = bool(self._ask(self._opening, self.benchmark.reset_seconds)["solves"])
            self._opened = True

    def reset(self, instance: Instance) -> Start:
        """Begin an episode.

        Raises:
            InputError: The instance cannot be used, or the environment's package is missing.
            EnvironmentFault: The process died, or did not answer in time.
        """
        self.open()
        self.episodes += 1
        found = self._ask({"do": "reset", "instance": asdict(instance)}, self.benchmark.reset_seconds)["start"]
        actions = tuple(
            Action(one["name"], one["description"], {key: tuple(all_) for key, all_ in one["parameters"].items()})
            for one in found["actions"]
        )
        history = tuple(Exchange(**one) for one in found["history"])
        return Start(found["observation"], found["goal"], actions, found["introduction"], history)

    def step(self, action: str) -> Step:
        """Take one action.

        Raises:
            EnvironmentFault: The process died, did not answer in time, or the environment raised an error.
        """
        return Step(**self._ask({"do": "step", "action": action}, self.benchmark.step_seconds)["step"])

    def valid_actions(self) -> Sequence[str]:
        """Ask the environment for the actions that are possible now; raises what `step` raises."""
        return self._ask({"do": "valid_actions"}, self.benchmark.step_seconds)["actions"]

    def solution(self) -> Sequence[str] | None:
        """Return the environment's own solution; raises what `step` raises."""
        return self._ask({"do": "solution"}, self.benchmark.reset_seconds)["actions"]

    def resident_mb(self) -> float:
        """Memory of the process, in MiB; 0 where the system does not say."""
        try:
            pages = int(Path(f"/proc/{self.pid}/statm").read_text().split()[1])
        except (OSError, ValueError, IndexError):
            return 0.0
        return pages * os.sysconf("SC_PAGE_SIZE") / 2**20

    def let_end(self) -> None:
        """Close its pipes, with which it ends by itself."""
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None and not pipe.closed:
                pipe.close()
                self._ends = time.monotonic() + _GRACE

    def end(self) -> None:
        """End the process, at once if it does not end by itself, and all that it started."""
        self.let_end()
        if self._opened:
            # Time to close what it holds, which a Java machine beneath it wants.
            with suppress(subprocess.TimeoutExpired):
                self._process.wait(timeout=max(0.0, self._ends - time.monotonic()))
        # It leads a group of its own: what it started ends with it.
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self.pid, signal.SIGKILL)
        self._process.wait()

    def _ask(self, request: Mapping[str, Any], seconds: float) -> dict[str, Any]:
        answer = self._exchange(json.dumps(request), time.monotonic() + seconds)
        if "bad" in answer:
            raise InputError(answer["bad"])
        if "missing" in answer:
            raise InputError(self._missing(answer["missing"]))
        if "failed" in answer:
            raise EnvironmentFault(f"{self.benchmark.name} raised {answer['failed']}")
        return answer

    def _missing(self, module: str) -> str:
        name, extra = self.benchmark.name, self.benchmark.extra
        install = f"pip install '{extra}'" if extra else "install it"
        return (
            f"{name} needs the Python package that holds {module!r}, which is not installed: {install}, or name an "
            f"interpreter that has it: --python {name}=PATH"
        )

    def _exchange(self, request: str, deadline: float) -> dict[str, Any]:
        self._send(request.encode() + b"\n", deadline)
        return self._answer(deadline)

    def _send(self, line: bytes, deadline: float) -> None:
        left = memoryview(line)
        while left:
            self._wait(self._requests, select.POLLOUT, deadline)
            try:
                left = left[os.write(self._requests, left) :]
            except BlockingIOError:
                continue
            except OSError as error:
                raise EnvironmentFault(f"the process of {self.benchmark.name} has ended") from error

    def _answer(self, deadline: float) -> dict[str, Any]:
        while (end := self._buffer.find(b"\n", max(0, len(self._buffer) - _CHUNK))) < 0:
            self._wait(self._answers, select.POLLIN, deadline)
            chunk = os.read(self._answers, _CHUNK)
            if not chunk:
                raise EnvironmentFault(f"the process of {self.benchmark.name} has ended")
            self._buffer += chunk
            if len(self._buffer) > _MAX_ANSWER:
                raise EnvironmentFault(f"{self.benchmark.name} answered with more than {_MAX_ANSWER:,} bytes")
        line = bytes(self._buffer[:end])
        del self._buffer[: end + 1]
        try:
            return json.loads(line)
        except ValueError as error:
            raise EnvironmentFault(f"what {self.benchmark.name} answered is no JSON: {line[:200]!r}") from error

    def _wait(self, descriptor: int, event: int, deadline: float) -> None:
        ready = select.poll()
        ready.register(descriptor, event)
        if not ready.poll(max(0.0, deadline - time.monotonic()) * 1_000):
            raise EnvironmentFault(f"{self.benchmark.name} did not answer in time")


class EnvironmentHere(EnvironmentProcess):
    """An environment in this process, without limits of time and memory: one whose every answer is bounded by itself."""

    def __init__(self, benchmark: Benchmark, *, compat: Compat, perturb: str) -> None:
        self._describe(benchmark, compat, perturb)
        self._served = Served()

    def resident_mb(self) -> float:
        """Nothing of its own."""
        return 0.0

    def let_end(self) -> None:
        """There is nothing to wait for."""

    def end(self) -> None:
        """Free what it holds."""
        self._served.close()

    def _exchange(self, request: str, deadline: float) -> dict[str, Any]:
        del deadline
        return json.loads(self._served.answer(json.loads(request)))
