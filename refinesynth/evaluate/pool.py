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

from refinesynth.errors import InputError
from refinesynth.evaluate.environments.environment import Benchmark, Compat, Instance, Start, Step
from refinesynth.evaluate.process import EnvironmentFault, EnvironmentHere, EnvironmentProcess

T = TypeVar("T")

MOST = 16
"""Processes of one benchmark at once, if memory allows."""
_TRIES = 2
"""How often an action, or a start, is tried: the second time in a new process."""


class EnvironmentLost(Exception):
    """An action or a start ends its process, or takes too long, each time it is tried."""


class EnvironmentChanged(EnvironmentLost):
    """The episode was played again up to where its process was lost, and came out differently: it cannot go on."""


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

    def check(self, *, solves: bool = False) -> None:
        """Start one process and import the environment's package in it; it is kept.

        Raises:
            InputError: The package or the interpreter is missing; the message says what to install. Or `solves` is asked for,
                and the environment has no solutions.
            EnvironmentFault: The environment cannot be made, or the process died.
        """
        process = self.taken()
        try:
            process.open()
        except BaseException:
            process.end()
            raise
        self._idle.append(process)
        if solves and not process.solves:
            raise InputError(
                f"{self.benchmark.name} has no solutions, which --model oracle and --shots need; expected worlds:RUN or "
                "mistakes:RUN, or a benchmark of your own that has them"
            )

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
        if self.benchmark.in_process and self.python is None:
            return EnvironmentHere(self.benchmark, compat=self.compat, perturb=self.perturb)
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
        """End the processes that nobody uses, all at once."""
        for process in self._idle:
            process.let_end()
        while self._idle:
            self._idle.pop().end()
        atexit.unregister(self.close)


@dataclass(eq=False)
class Episode:
    """One episode. When its process dies or hangs, it is played again up to there in a new one, with the same observations:
    environments are deterministic.
    """

    pool: EnvironmentPool
    instance: Instance
    faults: list[str] = field(default_factory=list[str])
    """What befell its processes."""
    slipped: bool = False
    """Whether the last action was right and failed for a moment."""
    _process: EnvironmentProcess | None = None
    _taken: list[tuple[str, str]] = field(default_factory=list[tuple[str, str]])
    """Actions and what they gave."""
    _start: str = ""

    async def reset(self) -> Start:
        """Begin, or begin again.

        Raises:
            InputError: The instance cannot be used, or the environment's package is missing.
            EnvironmentLost: It cannot be started.
        """
        self._taken = []
        start = await self._asked(lambda process: process.reset(self.instance), again=False)
        self._start = start.observation
        return start

    async def step(self, action: str) -> Step:
        """Take one action.

        Raises:
            EnvironmentLost: The action ends the process each time, or takes too long.
            EnvironmentChanged: The process was lost, and the episode is another one when it is played again.
        """
        step = await self._asked(lambda process: process.step(action))
        self._taken.append((action, step.observation))
        self.slipped = step.slipped
        return step

    async def valid_actions(self) -> Sequence[str]:
        """Ask the environment for the actions that are possible now; raises what `step` raises."""
        return await self._asked(EnvironmentProcess.valid_actions)

    async def solution(self) -> Sequence[str] | None:
        """Return the environment's own solution; raises what `step` raises."""
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
                self._play_again(process)
            answer = ask(process)
        except BaseException:
            process.end()
            raise
        kept.append(process)
        return answer

    def _play_again(self, process: EnvironmentProcess) -> None:
        same = process.reset(self.instance).observation == self._start
        if not same or any(process.step(action).observation != seen for action, seen in self._taken):
            fault = f"{self.pool.benchmark.name} gave other observations when the episode was played again"
            self.faults.append(fault)
            raise EnvironmentChanged(fault)


def usual_size(benchmark: Benchmark) -> int:
    """As many processes as half of the machine's memory holds, at most `MOST`."""
    memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") / 2**20
    return max(1, min(MOST, int(memory / 2 / benchmark.memory_mb)))
