"""Engine of a run: a feeder starts episodes, and outcomes are committed in the order of the personas.

An episode is a function; the pool knows no roles or models. The files depend neither on the number of episodes in flight
nor on their speed: commits and curation follow the order of the personas, until `n` is reached or the run stops early.
"""

import math
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Literal, TypeAlias

import anyio
from anyio.abc import TaskGroup
from anyio.lowlevel import checkpoint

from refinesynth.errors import BudgetSpent, RunStopped, StorageError
from refinesynth.outcome import EpisodeOutcome
from refinesynth.personas import Personas
from refinesynth.run import CompletedEpisode, RunStats, RunWriter
from refinesynth.synthesis.concurrency import EpisodeLimit
from refinesynth.synthesis.progress import LimitingFactor, Progress, Surroundings
from refinesynth.trajectory import Persona

PlayEpisode = Callable[[int, Persona], Awaitable[CompletedEpisode]]
"""Plays the persona at a position; raises only errors that end the run, `BudgetSpent` and cancellation."""

Curate = Callable[[EpisodeOutcome], EpisodeOutcome]
"""Curates an outcome in the order of the commits: it may move trajectories to the refused drafts."""

_WINDOW_FACTOR = 8
_MIN_WINDOW = 64
_MAX_COMMIT = 64
"""Maximum number of episodes in one commit; other tasks run between commits."""
_LOST_FACTOR = 4
"""Multiple of the limit after which lost episodes count too, as a deadline may be too short for all episodes."""

StopReason: TypeAlias = Literal["nothing_accepted"]


def stops_early(limit: int, *, episodes: int, lost: int, accepted: int) -> bool:
    """Return True if a run stops after this number of committed episodes; the `lost` ones say nothing about the data.

    The result depends only on committed episodes, not on clocks or workers. A `limit` of 0 never stops.
    """
    return limit > 0 and not accepted and (episodes - lost >= limit or episodes >= _LOST_FACTOR * limit)


def explain_early_stop(limit: int, stats: RunStats) -> str:
    lost = f" ({stats.lost:,} of them by their backend or their deadline)" if stats.lost else ""
    return (
        f"none of the first {stats.episodes:,} episodes gave one{lost}, so the run stopped early (early_stop {limit:,})"
    )


