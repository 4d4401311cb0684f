"""The driver's side: workers, each episode given to the one with the least to do; one that dies is replaced."""

import logging
import math
import os
import sys
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import AbstractContextManager, asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import Any, Protocol

import anyio
import anyio.to_thread
from anyio.abc import TaskGroup

from refinesynth._version import __version__
from refinesynth.client.account import CostTracker, Count, Price, Reservation
from refinesynth.errors import ConfigurationError, RunStopped
from refinesynth.journal import Paid
from refinesynth.run import Finished, JournalSums
from refinesynth.run.away import tell_lost
from refinesynth.synthesis.workers.actor import Worker
from refinesynth.synthesis.workers.cluster import connected, number_of, ray
from refinesynth.synthesis.workers.messages import Ended, How, Ready, Reserve, Reserved, Said, Settle, Sums
from refinesynth.synthesis.workers.outbox import Outbox
from refinesynth.synthesis.workers.paying import priced
from refinesynth.synthesis.workers.worker import Assignment, Given
from refinesynth.trajectory import Persona

_LIVES = 5
"""How many processes may die one after the other without finishing an episode; then something is wrong with all."""
_AT_ONCE = 1_000
"""Calls that an actor may be busy with; it is never asked more than a few."""
_GATHER = 0.002
"""Seconds that a message waits for others, for each worker: the driver is to hear a few hundred calls a second at
most."""
_GATHER_AT_MOST = 0.1
_PATIENCE = 10.0
"""Seconds until it is said that workers find no place, and until one that is let go is ended."""

_LOG = logging.getLogger("refinesynth.workers")


class RunPurse(Protocol):
    """The tracker of a run; `BudgetTracker` is one."""

    def episode(self, index: int) -> AbstractContextManager[CostTracker]:
        """The tracker for one episode."""
        ...


@dataclass
class _Playing:
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


class _Member:
    """One assignment, and the actors that do it one after the other."""

    def __init__(self, assignment: Assignment, driver: Driver) -> None:
        self.playing: dict[int, _Playing] = {}
        self.retries = 0
        self.troubles: tuple[str, ...] = ()
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
        """Actors that died one after the other without finishing an episode."""
        self._node: str | None = None

    def give(self, playing: _Playing) -> None:
        """Have an episode played here: now, or when there is an actor again."""
        index = playing.given.index
        self.playing[index] = playing
        if self.ready is None:
            return
        if playing.paid.requests and index not in self.ready.begun:
            lost, playing.paid = playing.paid, Count()
            where = f"what another worker has kept of episode {index}"
            tell_lost(where, episodes=1, requests=lost.requests, cost_usd=lost.cost_usd)
        self._outbox.post(playing.given)

    async def attend(self) -> None:
        """Keep an actor at work until it is cancelled, or too many have died."""
        why = ""
        try:
            while self._deaths < _LIVES:
                why = await self._one_life()
                self._deaths += 1
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
        deaths: list[str] = []
        broken: Exception | None = None

        async def until_it_dies(task: Callable[[Any, TaskGroup], Awaitable[Exception | None]]) -> None:
            nonlocal broken
            try:
                broken = await task(actor, tasks)
            except ray().exceptions.RayError as error:
                deaths.append(_in_a_line(error))
            tasks.cancel_scope.cancel()

        async def until_it_ends(*_: object) -> Exception | None:
            return await work

        try:
            async with anyio.create_task_group() as tasks:
                for task in (until_it_ends, self._listen, self._send):
                    tasks.start_soon(until_it_dies, task)
        finally:
            self.ready = None
            # What it had put aside is free again; what it had paid for is in its journal.
            for hold in self._holds.values():
                hold.release()
            self._holds.clear()
            self._asked.clear()
            if not deaths:
                await self._let_go(actor, work)
            ray().kill(actor)
        if broken is not None:
            raise broken
        return deaths[0] if deaths else "it ended by itself."

    async def _let_go(self, actor: Any, work: Any) -> None:
        """Let it close its journal, and hear its last words."""
        with anyio.move_on_after(_PATIENCE, shield=True), suppress(ray().exceptions.RayError):
            await actor.take.remote([None])
            await work
            for message in await actor.messages.remote():
                if isinstance(message, Sums):
                    self._driver.learn(message.sums)

    async def _send(self, actor: Any, _tasks: TaskGroup) -> None:
        # One call after the other: what is said comes in its order.
        while True:
            await actor.take.remote(await self._outbox.fetch())

    async def _listen(self, actor: Any, tasks: TaskGroup) -> None:
        while True:
            for message in await actor.messages.remote():
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
            self.retries, self.troubles = message.retries, message.troubles
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


