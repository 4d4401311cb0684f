"""One worker, seen from the driver: the actors that do its work one after the other, and what they have to say."""

import logging
import os
import sys
from collections.abc import Awaitable, Callable
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass, field
from typing import Any, Protocol

import anyio
from anyio.abc import TaskGroup

from refinesynth._version import __version__
from refinesynth.client.account import CostTracker, Count, Price, Reservation
from refinesynth.errors import ConfigurationError, RunStopped
from refinesynth.run import Finished, JournalSums
from refinesynth.run.away import tell_lost
from refinesynth.synthesis.progress import How
from refinesynth.synthesis.workers.actor import Worker
from refinesynth.synthesis.workers.cluster import answered, number_of, ray
from refinesynth.synthesis.workers.messages import Ended, Ready, Reserve, Reserved, Said, Settle, Sums
from refinesynth.synthesis.workers.outbox import Outbox
from refinesynth.synthesis.workers.paying import priced
from refinesynth.synthesis.workers.worker import Assignment, Given

_LIVES = 5
"""How many processes may die one after the other while they play, without finishing an episode; then something is wrong
with all."""
_AT_ONCE = 1_000
"""Calls that an actor may be busy with; it is never asked more than a few."""
_GATHER = 0.002
"""Seconds that a message waits for others, for each worker: the driver is to hear a few hundred calls a second at
most."""
_GATHER_AT_MOST = 0.1
_PATIENCE = 10.0
"""Seconds until one that is let go is ended."""

_LOG = logging.getLogger("refinesynth.workers")


class RunPurse(Protocol):
    """The tracker of a run; `BudgetTracker` is one."""

    def episode(self, index: int) -> AbstractContextManager[CostTracker]:
        """The tracker for one episode."""
        ...


@dataclass
class Playing:
    """An episode in another process."""

    given: Given
    tracker: CostTracker
    paid: Count = field(default_factory=Count)
    """By the worker that has it, and those before from which it can read."""
    done: anyio.Event = field(default_factory=anyio.Event)
    result: Finished | Exception = field(default_factory=lambda: RunStopped("a worker was let go."))

    def end(self, result: Finished | Exception) -> None:
        """It has come to its end."""
        self.result = result
        self.done.set()


@dataclass(frozen=True, kw_only=True)
class Driver:
    """What workers need of the run."""

    tracker: RunPurse
    """All of them are paid from it."""
    first: Callable[[], int] = lambda: 0
    """Index of the first episode that is not committed."""
    learn: Callable[[JournalSums], None] = lambda _sums: None
    """Takes note of what is in a journal outside the run's folder."""


