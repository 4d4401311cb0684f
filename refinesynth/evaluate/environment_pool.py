"""Processes of environments with time limits, a bounded pool of them, and the episodes played in them.

A process is used from threads and does not depend on an event loop, because an evaluation may have several.
"""

import atexit
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import IO, Any, TypeVar, cast

from anyio import to_thread
from inspect_ai.util import concurrency
from pydantic import TypeAdapter

from refinesynth.errors import InputError
from refinesynth.evaluate.environments.environment import Benchmark, Instance, Start, Step
from refinesynth.evaluate.environments.worker import RequestHandler
from refinesynth.synthesis.concurrency import memory_of_machine

T = TypeVar("T")
_START = TypeAdapter(Start)

MAX_PROCESSES = 16
"""Most processes of one benchmark."""
_PACKAGE_PARENT = str(Path(__file__).resolve().parents[2])
_MAX_ANSWER = 64_000_000
"""Bytes at which a response is too long."""
_EXIT_TIMEOUT = 1.0
"""Seconds for a process to end by itself."""


class EnvironmentFault(Exception):
    """The process has ended, exceeded a time limit or gave no valid answer, or its environment raised; it is unusable."""


class EnvironmentProcess:
    def __init__(self, benchmark: Benchmark, *, perturb: str = "", python: str | None = None) -> None:
        """Start the process without waiting for its imports; raises InputError for an unusable interpreter."""
        self.benchmark = benchmark
        self.episodes = 0
        self.has_solutions = False
        """True if the environment has `solution()`; known once it was opened."""
        self._perturb = perturb
        self._opened = False
        self._launch(python)

    def _launch(self, python: str | None) -> None:
        command = [python or sys.executable, "-m", "refinesynth.evaluate.environments.worker"]
        # A user's environment may be on a path that only this process has.
        paths = [_PACKAGE_PARENT, *(sys.path if python is None else [os.environ.get("PYTHONPATH", "")])]
        # numpy's own threads would compete with the other environments for the same cores.
        threads = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "PYTHONDONTWRITEBYTECODE": "1"}
        environment = {**os.environ, **self.benchmark.process_variables, "PYTHONUTF8": "1", **threads}
        environment["PYTHONPATH"] = os.pathsep.join(filter(None, paths))
        name = self.benchmark.name
        try:
            self._process = subprocess.Popen(  # noqa: S603
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                env=environment,
                # Ctrl-C must reach only the evaluation, which then ends its environments.
                start_new_session=True,
            )
        except OSError as error:
            raise InputError(
                f"the interpreter {command[0]!r} of {name} cannot be started: {error}; name one by --python {name}=PATH"
            ) from error
        self._requests, self._answers = cast("tuple[IO[bytes], IO[bytes]]", (self._process.stdin, self._process.stdout))
        self._deadline = 0.0

    @property
    def pid(self) -> int:
        return self._process.pid

    def open(self) -> None:
        """Import the environment's package, once; raises InputError if it is missing or makes no environment."""
        if not self._opened:
            arguments = {"environment": self.benchmark.environment, "perturb": self._perturb}
            self.has_solutions = bool(self._request("open", self.benchmark.reset_seconds, **arguments)["solves"])
            self._opened = True

    def reset(self, instance: Instance) -> Start:
        """Begin an episode; raises what `open` raises, and InputError for an unusable instance."""
        self.open()
        self.episodes += 1
        return _START.validate_python(self._request("reset", self.benchmark.reset_seconds, instance=asdict(instance)))

    def step(self, action: str) -> Step:
        """Take one action; raises EnvironmentFault."""
        return Step(**self._request("step", self.benchmark.step_seconds, action=action))

    def valid_actions(self) -> Sequence[str]:
        """Actions that are possible now; raises EnvironmentFault."""
        return self._request("valid_actions", self.benchmark.step_seconds)["actions"]

    def solution(self) -> Sequence[str] | None:
        """The environment's own solution; raises EnvironmentFault."""
        return self._request("solution", self.benchmark.reset_seconds)["actions"]

    def resident_mb(self) -> float:
        """Memory of the process in MiB; 0 if unknown."""
        try:
            pages = int(Path(f"/proc/{self.pid}/statm").read_text().split()[1])
        except (OSError, ValueError, IndexError):
            return 0.0
        return pages * os.sysconf("SC_PAGE_SIZE") / 2**20

    def close_pipes(self) -> None:
        """Close the pipes, which makes the process end by itself."""
        self._deadline = self._deadline or time.monotonic() + _EXIT_TIMEOUT
        for pipe in (self._requests, self._answers):
            with suppress(OSError):
                pipe.close()

    def end(self) -> None:
        """End the process and its child processes."""
        self.close_pipes()
        if self._opened:
            # The environment may need time to close its resources, such as a Java virtual machine.
            with suppress(subprocess.TimeoutExpired):
                self._process.wait(timeout=max(0.0, self._deadline - time.monotonic()))
        self._kill()
        self._process.wait()

    def _kill(self) -> None:
        # The process leads its own group, which includes its child processes.
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self.pid, signal.SIGKILL)

    def _request(self, command: str, seconds: float, **arguments: Any) -> dict[str, Any]:
        name, extra = self.benchmark.name, self.benchmark.extra
        line = self._exchange({"do": command, "with": arguments}, seconds)
        try:
            answer: dict[str, Any] = json.loads(line)
        except ValueError as error:
            raise EnvironmentFault(f"what {name} answered is no JSON: {line[:200]!r}") from error
        if "bad" in answer:
            raise InputError(answer["bad"])
        if "missing" in answer:
            install = f"pip install '{extra}'" if extra else "install it"
            raise InputError(
                f"{name} needs the Python package that holds {answer['missing']!r}, which is not installed: {install}, or name "
                f"an interpreter that has it: --python {name}=PATH"
            )
        if "failed" in answer:
            raise EnvironmentFault(f"{name} raised {answer['failed']}")
        return answer

    def _exchange(self, request: Mapping[str, Any], seconds: float) -> str | bytes:
        """Send a request and return the response; kill the process if the exchange takes longer than `seconds`."""
        timed_out = threading.Event()

        def kill() -> None:
            timed_out.set()
            self._kill()

        timer = threading.Timer(seconds, kill)
        timer.daemon = True
        timer.start()
        line = b""
        try:
            self._requests.write(json.dumps(request).encode() + b"\n")
            self._requests.flush()
            line = self._answers.readline(_MAX_ANSWER)
        except OSError:
            pass  # It has ended.
        finally:
            timer.cancel()
        if timed_out.is_set():
            raise EnvironmentFault(f"{self.benchmark.name} did not answer in time")
        if len(line) == _MAX_ANSWER:
            raise EnvironmentFault(f"{self.benchmark.name} answered with {_MAX_ANSWER:,} bytes or more")
        if not line.endswith(b"\n"):
            raise EnvironmentFault(f"the process of {self.benchmark.name} has ended")
        return line