class Crew:
    """Plays episodes in other processes."""

    def __init__(self, members: Sequence[_Member], driver: Driver) -> None:
        self._members = members
        self._driver = driver

    def how(self) -> tuple[int, tuple[str, ...]]:
        """Requests that were made again, and what is wrong with backends, each trouble once however many have it."""
        troubles = dict.fromkeys(trouble for member in self._members for trouble in member.troubles)
        return sum(member.retries for member in self._members), tuple(troubles)

    @property
    def read(self) -> frozenset[str]:
        """The journals that its workers can read."""
        return frozenset[str]().union(*(member.ready.read for member in self._members if member.ready is not None))

    async def play(self, index: int, persona: Persona, *, known: tuple[Paid, ...] = ()) -> Finished:
        """One episode, by the worker with the least to do of those that know what was paid for before, beside what is
        `known`.

        Raises:
            RunStopped: No episode can go on, or workers keep dying.
        """
        with self._driver.tracker.episode(index) as tracker:
            playing = _Playing(Given(index, persona, known), tracker)
            self._hand(playing)
            try:
                await playing.done.wait()
            finally:
                for member in self._members:
                    member.playing.pop(index, None)
        if isinstance(playing.result, Finished):
            return playing.result
        raise playing.result

    async def assemble(self) -> None:
        """Wait until all are at work: before, it is not known who can read what.

        Raises:
            ConfigurationError: There is no room for them, and the environment says how long to wait; or they are on
                several machines and have their journals in one folder.
            RefinesynthError: One cannot begin.
        """
        limit = number_of("REFINESYNTH_CLUSTER_WAIT", math.inf)
        with anyio.move_on_after(limit):
            for member in self._members:
                await member.settled.wait()
                if member.failure is not None:
                    raise member.failure
        if any(not member.settled.is_set() for member in self._members):
            raise ConfigurationError(f"{await self._waiting()}; REFINESYNTH_CLUSTER_WAIT is {limit:g} seconds")
        nodes = {member.ready.node for member in self._members if member.ready is not None}
        if len(nodes) > 1 and not self._members[0].away:
            raise ConfigurationError(
                f"workers are on {len(nodes)} machines, and a journal needs a disk of its machine: name a folder that each has, as "
                f"--journals /var/tmp/refinesynth (journals= in Python)"
            )

    async def look_after(self) -> None:
        """Say who finds no place, and have the others play what such a one was given."""
        before: set[_Member] = set()
        while True:
            await anyio.sleep(_PATIENCE)
            waiting = {member for member in self._members if member.ready is None and member.failure is None}
            if waiting:
                facts = {"event": "workers_wait", "text": await self._waiting()}
                _LOG.warning("%s", facts["text"], extra={"facts": facts})
            for member in waiting & before if len(waiting) < len(self._members) else ():
                for index in list(member.playing):
                    self._hand(member.playing.pop(index))
            before = waiting

    async def _waiting(self) -> str:
        waiting = sum(member.ready is None for member in self._members)
        found = await anyio.to_thread.run_sync(lambda: (ray().cluster_resources(), ray().available_resources()))
        there, free = (resources.get("CPU", 0.0) for resources in found)
        return (
            f"{waiting} of {len(self._members)} workers wait for a place: each takes {_cpus():g} CPU, and the cluster has {there:g}, "
            f"of which {free:g} are free; add machines, or ask for fewer workers"
        )

    def _hand(self, playing: _Playing) -> None:
        ready = [member for member in self._members if member.ready is not None] or self._members
        knowing = [one for one in ready if one.ready is not None and playing.given.index in one.ready.begun]
        chosen = min(knowing or ready, key=lambda member: len(member.playing))
        if chosen.failure is not None:
            playing.end(chosen.failure)
        chosen.give(playing)


@asynccontextmanager
async def open_crew(
    assignments: Sequence[Assignment], driver: Driver, *, cluster: str | None = None
) -> AsyncGenerator[Crew, None]:
    """A worker for each assignment, on `cluster` or on this machine. They end with the block, even in the middle of an
    episode.

    Raises:
        ConfigurationError: There is no Ray, no such cluster, or the assignments cannot be given to other processes.
    """
    failure: Exception | None = None
    async with connected(cluster, workers=len(assignments)):
        members = [_Member(assignment, driver) for assignment in assignments]
        crew = Crew(members, driver)
        async with anyio.create_task_group() as tasks:
            for task in (crew.look_after, *(member.attend for member in members)):
                tasks.start_soon(task)
            try:
                await crew.assemble()
                yield crew
            except Exception as error:  # noqa: BLE001 - raised below, so that the task group does not wrap it
                failure = error
            tasks.cancel_scope.cancel()
    if failure is not None:
        raise failure


def _actor(gather: float, node: str | None) -> Any:
    """A new one; on a node where one of its kind has been before, if that is there, because of the journal."""
    strategies = ray().util.scheduling_strategies
    strategy = "SPREAD" if node is None else strategies.NodeAffinitySchedulingStrategy(node, soft=True)
    # Replaced by its member and not restarted by Ray, so that what was said to one is never taken to be said to the next.
    options = {"num_cpus": _cpus(), "max_restarts": 0, "max_concurrency": _AT_ONCE, "scheduling_strategy": strategy}
    return ray().remote(**options)(Worker).remote(__version__, gather)


def _cpus() -> float:
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
