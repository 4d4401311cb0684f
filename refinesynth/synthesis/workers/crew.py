"""The driver's side: workers, each episode given to the one with the least to do; one that dies is replaced."""

import logging
import math
from collections import Counter
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager

import anyio
import anyio.to_thread

from refinesynth.client.beside import beside
from refinesynth.errors import ConfigurationError
from refinesynth.journal import Paid
from refinesynth.run import Finished
from refinesynth.synthesis.progress import How
from refinesynth.synthesis.workers.cluster import connected, number_of, ray
from refinesynth.synthesis.workers.member import Driver, Member, Playing, cpus_of_each
from refinesynth.synthesis.workers.worker import Assignment, Given
from refinesynth.trajectory import Persona

_PATIENCE = 10.0
"""Seconds between two looks at who is not at work; after one it is said that workers find no place."""
_LOOKS = 2
"""After so many, others play what a worker was given that finds no place."""
_LOOKS_ON_ITS_WAY = 30
"""After so many, what one was given that has a place: with its journal goes what was paid for."""

_LOG = logging.getLogger("refinesynth.workers")


class Crew:
    """Plays episodes in other processes."""

    def __init__(self, members: Sequence[Member], driver: Driver) -> None:
        self._members = members
        self._driver = driver

    def how(self) -> How:
        """How backends are for all of them together, each trouble once however many have it."""
        each = [member.how for member in self._members]
        troubles = dict.fromkeys(trouble for one in each for trouble in one.troubles)
        return How(sum(one.retries for one in each), tuple(troubles), sum(one.room for one in each))

    @property
    def read(self) -> frozenset[str]:
        """The ids of journals that its workers can read."""
        return frozenset[str]().union(*(member.ready.read for member in self._members if member.ready is not None))

    async def play(self, index: int, persona: Persona, *, known: tuple[Paid, ...] = ()) -> Finished:
        """One episode, by the worker with the least to do of those that know what was paid for before, beside what is
        `known`.

        Raises:
            RunStopped: No episode can go on, or workers keep dying.
        """
        with self._driver.tracker.episode(index) as tracker:
            playing = Playing(Given(index, persona, known, self._driver.first()), tracker)
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
            why = await self._no_room() or "workers are on their way"
            raise ConfigurationError(f"{why}; REFINESYNTH_CLUSTER_WAIT is {limit:g} seconds")
        nodes = {member.ready.node for member in self._members if member.ready is not None}
        if len(nodes) > 1 and not self._members[0].away:
            raise ConfigurationError(
                f"workers are on {len(nodes)} machines, and a journal needs a disk of its machine: name a folder that each has, as "
                f"--journals /var/tmp/refinesynth (journals= in Python)"
            )

    async def look_after(self) -> None:
        """Say who finds no place, and have the others play what such a one was given."""
        looks = Counter[Member]()
        while True:
            await anyio.sleep(_PATIENCE)
            waiting = {member for member in self._members if member.ready is None and member.failure is None}
            looks = Counter({member: looks[member] + 1 for member in waiting})
            text = await self._no_room() if waiting else None
            if text is not None:
                _LOG.warning("%s", text, extra={"facts": {"event": "workers_wait", "text": text}})
            enough = _LOOKS_ON_ITS_WAY if text is None else _LOOKS
            for member in waiting if len(waiting) < len(self._members) else ():
                for index in list(member.playing) if looks[member] >= enough else ():
                    self._hand(member.playing.pop(index))

    async def _no_room(self) -> str | None:
        """What is missing; None where those who are not at work have a place and are on their way."""
        waiting = sum(member.ready is None for member in self._members)
        try:
            found = await anyio.to_thread.run_sync(lambda: (ray().cluster_resources(), ray().available_resources()))
        except Exception:  # noqa: BLE001 - of Ray or its transport: the cluster is lost, which the members see too
            return None
        there, free = (resources.get("CPU", 0.0) for resources in found)
        if free >= cpus_of_each() or (free == 0 and there == cpus_of_each() * len(self._members)):
            # There is a place; or they have taken all that there are, as on this machine.
            return None
        return (
            f"{waiting} of {len(self._members)} workers wait for a place: each takes {cpus_of_each():g} CPU, and the cluster has {there:g}, "
            f"of which {free:g} are free; add machines, or ask for fewer workers"
        )

    def _hand(self, playing: Playing) -> None:
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
    async with connected(cluster, workers=len(assignments)), beside() as tasks:
        members = [Member(assignment, driver) for assignment in assignments]
        crew = Crew(members, driver)
        for task in (crew.look_after, *(member.attend for member in members)):
            tasks.start_soon(task)
        await crew.assemble()
        yield crew
