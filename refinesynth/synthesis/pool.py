"""The engine: workers that play episodes, a feeder that starts personas, and commits in the order of the personas.

The pool knows nothing of roles or models: an episode is a function. What is written does not depend on how many workers there
are or who finishes first: outcomes are committed in the order of the personas, up to the one with which `n` are accepted.
"""

from collections.abc import Awaitable, Callable
from typing import TypeVar

import anyio
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream

from refinesynth.errors import RunFolderError, RunStopped
from refinesynth.outcome import EpisodeOutcome
from refinesynth.personas import Personas
from refinesynth.run import EpisodeLine, RunWriter, fingerprint
from refinesynth.synthesis.progress import Progress
from refinesynth.synthesis.reorder import Reorder
from refinesynth.synthesis.tally import Tally
from refinesynth.trajectory import Persona, Trajectory

Play = Callable[[int, Persona], Awaitable[EpisodeOutcome]]
"""One episode, given a persona's position and the persona; raises only `RunStopped` and cancellation."""

_Stream = TypeVar("_Stream")
_AHEAD_PER_WORKER = 8
_AHEAD_AT_LEAST = 64


def window(concurrency: int) -> int:
    """How far a persona may be started ahead of the first unfinished one: bounds what waits to be committed."""
    return max(_AHEAD_AT_LEAST, _AHEAD_PER_WORKER * concurrency)


