"""Outcomes are committed in the order of the personas, each whole, up to the one with which the run has enough."""

from collections import deque
from collections.abc import Callable
from functools import reduce

from refinesynth.outcome import EpisodeOutcome
from refinesynth.run import EpisodeLine, Finished, RunWriter
from refinesynth.run.second_tries import superseded
from refinesynth.synthesis.patience import Patience, Why, Yield
from refinesynth.synthesis.tally import Tally
from refinesynth.trajectory import Trajectory

Curate = Callable[[EpisodeOutcome], EpisodeOutcome]
"""Has the last word on each outcome with a trajectory, in the order in which they are committed: it may move
trajectories to what is refused."""

_AT_ONCE = 64
"""Episodes that are committed in one go, before other tasks have their turn."""


class Committing:
    """Commits finished episodes in their turn; those that are not in it wait in the journal."""

    def __init__(
        self,
        folder: RunWriter,
        *,
        n: int,
        patience: Patience,
        curate: Curate | None,
        on_accepted: Callable[[Trajectory], None] | None,
        per_episode: int,
    ) -> None:
        """See `Pool`."""
        self._folder = folder
        self._n = n
        self._patience = patience
        self._curate = curate
        self._on_accepted = on_accepted
        self._again = superseded(folder.rounds)
        self.before = folder.committed.episodes
        """Episodes that earlier processes have committed."""
        self.waiting: dict[int, EpisodeLine] = {line.index: line for line in folder.waiting_lines()}
        """Those that earlier processes have played, as far as their personas were not read yet."""
        self.tally = Tally(n=n, committed=folder.committed, waiting=self.waiting.values(), per_episode=per_episode)
        self.seen = Yield.of(folder.committed, tried_again=folder.tried_again())
        """What is committed has given."""
        self.written = folder.committed.accepted
        """Accepted trajectories that are committed; `folder.committed` is ahead of it by what is on its way."""
        self._undelivered = deque[Finished]()
        """Appended, and not known to be committed yet; empty if trajectories are not taken one by one."""

    @property
    def reached(self) -> bool:
        """Whether `n` accepted trajectories are written."""
        return self._folder.committed.accepted >= self._n

    @property
    def stopped_early(self) -> Why | None:
        """Why it does not go on although it could; None if it does. A matter of what is committed alone."""
        return self._patience.runs_out(self.seen)

    @property
    def over(self) -> bool:
        """Whether nothing more is to be committed."""
        return self.reached or self.stopped_early is not None

    async def take(self, finished: Finished) -> Finished:
        """Commit an episode that is in its turn, or let it wait; it, as it has become.

        Raises:
            StorageError: It cannot be written.
        """
        if finished.index == self._folder.committed.episodes and not self.over:
            finished = self._curated(finished)
            await self._commit([finished])
        else:
            await self._folder.keep_waiting(finished)
        return finished

    async def commit_waiting(self) -> None:
        """Commit every waiting episode that is in its turn, until `n` are accepted or patience runs out.

        Raises:
            StorageError: One cannot be written.
        """
        while due := self._due():
            await self._commit(due)

    def _due(self) -> list[Finished]:
        seen, due = self.seen, list[Finished]()
        while (
            seen.accepted < self._n
            and len(due) < _AT_ONCE
            and (index := self._folder.committed.episodes + len(due)) in self._folder.waiting
            and self._patience.runs_out(seen) is None
        ):
            due.append(self._out_of_waiting(index))
            seen = self._seen_with(seen, due[-1])
        return due

    def _seen_with(self, seen: Yield, finished: Finished) -> Yield:
        return seen.and_of(finished.line, again=finished.index in self._again)

    def _out_of_waiting(self, index: int) -> Finished:
        """An episode that waited and is committed next."""
        before = self._folder.read_waiting(index)
        after = self._curated(before)
        if after is not before:
            ahead = index in self.waiting
            self.tally.correct(before.line, after.line, ahead=ahead)
            if ahead:
                self.waiting[index] = after.line
        return after

    def _curated(self, finished: Finished) -> Finished:
        """To be called once for each episode, when it is certain to be the next that is committed."""
        if self._curate is None:
            return finished
        after = finished.curated(self._curate)
        if after is not finished:
            self._folder.log.info(
                "episode_curated",
                index=after.index,
                id=after.id,
                trajectories=after.line.trajectories,
                reason=after.line.reason,
            )
        return after

    async def _commit(self, episodes: list[Finished]) -> None:
        if self._on_accepted is not None:
            self._undelivered.extend(episodes)
        self.seen = reduce(self._seen_with, episodes, self.seen)
        await self._folder.append(*episodes)
        self.written += sum(finished.line.trajectories for finished in episodes)
        # Commits complete in their order, but the tasks that wait for them may resume in any.
        while self._undelivered and self._undelivered[0].index <= episodes[-1].index:
            for trajectory in self._undelivered.popleft().trajectories:
                if self._on_accepted is not None:
                    self._on_accepted(Trajectory.from_json(trajectory))