class InProcessEnvironment(EnvironmentProcess):
    """An environment in this process, without limits of time and memory."""

    def _launch(self, python: str | None) -> None:
        del python
        self._handler = RequestHandler()

    def resident_mb(self) -> float:
        return 0.0

    def close_pipes(self) -> None:
        """Do nothing: there is no process."""

    def end(self) -> None:
        self._handler.close()

    def _exchange(self, request: Mapping[str, Any], seconds: float) -> str | bytes:
        del seconds
        return self._handler.handle(request)


@dataclass(eq=False)
class EnvironmentPool:
    """Processes of one benchmark, kept for the next episode."""

    benchmark: Benchmark
    perturb: str = ""
    python: str | None = None
    """Interpreter with the environment's package; None for this one."""
    size: int = 0
    """Most processes at once; 0 takes `default_pool_size`."""
    _idle: list[EnvironmentProcess] = field(default_factory=list[EnvironmentProcess], repr=False)

    def __post_init__(self) -> None:
        self.size = self.size or default_pool_size(self.benchmark)
        atexit.register(self.close)

    def check(self, *, needs_solutions: bool = False) -> None:
        """Open one process and keep it; raises what its `open` raises, and InputError for missing solutions if `needs_solutions`."""
        process = self.acquire()
        try:
            process.open()
        except BaseException:
            process.end()
            raise
        self._idle.append(process)
        if needs_solutions and not process.has_solutions:
            raise InputError(
                f"{self.benchmark.name} has no solutions, which --model oracle needs; expected worlds:RUN or "
                "mistakes:RUN, or a benchmark of your own that has them"
            )

    @asynccontextmanager
    async def episode(self, instance: Instance) -> "AsyncGenerator[Episode]":
        """Yield an episode; waits while `size` episodes are being played."""
        name = f"environments/{self.benchmark.name}/{id(self)}"
        async with concurrency(name, self.size, visible=False):
            episode = Episode(self, instance)
            try:
                yield episode
            finally:
                await episode.close()

    def acquire(self) -> EnvironmentProcess:
        """An idle process, or a new one."""
        if self._idle:
            return self._idle.pop()
        if self.benchmark.in_process and self.python is None:
            return InProcessEnvironment(self.benchmark, perturb=self.perturb)
        return EnvironmentProcess(self.benchmark, perturb=self.perturb, python=self.python)

    def release(self, process: EnvironmentProcess) -> None:
        """Keep the process, or end it if it exceeds the benchmark's memory or has played its number of episodes."""
        benchmark = self.benchmark
        at_limit = bool(benchmark.episodes) and process.episodes >= benchmark.episodes
        if at_limit or process.resident_mb() > benchmark.memory_mb:
            process.end()
        else:
            self._idle.append(process)

    def close(self) -> None:
        for process in self._idle:
            process.close_pipes()
        while self._idle:
            self._idle.pop().end()
        atexit.unregister(self.close)


