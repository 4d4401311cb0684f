"""The engine: workers that play episodes, a feeder that starts personas, and commits in the order of the personas.

The pool knows nothing of roles or models: an episode is a function. What is written does not depend on how many workers
there are or who finishes first: outcomes are committed in the order of the personas, each whole, up to the one with
which `n` trajectories are accepted, or after which patience has run out; what is curated is curated in that order too.
"""

from collections.abc import Awaitable, Callable
from functools import partial
from typing import TypeVar

import anyio
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream

from refinesynth.errors import BudgetSpent, RunFolderError, RunStopped, StorageError
from refinesynth.personas import Personas
from refinesynth.run import Finished, RunWriter, fingerprint
from refinesynth.synthesis.committing import Committing, Curate
from refinesynth.synthesis.patience import Patience, Why, Yield
from refinesynth.synthesis.paying import Funds, Unbounded
from refinesynth.synthesis.progress import Bound, Progress, Surroundings
from refinesynth.synthesis.room import Room
from refinesynth.trajectory import Persona, Trajectory

PlayEpisode = Callable[[int, Persona], Awaitable[Finished]]
"""One episode, given a persona's position and the persona; raises only what ends the run, and cancellation."""

_Stream = TypeVar("_Stream")
_AHEAD_PER_WORKER = 8
_AHEAD_AT_LEAST = 64


def window(concurrency: int) -> int:
    """How far a persona may be started ahead of the first unfinished one: bounds what waits to be committed."""
    return max(_AHEAD_AT_LEAST, _AHEAD_PER_WORKER * concurrency)


