"""The parent's side: worker processes, each episode given to the one with the least to do; one that dies is
replaced.
"""

import logging
from collections.abc import AsyncGenerator, Sequence
from contextlib import AbstractContextManager, asynccontextmanager
from dataclasses import dataclass, field
from typing import Protocol

import anyio
from anyio.abc import TaskGroup

from refinesynth.client.account import CostTracker, Price, Reservation
from refinesynth.errors import RunStopped
from refinesynth.run import Finished
from refinesynth.synthesis.shards.channel import Channel, Closed
from refinesynth.synthesis.shards.messages import Broken, Ended, How, PlayPersona, Reserve, Reserved, Said, Settle
from refinesynth.synthesis.shards.paying import priced
from refinesynth.synthesis.shards.process import end, start
from refinesynth.synthesis.shards.shard import Assignment
from refinesynth.trajectory import Persona

_LIVES = 5
"""How many processes may die one after the other without finishing an episode; then something is wrong with all."""


_LOG = logging.getLogger("refinesynth.shards")


class RunPurse(Protocol):
    """The tracker of a run; `BudgetTracker` is one."""

    def episode(self, index: int) -> AbstractContextManager[CostTracker]:
        """The tracker for one episode."""
        ...


@dataclass
class _Playing:
    """An episode in another process."""

    persona: Persona
    tracker: CostTracker
    done: anyio.Event = field(default_factory=anyio.Event)
    result: Finished | Exception = field(default_factory=lambda: RunStopped("a worker process was let go."))

    def end(self, result: Finished | Exception) -> None:
        """It has come to its end."""
        self.result = result
        self.done.set()


class _Member:
    """One assignment, and the processes that do it one after the other."""

    def __init__(self, assignment: Assignment, *, tracker: RunPurse) -> None:
        self.playing: dict[int, _Playing] = {}
        self._assignment = assignment
        self._tracker = tracker
        self._holds: dict[int, Reservation] = {}
        self._asked: dict[int, anyio.CancelScope] = {}
        """Reservations that are not decided yet."""
        self._deaths = 0
        """Processes that died one after the other without finishing an episode."""
        self.retries = 0
        self.troubles: tuple[str, ...] = ()
        self._channel: Channel | None = None
        self._failure: Exception | None = None

    async def play(self, index: int, persona: Persona) -> Finished:
        """One episode."""
        if self._failure is not None:
            raise self._failure
        with self._tracker.episode(index) as tracker:
            playing = self.playing[index] = _Playing(persona, tracker)
            if self._channel is not None:
                self._channel.post(PlayPersona(index, persona))
            try:
                await playing.done.wait()
            finally:
                del self.playing[index]
        if isinstance(playing.result, Finished):
            return playing.result
        raise playing.result

    async def attend(self) -> None:
        """Keep a process at work until it is cancelled, or too many have died."""
        code: int | None = None
        try:
            while self._deaths < _LIVES:
                code = await self._one_life()
                self._deaths += 1
        except Exception as error:  # noqa: BLE001 - passed to the caller that waits for an episode
            self._failure = error
        else:
            self._failure = RunStopped(
                f"{_LIVES} worker processes died one after the other, the last with exit code {code}{_meaning(code)}."
            )
        for playing in self.playing.values():
            playing.end(self._failure)

    async def _one_life(self) -> int | None:
        """A process from its start to its end, however that comes; its exit code."""
        channel, process = await start(self._assignment)
        code: int | None = None
        broken: Exception | None = None
        try:
            async with channel.opened(), anyio.create_task_group() as tasks:
                self._channel = channel
                # What a process before this one has not finished.
                for index, playing in self.playing.items():
                    channel.post(PlayPersona(index, playing.persona))
                broken = await self._listen(channel, tasks)
                tasks.cancel_scope.cancel()
        finally:
            self._channel = None
            # What it had put aside is free again; what it had paid for is in its journal.
            for hold in self._holds.values():
                hold.release()
            self._holds.clear()
            self._asked.clear()
            with anyio.CancelScope(shield=True):
                code = await anyio.to_thread.run_sync(end, process)
        if broken is not None:
            raise broken
        return code

    async def _listen(self, channel: Channel, tasks: TaskGroup) -> Exception | None:
        """Do what the process asks for until it ends, or says why no other could do better."""
        while True:
            try:
                message = await channel.receive()
            except Closed:
                return None
            if isinstance(message, Ended):
                # No caller waits for an episode that was given up meanwhile.
                if (playing := self.playing.get(message.index)) is not None:
                    playing.end(message.result)
                    self._deaths = 0
            elif isinstance(message, Reserve):
                self._asked[message.hold] = anyio.CancelScope()
                tasks.start_soon(self._reserve, channel, message)
            elif isinstance(message, Settle):
                await self._settle(message)
            elif isinstance(message, How):
                self.retries, self.troubles = message.retries, message.troubles
            elif isinstance(message, Broken):
                return message.error
            elif isinstance(message, Said):
                _LOG.log(message.level, "%s", message.facts["text"], extra={"facts": message.facts})

    async def _reserve(self, channel: Channel, asked: Reserve) -> None:
        playing = self.playing.get(asked.index)
        refusal: Exception | None = RunStopped("the episode was given up.")
        try:
            with self._asked[asked.hold] as given_up:
                if playing is not None:
                    try:
                        hold = await playing.tracker.reserve(
                            prompt_tokens=asked.prompt_tokens, max_tokens=asked.max_tokens, price=priced(asked.prices)
                        )
                        self._holds[asked.hold] = hold
                        refusal = None
                    except RunStopped as error:
                        refusal = error
        finally:
            del self._asked[asked.hold]
        if not given_up.cancel_called:
            channel.post(Reserved(asked.hold, refusal))
        elif (hold := self._holds.pop(asked.hold, None)) is not None:
            # The caller has gone before it was decided.
            hold.release()

    async def _settle(self, message: Settle) -> None:
        if (asked := self._asked.get(message.hold)) is not None:
            asked.cancel()
            return
        hold = self._holds.pop(message.hold, None)
        if hold is None and message.hold == 0 and (playing := self.playing.get(message.index)) is not None:
            # There is no budget, so nothing was asked, and nothing waits here.
            hold = await playing.tracker.reserve(prompt_tokens=0, max_tokens=None, price=_ANY)
        if hold is None:
            return
        if message.usage is None:
            hold.release()
        else:
            hold.settle(message.usage, message.cost_usd)