class Member:
    """One assignment, and the actors that do it one after the other."""

    def __init__(self, assignment: Assignment, driver: Driver) -> None:
        self.playing: dict[int, Playing] = {}
        self.how = How()
        self.ready: Ready | None = None
        """What its actor said when it began; None while there is none that plays."""
        self.settled = anyio.Event()
        """Set when it has begun for the first time, or failed."""
        self.failure: Exception | None = None
        self.away = assignment.away
        self._number = assignment.number
        self._driver = driver
        self._gather = min(_GATHER * assignment.workers, _GATHER_AT_MOST)
        self._assignment = _pickled(assignment)
        self._outbox = Outbox(gather=self._gather)
        self._holds: dict[int, Reservation] = {}
        self._asked: dict[int, anyio.CancelScope] = {}
        """Reservations that are not decided yet."""
        self._deaths = 0
        """Actors that died one after the other, while they began or played, without finishing an episode."""
        self._node: str | None = None

    def give(self, playing: Playing) -> None:
        """Have an episode played here: now, or when there is an actor again."""
        index = playing.given.index
        self.playing[index] = playing
        if self.ready is None:
            return
        if playing.paid.requests and index not in self.ready.begun:
            lost, playing.paid = playing.paid, Count()
            where = f"another worker's journal, of episode {index},"
            tell_lost(where, episodes=1, requests=lost.requests, cost_usd=lost.cost_usd)
        self._outbox.post(playing.given)

    async def attend(self) -> None:
        """Keep an actor at work until it is cancelled, or too many have died."""
        why = ""
        try:
            while self._deaths < _LIVES:
                why = await self._one_life()
            self.failure = RunStopped(
                f"{_LIVES} workers died one after the other, the last one so: {why} Where it was killed for want of memory, "
                f"give the run more, or lower concurrency or workers."
            )
        except Exception as error:  # noqa: BLE001 - passed to the caller that waits for an episode
            self.failure = error
        self.settled.set()
        for playing in self.playing.values():
            playing.end(self.failure)

    async def _one_life(self) -> str:
        """An actor from its start to its end, however that comes; why it died."""
        actor, self._outbox = _actor(self._gather, self._node), Outbox(gather=self._gather)
        work = actor.work.remote(self._assignment, _environment(), sys.path, self._driver.first())
        deaths: list[Exception] = []
        broken: Exception | None = None

        async def until_it_dies(task: Callable[[Any, TaskGroup], Awaitable[Exception | None]]) -> None:
            nonlocal broken
            try:
                broken = await task(actor, tasks)
            except (ray().exceptions.RayError, ConnectionError) as error:
                deaths.append(error)
            tasks.cancel_scope.cancel()

        async def until_it_ends(*_: object) -> Exception | None:
            error, _ = await answered(work)
            return error

        try:
            async with anyio.create_task_group() as tasks:
                for task in (until_it_ends, self._listen, self._send):
                    tasks.start_soon(until_it_dies, task)
        finally:
            self._over()
            lost = any(isinstance(error, ConnectionError) for error in deaths)
            if not lost:  # else Ray would start another cluster, here
                await self._end(actor, None if deaths else work)
        if broken is not None:
            raise broken
        if lost:
            raise RunStopped("the connection to the cluster is lost.") from deaths[0]
        return _in_a_line(deaths[0]) if deaths else "it ended by itself."

    def _over(self) -> None:
        """An actor is at work no longer."""
        if self.ready is None or self.playing:
            self._deaths += 1
        self.ready = None
        # What it had put aside is free again; what it had paid for is in its journal.
        for hold in self._holds.values():
            hold.release()
        self._holds.clear()
        self._asked.clear()

    async def _end(self, actor: Any, work: Any | None) -> None:
        """End an actor: one that is at `work` may close its journal, and its last words are heard."""
        with suppress(ConnectionError):
            if work is not None:
                with anyio.move_on_after(_PATIENCE, shield=True), suppress(ray().exceptions.RayError):
                    await answered(actor.take.remote([None]))
                    _, sums = await answered(work)
                    if sums is not None:
                        self._driver.learn(sums)
            ray().kill(actor)

    async def _send(self, actor: Any, _tasks: TaskGroup) -> None:
        # One call after the other: what is said comes in its order.
        while True:
            await answered(actor.take.remote(await self._outbox.fetch()))

    async def _listen(self, actor: Any, tasks: TaskGroup) -> None:
        while True:
            for message in await answered(actor.messages.remote()):
                await self._hear(message, tasks)

    async def _hear(self, message: object, tasks: TaskGroup) -> None:
        if isinstance(message, Ended):
            # No caller waits for an episode that was given up meanwhile.
            if (playing := self.playing.get(message.index)) is not None:
                playing.end(message.result)
                self._deaths = 0
        elif isinstance(message, Reserve):
            self._asked[message.hold] = anyio.CancelScope()
            tasks.start_soon(self._reserve, message)
        elif isinstance(message, Settle):
            await self._settle(message)
        elif isinstance(message, Ready):
            self.ready, self._node = message, message.node
            self.settled.set()
            # What an actor before this one has not finished.
            for playing in list(self.playing.values()):
                self.give(playing)
        elif isinstance(message, How):
            self.how = message
        elif isinstance(message, Sums):
            self._driver.learn(message.sums)
        elif isinstance(message, Said):
            _LOG.log(message.level, "%s", message.facts["text"], extra={"facts": message.facts})

    async def _reserve(self, asked: Reserve) -> None:
        outbox, playing = self._outbox, self.playing.get(asked.index)
        refusal: Exception | None = RunStopped("the episode was given up.")
        try:
            with self._asked[asked.hold] as given_up:
                if playing is not None:
                    try:
                        self._holds[asked.hold] = await playing.tracker.reserve(
                            prompt_tokens=asked.prompt_tokens, max_tokens=asked.max_tokens, price=priced(asked.prices)
                        )
                        refusal = None
                    except RunStopped as error:
                        refusal = error
        finally:
            del self._asked[asked.hold]
        if not given_up.cancel_called:
            outbox.post(Reserved(asked.hold, refusal))
        elif (hold := self._holds.pop(asked.hold, None)) is not None:
            # The caller has gone before it was decided.
            hold.release()

    async def _settle(self, message: Settle) -> None:
        if (asked := self._asked.get(message.hold)) is not None:
            asked.cancel()
            return
        playing, hold = self.playing.get(message.index), self._holds.pop(message.hold, None)
        if hold is None and message.hold == 0 and playing is not None:
            # There is no budget, so nothing was asked, and nothing waits here.
            hold = await playing.tracker.reserve(prompt_tokens=0, max_tokens=None, price=_ANY)
        if hold is None:
            return
        if message.usage is None:
            hold.release()
            return
        hold.settle(message.usage, message.cost_usd)
        if playing is not None:
            playing.paid.enter(message.usage, message.cost_usd)


_ANY: Price = priced(None)


def _actor(gather: float, node: str | None) -> Any:
    """A new one; on a node where one of its kind has been before, if that is there, because of the journal."""
    strategies = ray().util.scheduling_strategies
    strategy = "SPREAD" if node is None else strategies.NodeAffinitySchedulingStrategy(node, soft=True)
    # Replaced by its member and not restarted by Ray, so that what was said to one is never taken to be said to the next.
    options = {
        "num_cpus": cpus_of_each(),
        "max_restarts": 0,
        "max_concurrency": _AT_ONCE,
        "scheduling_strategy": strategy,
    }
    return ray().remote(**options)(Worker).remote(__version__, gather)


def cpus_of_each() -> float:
    """What an actor takes of the CPUs that Ray counts.

    Raises:
        ConfigurationError: The environment says something else.
    """
    return number_of("REFINESYNTH_WORKER_CPUS", 1.0)


def _environment() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if not name.startswith("RAY_")}


def _pickled(assignment: Assignment) -> bytes:
    try:
        return ray().cloudpickle.dumps(assignment)
    except Exception as error:
        raise ConfigurationError(
            f"the settings cannot be given to another process ({error}): what rules and completion functions hold must be such that it "
            f"can be pickled. Or ask for one worker, in this process"
        ) from error


def _in_a_line(error: Exception) -> str:
    """What Ray says of a death, without the addresses."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return next((line for line in lines if "is dead because" in line), lines[0] if lines else type(error).__name__)[
        :500
    ]