class Pool:
    """Plays episodes until `n` are accepted and committed, or the personas run out. To be run once.

    All state belongs to one event loop and is changed without awaiting in between, so cancellation finds every finished
    episode either committed or held; those that are held go to pending.jsonl, however the run ends.
    """

    def __init__(
        self,
        *,
        play: Play,
        personas: Personas,
        folder: RunWriter,
        n: int,
        concurrency: int,
        on_progress: Callable[[Progress], None] | None = None,
        on_accepted: Callable[[Trajectory], None] | None = None,
        has_room: Callable[[], bool] | None = None,
    ) -> None:
        """A pool that writes to `folder`.

        `on_accepted` is given each trajectory right after it is written; while `has_room` says no, nothing new is
        started (call `wake` when that changes).
        """
        self._play = play
        self._personas = personas
        self._folder = folder
        self._n = n
        self._concurrency = concurrency
        self._on_progress = on_progress
        self._on_accepted = on_accepted
        self._has_room = has_room
        self._committed_before = folder.committed.episodes
        self._reorder = Reorder(first=self._committed_before)
        waiting = folder.take_waiting()
        for outcome in waiting.values():
            self._reorder.add(outcome)
        self._waiting = {index: EpisodeLine.of(outcome) for index, outcome in waiting.items()}
        self._tally = Tally(n=n, committed=folder.committed, waiting=self._waiting.values())
        self._changed = anyio.Event()
        self._scope = anyio.CancelScope()
        self._failure: Exception | None = None
        self.ran_out_after: int | None = None
        """How many personas there were, once they have run out."""

    @property
    def reached(self) -> bool:
        """Whether `n` accepted trajectories are written."""
        return self._folder.committed.accepted >= self._n

    @property
    def progress(self) -> Progress:
        """The counts at this moment."""
        return self._tally.progress(written=self._folder.committed.accepted, bad_personas=self._personas.bad)

    def wake(self) -> None:
        """Look again whether something may be started."""
        self._changed.set()

    async def run(self) -> None:
        """Play until there is nothing more to do.

        Raises:
            RunStopped: No episode can go on. The message says where the partial run is.
            RefinesynthError: The personas cannot be read on, are not those that a resumed run began with, or the folder
                cannot be written.
            Exception: Whatever `on_progress` raised.
        """
        try:
            self._commit()
            if not self.reached:
                await self._play_all()
        except BaseException as error:
            # Cancellation and errors pass through, whatever else goes wrong here.
            try:
                self._end(f"{type(error).__name__}: {error}" if isinstance(error, Exception) else "interrupted")
            except RunFolderError as lost:
                error.add_note(f"Not everything that was finished could be saved: {lost}")
            raise
        self._end("personas_ran_out")

    def _end(self, why: str) -> None:
        self._folder.keep_waiting(self._reorder.held())
        progress = self.progress
        self._folder.log.info(
            "run_ended",
            why="reached" if self.reached else why,
            accepted=progress.written,
            n=self._n,
            started=progress.started,
            finished=progress.finished,
        )

    async def _play_all(self) -> None:
        send, receive = anyio.create_memory_object_stream[tuple[int, Persona]]()
        with send, receive, self._scope:
            async with anyio.create_task_group() as group:
                group.start_soon(self._guarded, self._feed, send)
                for _ in range(self._concurrency):
                    group.start_soon(self._guarded, self._work, receive)
        if isinstance(self._failure, RunStopped):
            raise RunStopped(
                f"{self._failure} {self._whereabouts()} Mend the cause, then resume that run."
            ) from self._failure
        if self._failure is not None:
            self._failure.add_note(self._whereabouts())
            raise self._failure

    async def _guarded(self, task: Callable[[_Stream], Awaitable[None]], stream: _Stream) -> None:
        """Run a task of the group; the first that fails ends all, and is raised as itself and not in a group."""
        try:
            await task(stream)
        except Exception as error:  # noqa: BLE001
            self._failure = self._failure or error
            self._scope.cancel()

    async def _feed(self, send: MemoryObjectSendStream[tuple[int, Persona]]) -> None:
        """Start personas as they are needed; at most one is read before its time."""
        finished = self._folder.episodes()
        count = 0
        with send:
            async for index, persona in self._personas:
                count = index + 1
                if index < self._committed_before:
                    self._check_same(index, persona, next(finished).persona)
                elif index in self._waiting:
                    line = self._waiting.pop(index)
                    self._check_same(index, persona, line.persona)
                    self._tally.pass_by(line)
                else:
                    while not self._may_start(index):
                        self._changed = anyio.Event()
                        await self._changed.wait()
                    self._tally.started += 1
                    self._report()
                    await send.send((index, persona))
            if count < self._committed_before or self._waiting:
                raise RunFolderError(
                    f"{self._folder} was begun with more than the {count:,} personas that are given now; "
                    f"give the same ones, in the same order. More may follow at the end"
                )
        self.ran_out_after = count

    def _may_start(self, index: int) -> bool:
        return (
            self._tally.in_flight < min(self._concurrency, self._tally.wanted())
            and index < self._reorder.next + window(self._concurrency)
            and (self._has_room is None or self._has_room())
        )

    def _check_same(self, index: int, persona: Persona, expected: str) -> None:
        if fingerprint(persona) != expected:
            raise RunFolderError(
                f"persona {index} is now {persona.text[:80]!r}, which is not the one that {self._folder} was begun with; "
                f"give the same personas, in the same order. More may follow at the end"
            )

    async def _work(self, receive: MemoryObjectReceiveStream[tuple[int, Persona]]) -> None:
        with receive.clone() as personas:
            async for index, persona in personas:
                outcome = await self._play(index, persona)
                self._finish(outcome)

    def _finish(self, outcome: EpisodeOutcome) -> None:
        # Nothing is awaited here: cancellation must find this episode either unfinished or held.
        self._reorder.add(outcome)
        line = self._tally.finish(outcome)
        known = line.model_dump(mode="json", exclude={"persona", "violations", "trajectories_end", "rejected_end"})
        self._folder.log.info("episode_finished", **known)
        self._commit()
        self.wake()
        self._report()
        if self.reached:
            self._scope.cancel()

    def _commit(self) -> None:
        """Write every outcome that is in its turn, until `n` are accepted."""
        while not self.reached and (outcome := self._reorder.peek()) is not None:
            # Let go of only when it is written: a full disk loses nothing.
            self._folder.append(outcome)
            self._reorder.advance()
            if outcome.trajectory is not None and self._on_accepted is not None:
                self._on_accepted(outcome.trajectory)

    def _report(self) -> None:
        if self._on_progress is not None:
            self._on_progress(self.progress)

    def _whereabouts(self) -> str:
        progress = self.progress
        return (
            f"The run stopped with {progress.finished:,} episodes finished and {progress.accepted:,} of {self._n:,} "
            f"trajectories accepted; they are in {str(self._folder.path)!r}."
        )