_ANY: Price = priced(None)


def _meaning(code: int | None) -> str:
    if code is not None and code > 0:
        return (
            "; what it said is above. A script that asks for several processes must do so below "
            "`if __name__ == '__main__':`, since each of them imports it"
        )
    return " (-9: killed, mostly for want of memory): give the run more memory, or lower concurrency or processes"


class Crew:
    """Plays episodes in other processes."""

    def how(self) -> tuple[int, tuple[str, ...]]:
        """Requests that were made again, and what is wrong with backends, each trouble once however many have it."""
        troubles = dict.fromkeys(trouble for member in self._members for trouble in member.troubles)
        return sum(member.retries for member in self._members), tuple(troubles)

    def __init__(self, members: Sequence[_Member]) -> None:
        self._members = members

    async def play(self, index: int, persona: Persona) -> Finished:
        """One episode, in the process with the least to do.

        Raises:
            RunStopped: No episode can go on, or worker processes keep dying.
        """
        return await min(self._members, key=lambda member: len(member.playing)).play(index, persona)


@asynccontextmanager
async def open_crew(assignments: Sequence[Assignment], *, tracker: RunPurse) -> AsyncGenerator[Crew, None]:
    """A worker process for each assignment, all paid from `tracker`. They end with the block, even in the middle of an
    episode.
    """
    members = [_Member(assignment, tracker=tracker) for assignment in assignments]
    failure: Exception | None = None
    async with anyio.create_task_group() as tasks:
        for member in members:
            tasks.start_soon(member.attend)
        try:
            yield Crew(members)
        except Exception as error:  # noqa: BLE001 - raised below, so that the task group does not wrap it
            failure = error
        tasks.cancel_scope.cancel()
    if failure is not None:
        raise failure