def window(concurrency: int, *, prefetch: int = 1) -> int:
    """Return the maximum number of personas to start ahead of the first unfinished one; bounds the waiting outcomes.

    `concurrency` counts the episodes handed over to workers, `prefetch` of them for each episode in flight.
    """
    return max(_MIN_WINDOW, max(_WINDOW_FACTOR // prefetch, 2) * concurrency)


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
    curate: Curate | None = None
    on_progress: Callable[[Progress], None] | None = None
    surroundings: Callable[[], Surroundings] | None = None

    def __post_init__(self) -> None:
        config = self.folder.config
        self._n = config.n
        self._per_episode = config.branches * config.episodes_per_script
        self._limiting_factor: LimitingFactor | None = None
        self._changed = anyio.Event()
        self._doubtful = list[CompletedEpisode]()
        """Doubtful episodes, counted as finished. They are written once another episode shows that the settings are
        right; otherwise the next process plays them again."""
        self._cancel_scope = anyio.CancelScope()
        self.personas_read: int | None = None
        """Number of personas of the source; None until they have run out."""
        self.budget_spent = False
        """True once the budget has not paid for an episode."""

        self._start_time = time.monotonic()
        self._earlier = self.folder.earlier()
        self._finished = self.folder.committed.with_lines(self._earlier.waiting.values())
        """Sums over all finished episodes, committed or not."""
        self._started_count = self._finished_before = self._finished.episodes
        self._accepted_before = self._finished.accepted
        self._written_count = self.folder.committed.accepted
        """Committed trajectories; `folder.committed` also counts commits in progress."""

    @property
    def reached(self) -> bool:
        """True if `n` accepted trajectories are appended."""
        return self.folder.committed.accepted >= self._n

    @property
    def stopped_early(self) -> StopReason | None:
        """Reason for an early stop, or None; depends only on committed episodes."""
        stats = self.folder.committed
        return "nothing_accepted" if self._stops_after(stats.episodes, stats.lost, stats.accepted) else None

    @property
    def progress(self) -> Progress:
        totals, queued = self._finished, min(self.queued(), self._in_flight)
        return Progress(
            n=self._n,
            accepted=self._written_count,
            kept=totals.accepted - self._written_count,
            started=self._started_count - queued,
            finished=totals.episodes,
            in_flight=self._in_flight - queued,
            failed=totals.failed,
            scripts_refused=totals.scripts_refused,
            drafts_refused=totals.drafts_refused,
            by_rule={rule: count for rule, count in totals.by_rule.items() if count},
            bad_personas=self.personas.bad,
            usage=totals.usage,
            cost_usd=totals.cost_usd,
            elapsed=time.monotonic() - self._start_time,
            finished_before=self._finished_before,
            accepted_before=self._accepted_before,
            commonest_reason=totals.commonest_reason,
            last_reason=totals.last_reason,
            bound=self._limiting_factor,
            surroundings=self.surroundings,
        )

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
            if not self._is_over:
                await self._play_all()
        except BaseException as error:
            # A full disk must not hide the cancellation or the first error.
            try:
                self._log_end(f"{type(error).__name__}: {error}" if isinstance(error, Exception) else "interrupted")
            except StorageError as storage_error:
                error.add_note(str(storage_error))
            raise
        stop_reason = self.stopped_early
        if stop_reason is not None:
            stats = self.folder.committed
            self.folder.log.warning(
                "stopped_early",
                why=stop_reason,
                early_stop=self.folder.config.early_stop,
                episodes=stats.episodes,
                lost=stats.lost,
                accepted=stats.accepted,
                rule=next((rule for rule, _ in stats.by_rule.most_common(1)), None),
                reason=None if stats.commonest_reason is None else stats.commonest_reason[0],
                last_reason=stats.last_reason,
            )
        self._log_end(stop_reason or ("budget_spent" if self.budget_spent else "personas_ran_out"))

    def _log_end(self, reason: str) -> None:
        progress = self.progress
        self.folder.milestones.info(
            "run_ended",
            why="reached" if self.reached else reason,
            accepted=progress.accepted,
            n=self._n,
            started=progress.started,
            finished=progress.finished - len(self._doubtful),
            seconds=round(progress.elapsed, 1),
        )

    async def _play_all(self) -> None:
        failure: Exception | None = None
        try:
            with self._cancel_scope:
                async with anyio.create_task_group() as group:
                    await self._feed(group)
        except ExceptionGroup as errors:
            # The first one: it cancelled all other tasks.
            failure = errors.exceptions[0]
        if self._doubtful and failure is None and not self._is_over:
            if self._finished.episodes > len(self._doubtful):
                await self._finish_doubtful()
            else:
                failure = RunStopped(f"{self._doubtful[0].line.reason}; so it was with all that was asked.")
        if isinstance(failure, RunStopped):
            raise RunStopped(
                f"{failure} {self._describe_progress()} Fix the cause, then ask for the same again: the run is resumed."
            ) from failure
        if failure is not None:
            failure.add_note(self._describe_progress())
            raise failure

    # Starting episodes.

    @property
    def _in_flight(self) -> int:
        return self._started_count - self._finished.episodes

    async def _feed(self, group: TaskGroup) -> None:
        """Start personas on demand; read at most one persona ahead."""
        count = 0
        async for index, persona in self.personas:
            count = index + 1
            if not self._earlier.has(index, persona):
                while self._must_wait(index):
                    if not self._in_flight and not self.may_start(0):
                        self.budget_spent = True
                        return
                    if not self._in_flight and self._limiting_factor is LimitingFactor.EARLIER and self._doubtful:
                        # They fill the window, and nothing that could show that the settings are right is in flight.
                        reason, count = self._doubtful[-1].line.reason, len(self._doubtful)
                        raise RunStopped(f"{reason}; so it was with the last {count:,} episodes.")
                    self._changed = anyio.Event()
                    with anyio.move_on_after(self.limit.recheck_s):
                        await self._changed.wait()
                self._started_count += 1
                self.report()
                group.start_soon(self._play, index, persona)
                # Lets episodes without waiting time, as in a rehearsal, end before the next one starts.
                await checkpoint()
        self._earlier.check_all_read(count)
        self.personas_read, self._limiting_factor = count, None

    def _must_wait(self, index: int) -> bool:
        previous, self._limiting_factor = self._limiting_factor, self._find_limiting_factor(index)
        if self._limiting_factor not in {previous, None}:
            self.report()
        return self._limiting_factor is not None

    def _find_limiting_factor(self, index: int) -> LimitingFactor | None:
        in_flight, limit = self._in_flight, self.limit.current()
        if in_flight >= self._target_in_flight():
            return LimitingFactor.MISSING
        if in_flight >= limit:
            return self.limit.limiting_factor(in_flight)
        if index >= self.folder.committed.episodes + window(limit, prefetch=self.limit.prefetch):
            return LimitingFactor.EARLIER
        if not self.may_start(in_flight):
            return LimitingFactor.BUDGET
        return None

    def _target_in_flight(self) -> int:
        """Return the target number of episodes in flight: the missing trajectories at the present yield, and a spare.

        The yield includes one fictitious episode with `per_episode` trajectories and is never 0. One spare for eight
        needed episodes keeps the end of a run from being a sequence of single tries. Waiting trajectories of an earlier
        process do not count: their commit comes after the next episode's.
        """
        totals = self._finished
        missing = self._n - (totals.accepted - sum(line.trajectories for line in self._earlier.waiting.values()))
        if missing <= 0:
            return 0
        per_trajectory = (totals.episodes + 1) / (totals.accepted + self._per_episode)
        return math.ceil(missing * per_trajectory) + missing // (8 * self._per_episode)

    # Ending them.

    async def _play(self, index: int, persona: Persona) -> None:
        try:
            finished = await self.play(index, persona)
        except BudgetSpent:
            self.budget_spent = True
            self._started_count -= 1
            self.report()
            self._changed.set()
            return
        if finished.doubtful:
            self._finished.add(finished.line)
            self._doubtful.append(finished)
            self.report()
            self._changed.set()
            return
        # Without an await before the shield, a cancelled episode is either unfinished or in the journal.
        with anyio.CancelScope(shield=True):
            await self._finish_doubtful()
            await self._finish(finished)

    async def _finish_doubtful(self) -> None:
        # Without those that end meanwhile: nothing shows that the settings are still right.
        doubtful, self._doubtful = self._doubtful, []
        for finished in doubtful:
            await self._finish(finished)

    async def _finish(self, finished: CompletedEpisode) -> None:
        if finished.index == self.folder.committed.episodes and not self._is_over:
            finished = self._curated(finished)
            await self._commit([finished])
        else:
            await self.folder.keep_waiting(finished)
        if not finished.doubtful:
            self._finished.add(finished.line)
        self.report()
        committed_before = self.folder.committed.episodes
        await self._commit_waiting()
        self.folder.log.info(
            "episode_finished", **finished.line.model_dump(mode="json", exclude={"persona", "violations", "wasted"})
        )
        if committed_before != self.folder.committed.episodes:
            self.report()
        self._changed.set()
        if self._is_over:
            self._cancel_scope.cancel()

    @property
    def _is_over(self) -> bool:
        return self.reached or self.stopped_early is not None

    def _stops_after(self, episodes: int, lost: int, accepted: int) -> bool:
        return stops_early(self.folder.config.early_stop, episodes=episodes, lost=lost, accepted=accepted)

    async def _commit_waiting(self) -> None:
        """Commit the waiting episodes that are next in order, until `n` is reached or the run stops early."""
        while episodes := self._next_waiting():
            await self._commit(episodes)

    def _next_waiting(self) -> list[CompletedEpisode]:
        episodes: list[CompletedEpisode] = []
        committed = self.folder.committed
        index, lost, accepted = committed.episodes, committed.lost, committed.accepted
        while (
            accepted < self._n
            and len(episodes) < _MAX_COMMIT
            and index in self.folder.waiting
            and not self._stops_after(index, lost, accepted)
        ):
            episodes.append(self._take_waiting(index))
            index, lost, accepted = index + 1, lost + episodes[-1].line.lost, accepted + episodes[-1].line.trajectories
        return episodes

    def _take_waiting(self, index: int) -> CompletedEpisode:
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
                id=after.line.id,
                trajectories=after.line.trajectories,
                reason=after.line.reason,
            )
        return after

    async def _commit(self, episodes: list[CompletedEpisode]) -> None:
        await self.folder.append(*episodes)
        self._written_count += sum(finished.line.trajectories for finished in episodes)

    def report(self) -> None:
        if self.on_progress is not None:
            self.on_progress(self.progress)

    def _describe_progress(self) -> str:
        return (
            f"The run stopped with {self._finished.episodes - len(self._doubtful):,} episodes finished and {self._written_count:,} of {self._n:,} "
            f"trajectories accepted; they are in {str(self.folder.path)!r}."
        )