class Pool:
    """Plays episodes until `n` are accepted and committed, the personas run out, or patience does. To be run once.

    An episode that is finished is in the journal before its worker goes on, also if something is cancelled meanwhile:
    in its turn it is committed to the files, else it waits there. In memory there are only the numbers of those that
    wait.
    """

    def __init__(
        self,
        *,
        play: PlayEpisode,
        personas: Personas,
        folder: RunWriter,
        n: int,
        concurrency: int | Room,
        on_progress: Callable[[Progress], None] | None = None,
        on_accepted: Callable[[Trajectory], None] | None = None,
        has_room: Callable[[], bool] | None = None,
        funds: Funds | None = None,
        surroundings: Callable[[], Surroundings] | None = None,
        curate: Curate | None = None,
        per_episode: int = 1,
        patience: Patience | None = None,
    ) -> None:
        """A pool that writes to `folder`; without `patience`, it goes on as long as there are personas.

        `on_accepted` is given each trajectory right after it is committed; while `has_room` says no, nothing new is
        started (call `wake` when that changes). What `funds` do not allow for is not started either; an episode that
        cannot be paid any more (`BudgetSpent`) is put back, and the others go on. What waits is not curated yet, so it
        may go on under a `curate` that knows what is in the files; an episode that goes well gives `per_episode`
        trajectories.
        """
        self._play = play
        self._personas = personas
        self._folder = folder
        self._n = n
        self._room = Room(concurrency, concurrency) if isinstance(concurrency, int) else concurrency
        self._bound: Bound | None = None
        self._on_progress = on_progress
        self._has_room = has_room
        self._funds = funds or Unbounded()
        self._surroundings = surroundings
        self._patience = patience or Patience(n=n, episodes=0)
        self._commits = Committing(
            folder, n=n, patience=self._patience, curate=curate, on_accepted=on_accepted, per_episode=per_episode
        )
        self._tally = self._commits.tally
        self._changed = anyio.Event()
        self._doubtful = list[Finished]()
        """Counted, and written as soon as an episode that is not shows that the settings are right; else played again
        by the next process."""
        self._scope = anyio.CancelScope()
        self._failure: Exception | None = None
        self.ran_out_after: int | None = None
        """How many personas there were, once they have run out."""
        self.out_of_money = False
        """Whether the run ended because nothing more could be paid."""

    @property
    def reached(self) -> bool:
        """Whether `n` accepted trajectories are written."""
        return self._commits.reached

    @property
    def stopped_early(self) -> Why | None:
        """Why it does not go on although it could; None if it does. A matter of what is committed alone."""
        return self._commits.stopped_early

    @property
    def seen(self) -> Yield:
        """What is committed has given."""
        return self._commits.seen

    @property
    def progress(self) -> Progress:
        """The counts at this moment."""
        return self._tally.progress(
            written=self._commits.written,
            bad_personas=self._personas.bad,
            bound=self._bound,
            surroundings=self._surroundings,
        )

    def wake(self) -> None:
        """Look again whether something may be started."""
        self._changed.set()

    async def run(self) -> None:
        """Play until there is nothing more to do; if there is nothing from the beginning, nothing is logged either.

        Raises:
            RunStopped: No episode can go on. The message says where the partial run is.
            RefinesynthError: The personas cannot be read on, are not those that a resumed run began with, or the folder
                cannot be written.
            Exception: Any that `on_progress` raised.
        """
        if self.reached:
            return
        try:
            with anyio.CancelScope(shield=True):
                await self._commits.commit_waiting()
            if not self._commits.over:
                await self._play_all()
        except BaseException as error:
            # Cancellation and errors pass through, even if something else goes wrong here.
            try:
                self._end(f"{type(error).__name__}: {error}" if isinstance(error, Exception) else "interrupted")
            except StorageError as lost:
                error.add_note(str(lost))
            raise
        early = self.stopped_early
        if early is not None and not self.reached:
            self._tell_why(early)
        self._end(early or ("budget_spent" if self.out_of_money else "personas_ran_out"))

    def _tell_why(self, early: Why) -> None:
        seen, most = self._folder.committed, self._folder.committed.by_rule.most_common(1)
        self._folder.log.warning(
            "stopped_early",
            why=early,
            patience=self._patience.episodes,
            episodes=seen.episodes,
            lost=seen.lost,
            accepted=seen.accepted,
            expected=round(self._patience.expected(self.seen)) if early == "unreachable" else 0,
            rule=most[0][0] if most else None,
            reason=None if seen.commonest_reason is None else seen.commonest_reason[0],
            last_reason=seen.last_reason,
        )

    def _end(self, why: str) -> None:
        progress = self.progress
        self._folder.milestones.info(
            "run_ended",
            why="reached" if self.reached else why,
            accepted=progress.accepted,
            n=self._n,
            started=progress.started,
            finished=progress.finished - len(self._doubtful),
            seconds=round(progress.elapsed, 1),
        )

    async def _play_all(self) -> None:
        send, receive = anyio.create_memory_object_stream[tuple[int, Persona]]()
        with send, receive, self._scope:
            async with anyio.create_task_group() as group:

                def more_work() -> None:
                    group.start_soon(self._guarded, self._work, receive)

                group.start_soon(self._guarded, partial(self._feed, more_work), send)
        if self._doubtful and self._failure is None and not self._commits.over:
            if self.progress.finished > len(self._doubtful):
                await self._finish_doubtful()
            else:
                self._failure = RunStopped(f"{self._doubtful[0].line.reason}; so it was with all that was asked.")
        if isinstance(self._failure, RunStopped):
            raise RunStopped(
                f"{self._failure} {self._whereabouts()} Fix the cause, then ask for the same again: the run is resumed."
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

    async def _feed(self, more_work: Callable[[], None], send: MemoryObjectSendStream[tuple[int, Persona]]) -> None:
        """Start personas as they are needed, and workers as there are more at once; at most one persona is read before
        its time.
        """
        finished = self._folder.personas()
        count = workers = 0
        with send:
            async for index, persona in self._personas:
                count = index + 1
                if index < self._commits.before:
                    self._check_same(index, persona, next(finished))
                elif index in self._commits.waiting:
                    line = self._commits.waiting.pop(index)
                    self._check_same(index, persona, line.persona)
                    self._tally.pass_by(line)
                else:
                    while self._held_back(index):
                        if not self._tally.in_flight and not self._funds.may_start(0):
                            self.out_of_money = True
                            return
                        self._changed = anyio.Event()
                        with anyio.move_on_after(self._room.look_again):
                            await self._changed.wait()
                    self._tally.started += 1
                    self._report()
                    if self._tally.in_flight > workers:
                        workers += 1
                        more_work()
                    await send.send((index, persona))
            if count < self._commits.before or self._commits.waiting:
                raise RunFolderError(
                    f"{self._folder} was begun with more than the {count:,} personas that are given now; "
                    f"give the same ones, in the same order. More may follow at the end"
                )
        self.ran_out_after, self._bound = count, None

    def _held_back(self, index: int) -> bool:
        """Whether the persona is not to be started yet."""
        before, self._bound = self._bound, self._bound_of(index)
        if self._bound not in {before, None}:
            self._report()
        return self._bound is not None

    def _bound_of(self, index: int) -> Bound | None:
        in_flight, room = self._tally.in_flight, self._room.episodes()
        if in_flight >= self._tally.wanted():
            return Bound.MISSING
        if in_flight >= room:
            return self._room.bound(in_flight)
        if index >= self._folder.committed.episodes + window(room):
            return Bound.EARLIER
        if not self._funds.may_start(in_flight):
            return Bound.BUDGET
        return None if self._has_room is None or self._has_room() else Bound.READER

    def _check_same(self, index: int, persona: Persona, expected: str) -> None:
        if fingerprint(persona) != expected:
            raise RunFolderError(
                f"persona {index} is now {persona.text[:80]!r}, which is not the one that {self._folder} was begun with; "
                f"give the same personas, in the same order. More may follow at the end"
            )

    async def _work(self, receive: MemoryObjectReceiveStream[tuple[int, Persona]]) -> None:
        with receive.clone() as personas:
            async for index, persona in personas:
                try:
                    finished = await self._play(index, persona)
                except BudgetSpent:
                    self._tally.put_back()
                    self._report()
                    self.wake()
                    continue
                if finished.doubtful:
                    self._tally.finish(finished.line)
                    self._doubtful.append(finished)
                    self._report()
                    self.wake()
                    continue
                # Nothing is awaited in between: cancellation finds this episode either unfinished or in the journal.
                with anyio.CancelScope(shield=True):
                    await self._finish(finished)
                    await self._finish_doubtful()

    async def _finish_doubtful(self) -> None:
        while self._doubtful:
            await self._finish(self._doubtful.pop())

    async def _finish(self, finished: Finished) -> None:
        finished = await self._commits.take(finished)
        line = finished.line
        if not finished.doubtful:
            self._tally.finish(line)
        self._report()
        committed = self._folder.committed.episodes
        await self._commits.commit_waiting()
        self._folder.log.info(
            "episode_finished", **line.model_dump(mode="json", exclude={"persona", "violations", "wasted"})
        )
        if committed != self._folder.committed.episodes:
            self._report()
        self.wake()
        if self._commits.over:
            self._scope.cancel()

    def _report(self) -> None:
        if self._on_progress is not None:
            self._on_progress(self.progress)

    def _whereabouts(self) -> str:
        progress = self.progress
        return (
            f"The run stopped with {progress.finished - len(self._doubtful):,} episodes finished and {progress.accepted:,} of {self._n:,} "
            f"trajectories accepted; they are in {str(self._folder.path)!r}."
        )