@dataclass(eq=False)
class Episode:
    """One episode. A process that fails is ended; `reset` begins the episode again in another process."""

    pool: EnvironmentPool
    instance: Instance
    faults: list[str] = field(default_factory=list[str])
    slipped: bool = False
    """True if the last action was correct and failed transiently."""
    _process: EnvironmentProcess | None = None

    async def reset(self) -> Start:
        """Begin, or begin again; raises InputError for an unusable instance, and EnvironmentFault."""
        return await self._run(lambda process: process.reset(self.instance))

    async def step(self, action: str) -> Step:
        """Take one action; raises EnvironmentFault."""
        step = await self._run(lambda process: process.step(action))
        self.slipped = step.slipped
        return step

    async def valid_actions(self) -> Sequence[str]:
        """Actions that are possible now; raises EnvironmentFault."""
        return await self._run(EnvironmentProcess.valid_actions)

    async def solution(self) -> Sequence[str] | None:
        """The environment's own solution; raises EnvironmentFault."""
        return await self._run(EnvironmentProcess.solution)

    async def close(self) -> None:
        process, self._process = self._process, None
        if process is not None:
            # In a thread, because ending a process may take a second. After a cancelled request there is none.
            await to_thread.run_sync(self.pool.release, process)

    async def _run(self, call: Callable[[EnvironmentProcess], T]) -> T:
        """Send a request in a thread. A process that fails is ended; one whose request is cancelled is not used again."""
        process, self._process = self._process, None
        try:
            self._process, answer = await to_thread.run_sync(self._run_in_thread, process, call, abandon_on_cancel=True)
        except EnvironmentFault as fault:
            self.faults.append(str(fault))
            raise
        return answer

    def _run_in_thread(
        self, process: EnvironmentProcess | None, call: Callable[[EnvironmentProcess], T]
    ) -> tuple[EnvironmentProcess, T]:
        process = process or self.pool.acquire()
        try:
            return process, call(process)
        except BaseException:
            process.end()
            raise


def default_pool_size(benchmark: Benchmark) -> int:
    """Number of processes that fit in half of the memory, from 1 to `MAX_PROCESSES`; `MAX_PROCESSES` if the memory is unknown."""
    memory = memory_of_machine()
    return MAX_PROCESSES if memory is None else max(1, min(MAX_PROCESSES, memory // 2 // 2**20 // benchmark.memory_mb))
