"""Engine of a run: a feeder starts episodes, and outcomes are committed in the order of the personas.

An episode is a function; the pool knows no roles or models. The files depend neither on the number of episodes in flight
nor on their speed: commits and curation follow the order of the personas, until `n` is reached or the run stops early.
"""

import math
import time
from collections import deque
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Literal, TypeAlias, TypeVarTuple

import anyio
from anyio.abc import TaskGroup
from anyio.lowlevel import checkpoint

from refinesynth.errors import BudgetSpent, RunStopped, StorageError
from refinesynth.outcome import EpisodeOutcome
from refinesynth.personas import Personas
from refinesynth.run import CompletedEpisode, RunStats, RunWriter
from refinesynth.synthesis.concurrency import EpisodeLimit
from refinesynth.synthesis.progress import LimitingFactor, Progress, Surroundings
from refinesynth.trajectory import Persona, Trajectory

PlayEpisode = Callable[[int, Persona], Awaitable[CompletedEpisode]]
"""Plays the persona at a position; raises only errors that end the run, `BudgetSpent` and cancellation."""

Curate = Callable[[EpisodeOutcome], EpisodeOutcome]
"""Curates an outcome in the order of the commits: it may move trajectories to the refused drafts."""

_Given = TypeVarTuple("_Given")
_AHEAD_PER_WORKER = 8
_AHEAD_AT_LEAST = 64
_AT_ONCE = 64
"""Maximum number of episodes in one commit; other tasks run between commits."""
_UNJUDGED = 4
"""Multiple of the limit after which lost episodes count too, as a deadline may be too short for all episodes."""

StopReason: TypeAlias = Literal["nothing_accepted"]


def stops_early(limit: int, *, episodes: int, lost: int, accepted: int) -> bool:
    """Return True if a run stops after this number of committed episodes; the `lost` ones say nothing about the data.

    The result depends only on committed episodes, not on clocks or workers. A `limit` of 0 never stops.
    """
    return limit > 0 and not accepted and (episodes - lost >= limit or episodes >= _UNJUDGED * limit)


def explain_early_stop(limit: int, stats: RunStats) -> str:
    """Return the reason for an early stop, as a clause."""
    lost = f" ({stats.lost:,} of them by their backend or their deadline)" if stats.lost else ""
    return (
        f"none of the first {stats.episodes:,} episodes gave one{lost}, so the run stopped early (early_stop {limit:,})"
    )


