"""A bounded pool of environment processes, and one episode in one of them, which outlives its process."""

import atexit
import os
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import TypeVar

from anyio import to_thread
from inspect_ai.util import concurrency

from refinesynth.evaluate.environments.environment import Benchmark, Compat, Instance, Start, Step
from refinesynth.evaluate.process import EnvironmentFault, EnvironmentProcess

T = TypeVar("T")

MOST = 16
"""Processes of one benchmark at once, if memory allows."""
_TRIES = 2
"""How often an action, or a start, is tried: the second time in a new process."""


class EnvironmentLost(Exception):
    """An action or a start ends its process, or takes too long, each time it is tried."""


@dataclass(eq=False)
class EnvironmentPool:
    """Processes of one benchmark, kept for the next episode."""

    benchmark: Benchmark
    compat: Compat = "agentboard"
    perturb: str = ""
    python: str | None = None
    """Interpreter with the environment's package; this one if None."""
    size: int = 0
    """Most processes at once; 0 takes `usual_size`."""
    _idle: list[EnvironmentProcess] = field(default_factory=list[EnvironmentProcess], repr=False)

    def __post_init__(self) -> None:
        self.size = self.size or usual_size(self.benchmark)
        atexit.register(self.close)

    def check(self) -> None:
        """Start one process and import the environment's package in it; it is kept.

        Raises:
            InputError: The package or the interpreter is missing; the message says what to install.
            EnvironmentFault: The process died.
        """
        process = self.taken()
        try:
            process.open()
        except BaseException:
            process.end()
            raise
        self._idle.append(process)

    @asynccontextmanager
    async def episode(self, instance: Instance) -> "AsyncGenerator[Episode]":
        """A process for one episode, waited for if all are taken."""
        name = f"environments/{self.benchmark.name}/{id(self)}"
        async with concurrency(name, self.size, visible=False):
            episode = Episode(self, instance)
            try:
                yield episode
            finally:
                await episode.leave()

    def taken(self) -> EnvironmentProcess:
        """A process that nobody uses; started if there is none."""
        if self._idle:
            return self._idle.pop()
        return EnvironmentProcess(self.benchmark, compat=self.compat, perturb=self.perturb, python=self.python)

    def put_back(self, process: EnvironmentProcess) -> None:
        """Keep it for the next episode, or end it where it has leaked or served its time."""
        benchmark = self.benchmark
        worn = bool(benchmark.episodes) and process.episodes >= benchmark.episodes
        if worn or process.resident_mb() > benchmark.memory_mb:
            process.end()
        else:
            self._idle.append(process)

    def close(self) -> None:
        """End the processes that nobody uses."""
        while self._idle:
            self._idle.pop().end()
        atexit.unregister(self.close)


@dataclass(eq=False)
class Episode:
    """One episode. When its process dies or hangs, it is played again up to there in a new one: environments are
    deterministic.
    """

    pool: EnvironmentPool
    instance: Instance
    faults: list[str] = field(default_factory=list[str])
    """What befell its processes."""
    _process: EnvironmentProcess | None = None
    _actions: list[str] = field(default_factory=list[str])

    async def reset(self) -> Start:
        """Begin, or begin again.

        Raises:
            InputError: The instance cannot be used, or the environment's package is missing.
            EnvironmentLost: It cannot be started.
        """
        self._actions = []
        return await self._asked(lambda process: process.reset(self.instance), again=False)

    async def step(self, action: str) -> Step:
        """Take one action.

        Raises:
            EnvironmentLost: The action ends the process each time, or takes too long.
        """
        step = await self._asked(lambda process: process.step(action))
        self._actions.append(action)
        return step

    async def valid_actions(self) -> Sequence[str]:
        """See `TextEnvironment.valid_actions`; raises what `step` raises."""
        return await self._asked(EnvironmentProcess.valid_actions)

    async def solution(self) -> Sequence[str] | None:
        """See `TextEnvironment.solution`; raises what `step` raises."""
        return await self._asked(EnvironmentProcess.solution)

    async def leave(self) -> None:
        """Give the process back."""
        process, self._process = self._process, None
        if process is not None:
            # In a thread, as ending may take a second; not awaited on a cancelled task, whose process is gone already.
            await to_thread.run_sync(self.pool.put_back, process)

    async def _asked(self, ask: Callable[[EnvironmentProcess], T], *, again: bool = True) -> T:
        """Ask the process in a thread; a process whose answer was not awaited is of no more use and ends."""
        for left in reversed(range(_TRIES)):
            process, self._process = self._process, None
            work = partial(self._answered, process, ask, again=again)
            kept: list[EnvironmentProcess] = []
            try:
                answer = await to_thread.run_sync(work, kept, abandon_on_cancel=True)
            except EnvironmentFault as fault:
                self.faults.append(str(fault))
                if not left:
                    raise EnvironmentLost(str(fault)) from fault
            else:
                self._process = kept[0]
                return answer
        raise AssertionError

    def _answered(
        self,
        process: EnvironmentProcess | None,
        ask: Callable[[EnvironmentProcess], T],
        kept: list[EnvironmentProcess],
        *,
        again: bool,
    ) -> T:
        fresh = process is None
        process = process or self.pool.taken()
        try:
            if fresh and again:
                process.reset(self.instance)
                for action in self._actions:
                    process.step(action)
            answer = ask(process)
        except BaseException:
            process.end()
            raise
        kept.append(process)
        return answer


def usual_size(benchmark: Benchmark) -> int:
    """As many processes as half of the machine's memory holds, at most `MOST`."""
    memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") / 2**20
    return max(1, min(MOST, int(memory / 2 / benchmark.memory_mb)))