def window(concurrency: int, *, ahead: int = 1) -> int:
    """Return the maximum number of personas to start ahead of the first unfinished one; bounds the waiting outcomes.

    `concurrency` counts the episodes handed over to workers, `ahead` of them for each episode in flight.
    """
    return max(_AHEAD_AT_LEAST, max(_AHEAD_PER_WORKER // ahead, 2) * concurrency)


@dataclass(eq=False, kw_only=True)
class Pool:
    """Plays episodes until `n` trajectories are committed, the personas run out, or the run stops early. Run it once.

    A finished episode that is not doubtful is in the journal before its task ends, also under cancellation. It waits
    there, not curated yet, until its commit to the files; memory holds only the indices of waiting episodes. An episode
    that the budget cannot pay for (`BudgetSpent`) is dropped, and the others continue.
    """

    personas: Personas
    folder: RunWriter
    """The run folder; its configuration holds `n`, `early_stop` and the number of trajectories per episode."""
    play: PlayEpisode
    limit: EpisodeLimit
    queued: Callable[[], int] = int
    """Returns the number of started episodes that wait for a worker process."""
    may_start: Callable[[int], bool] = lambda _in_flight: True
    """Returns True if the budget pays for one more episode in addition to this number in flight."""
    has_room: Callable[[], bool] = lambda: True
    """Returns False while no episode may be started; call `Pool.wake` when that changes."""
    curate: Curate | None = None
    on_accepted: Callable[[Trajectory], None] | None = None
    """Called with each trajectory right after its commit."""
    on_progress: Callable[[Progress], None] | None = None
    surroundings: Callable[[], Surroundings] | None = None

    def __post_init__(self) -> None:
        config = self.folder.config
        self._n = config.n
        self._per_episode = config.branches * config.episodes_per_script
        self._bound: LimitingFactor | None = None
        self._changed = anyio.Event()
        self._doubtful = list[CompletedEpisode]()
        """Doubtful episodes, counted as finished. They are written once another episode shows that the settings are
        right; otherwise the next process plays them again."""
        self._scope = anyio.CancelScope()
        self._failure: Exception | None = None
        self.ran_out_after: int | None = None
        """Number of personas of the source; None until they have run out."""
        self.out_of_money = False
        """True if the run ended because the budget pays for no further episode."""

        self._began = time.monotonic()
        self._earlier = self.folder.earlier()
        self._finished = self.folder.committed.with_lines(self._earlier.waiting.values())
        """Sums over all finished episodes, committed or not."""
        self._started = self._finished_before = self._finished.episodes
        self._accepted_before = self._finished.accepted
        self._written = self.folder.committed.accepted
        """Committed trajectories; `folder.committed` also counts commits in progress."""
        self._undelivered = deque[CompletedEpisode]()
        """Appended episodes with a commit that may be incomplete; empty without `on_accepted`."""

    @property
    def reached(self) -> bool:
        """True if `n` accepted trajectories are appended."""
        return self.folder.committed.accepted >= self._n

    @property
    def stopped_early(self) -> StopReason | None:
        """Reason for an early stop, or None; depends only on committed episodes."""
        stats = self.folder.committed
        return "nothing_accepted" if self._ends_with(stats.episodes, stats.lost, stats.accepted) else None

    @property
    def progress(self) -> Progress:
        done, queued = self._finished, min(self.queued(), self._in_flight)
        return Progress(
            n=self._n,
            accepted=self._written,
            kept=done.accepted - self._written,
            started=self._started - queued,
            finished=done.episodes,
            in_flight=self._in_flight - queued,
            failed=done.failed,
            scripts_refused=done.scripts_refused,
            drafts_refused=done.drafts_refused,
            by_rule={rule: count for rule, count in done.by_rule.items() if count},
            bad_personas=self.personas.bad,
            usage=done.usage,
            cost_usd=done.cost_usd,
            elapsed=time.monotonic() - self._began,
            finished_before=self._finished_before,
            accepted_before=self._accepted_before,
            commonest_reason=done.commonest_reason,
            last_reason=done.last_reason,
            bound=self._bound,
            surroundings=self.surroundings,
        )

    def wake(self) -> None:
        """Let the feeder check again whether it may start an episode."""
        self._changed.set()

    async def run(self) -> None:
        """Play until the run ends; return at once, without an event, if `n` is reached already.

        Raises RunStopped: no episode can continue (the message names the run folder). Errors of the personas, the
        folder and the callbacks pass through.
        """
        if self.reached:
            return
        try:
            with anyio.CancelScope(shield=True):
                await self._commit_waiting()
            if not self._over:
                await self._play_all()
        except BaseException as error:
            # A full disk must not hide the cancellation or the first error.
            try:
                self._end(f"{type(error).__name__}: {error}" if isinstance(error, Exception) else "interrupted")
            except StorageError as lost:
                error.add_note(str(lost))
            raise
        early = self.stopped_early
        if early is not None:
            seen = self.folder.committed
            self.folder.log.warning(
                "stopped_early",
                why=early,
                early_stop=self.folder.config.early_stop,
                episodes=seen.episodes,
                lost=seen.lost,
                accepted=seen.accepted,
                rule=next((rule for rule, _ in seen.by_rule.most_common(1)), None),
                reason=None if seen.commonest_reason is None else seen.commonest_reason[0],
                last_reason=seen.last_reason,
            )
        self._end(early or ("budget_spent" if self.out_of_money else "personas_ran_out"))

    def _end(self, why: str) -> None:
        progress = self.progress
        self.folder.milestones.info(
            "run_ended",
            why="reached" if self.reached else why,
            accepted=progress.accepted,
            n=self._n,
            started=progress.started,
            finished=progress.finished - len(self._doubtful),
            seconds=round(progress.elapsed, 1),
        )

    async def _play_all(self) -> None:
        with self._scope:
            async with anyio.create_task_group() as group:
                await self._guarded(self._feed, group)
        if self._doubtful and self._failure is None and not self._over:
            if self._finished.episodes > len(self._doubtful):
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

    async def _guarded(self, task: Callable[[*_Given], Awaitable[None]], *arguments: *_Given) -> None:
        """Run a task of the group; the first error cancels all tasks and is raised without an exception group."""
        try:
            await task(*arguments)
        except Exception as error:  # noqa: BLE001
            self._failure = self._failure or error
            self._scope.cancel()

    # Starting episodes.

    @property
    def _in_flight(self) -> int:
        return self._started - self._finished.episodes

    async def _feed(self, group: TaskGroup) -> None:
        """Start personas on demand; read at most one persona ahead."""
        count = 0
        async for index, persona in self.personas:
            count = index + 1
            if not self._earlier.has(index, persona):
                while self._held_back(index):
                    if not self._in_flight and not self.may_start(0):
                        self.out_of_money = True
                        return
                    self._changed = anyio.Event()
                    with anyio.move_on_after(self.limit.look_again):
                        await self._changed.wait()
                self._started += 1
                self.report()
                group.start_soon(self._guarded, self._play, index, persona)
                await (
                    checkpoint()
                )  # lets episodes without waiting time, as in a rehearsal, end before the next one starts
        self._earlier.check_all_read(count)
        self.ran_out_after, self._bound = count, None

    def _held_back(self, index: int) -> bool:
        before, self._bound = self._bound, self._bound_of(index)
        if self._bound not in {before, None}:
            self.report()
        return self._bound is not None

    def _bound_of(self, index: int) -> LimitingFactor | None:
        in_flight, room = self._in_flight, self.limit.episodes()
        if in_flight >= self._wanted():
            return LimitingFactor.MISSING
        if in_flight >= room:
            return self.limit.bound(in_flight)
        if index >= self.folder.committed.episodes + window(room, ahead=self.limit.ahead):
            return LimitingFactor.EARLIER
        if not self.may_start(in_flight):
            return LimitingFactor.BUDGET
        return None if self.has_room() else LimitingFactor.READER

    def _wanted(self) -> int:
        """Return the target number of episodes in flight: the missing trajectories at the present yield, and a spare.

        The yield includes one fictitious episode with `per_episode` trajectories and is never 0. One spare for eight
        needed episodes keeps the end of a run from being a sequence of single tries. Waiting trajectories of an earlier
        process do not count: their commit comes after the next episode's.
        """
        done = self._finished
        missing = self._n - (done.accepted - sum(line.trajectories for line in self._earlier.waiting.values()))
        if missing <= 0:
            return 0
        tries_for_one = (done.episodes + 1) / (done.accepted + self._per_episode)
        return math.ceil(missing * tries_for_one) + missing // (8 * self._per_episode)

    # Ending them.

    async def _play(self, index: int, persona: Persona) -> None:
        try:
            finished = await self.play(index, persona)
        except BudgetSpent:
            self._started -= 1
            self.report()
            self.wake()
            return
        if finished.doubtful:
            self._finished.add(finished.line)
            self._doubtful.append(finished)
            self.report()
            self.wake()
            return
        # Without an await before the shield, a cancelled episode is either unfinished or in the journal.
        with anyio.CancelScope(shield=True):
            await self._finish(finished)
            await self._finish_doubtful()

    async def _finish_doubtful(self) -> None:
        while self._doubtful:
            await self._finish(self._doubtful.pop())

    async def _finish(self, finished: CompletedEpisode) -> None:
        if finished.index == self.folder.committed.episodes and not self._over:
            finished = self._curated(finished)
            await self._commit([finished])
        else:
            await self.folder.keep_waiting(finished)
        if not finished.doubtful:
            self._finished.add(finished.line)
        self.report()
        committed = self.folder.committed.episodes
        await self._commit_waiting()
        self.folder.log.info(
            "episode_finished", **finished.line.model_dump(mode="json", exclude={"persona", "violations", "wasted"})
        )
        if committed != self.folder.committed.episodes:
            self.report()
        self.wake()
        if self._over:
            self._scope.cancel()

    @property
    def _over(self) -> bool:
        return self.reached or self.stopped_early is not None

    def _ends_with(self, episodes: int, lost: int, accepted: int) -> bool:
        return stops_early(self.folder.config.early_stop, episodes=episodes, lost=lost, accepted=accepted)

    async def _commit_waiting(self) -> None:
        """Commit the waiting episodes that are next in order, until `n` is reached or the run stops early."""
        while due := self._due():
            await self._commit(due)

    def _due(self) -> list[CompletedEpisode]:
        due: list[CompletedEpisode] = []
        committed = self.folder.committed
        index, lost, accepted = committed.episodes, committed.lost, committed.accepted
        while (
            accepted < self._n
            and len(due) < _AT_ONCE
            and index in self.folder.waiting
            and not self._ends_with(index, lost, accepted)
        ):
            due.append(self._out_of_waiting(index))
            index, lost, accepted = index + 1, lost + due[-1].line.lost, accepted + due[-1].line.trajectories
        return due

    def _out_of_waiting(self, index: int) -> CompletedEpisode:
        before = self.folder.read_waiting(index)
        after = self._curated(before)
        if after is not before:
            self._finished.correct(before.line, after.line)
            if index in self._earlier.waiting:
                self._earlier.waiting[index] = after.line
        return after

    def _curated(self, finished: CompletedEpisode) -> CompletedEpisode:
        """Curate an episode; call it once, right before its commit."""
        if self.curate is None:
            return finished
        after = finished.curated(self.curate)
        if after is not finished:
            self.folder.log.info(
                "episode_curated",
                index=after.index,
                id=after.id,
                trajectories=after.line.trajectories,
                reason=after.line.reason,
            )
        return after

    async def _commit(self, episodes: list[CompletedEpisode]) -> None:
        if self.on_accepted is not None:
            self._undelivered.extend(episodes)
        await self.folder.append(*episodes)
        self._written += sum(finished.line.trajectories for finished in episodes)
        # Commits complete in order, but the tasks that wait for them may resume in any order.
        while self._undelivered and self._undelivered[0].index <= episodes[-1].index:
            for trajectory in self._undelivered.popleft().trajectories:
                if self.on_accepted is not None:
                    self.on_accepted(Trajectory.from_json(trajectory))

    def report(self) -> None:
        if self.on_progress is not None:
            self.on_progress(self.progress)

    def _whereabouts(self) -> str:
        return (
            f"The run stopped with {self._finished.episodes - len(self._doubtful):,} episodes finished and {self._written:,} of {self._n:,} "
            f"trajectories accepted; they are in {str(self.folder.path)!r}."
        )
