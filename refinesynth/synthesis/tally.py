"""The counts of a run that is going on."""

import math
import time
from collections.abc import Callable, Iterable

from refinesynth.run import EpisodeLine, Totals
from refinesynth.synthesis.progress import Bound, Progress, Surroundings


class Tally:
    """Counts what was started and what is finished, and from that how many episodes may be in flight."""

    def __init__(self, *, n: int, committed: Totals, waiting: Iterable[EpisodeLine] = (), per_episode: int = 1) -> None:
        """Begin from what an earlier process has finished; of that, `waiting` is not committed.

        An episode that goes well gives `per_episode` trajectories.
        """
        self._n = n
        self._per_episode = per_episode
        self._finished = committed.model_copy(deep=True)
        self._began = time.monotonic()
        self._ahead = 0
        """Trajectories of an earlier process's episodes that the feeder has not come to yet."""
        for line in waiting:
            self._finished.add(line)
            self._ahead += line.trajectories
        self.started = self._before = self._finished.episodes
        self._accepted_before = self._finished.accepted

    @property
    def in_flight(self) -> int:
        """Episodes that are being played."""
        return self.started - self._finished.episodes

    def finish(self, line: EpisodeLine) -> None:
        """Count an episode that has come to an end."""
        self._finished.add(line)

    def put_back(self) -> None:
        """An episode was broken off, as if it had not been started."""
        self.started -= 1

    def pass_by(self, line: EpisodeLine) -> None:
        """The feeder has come to one of the episodes that were waiting."""
        self._ahead -= line.trajectories

    def correct(self, before: EpisodeLine, after: EpisodeLine, *, ahead: bool) -> None:
        """An episode that was counted as `before` has become `after`; `ahead` if the feeder has not come to it yet."""
        done = self._finished
        done.accepted += after.trajectories - before.trajectories
        done.fruitful += after.accepted - before.accepted
        done.scripts_refused += after.scripts_refused - before.scripts_refused
        done.drafts_refused += after.drafts_refused - before.drafts_refused
        done.by_rule.update(after.by_rule)
        done.by_rule.subtract(before.by_rule)
        if before.accepted and not after.accepted:
            done.note(after.reason)
        if ahead:
            self._ahead += after.trajectories - before.trajectories

    def wanted(self) -> int:
        """How many episodes should be in flight: enough for what is missing, at the yield so far, and a few to spare.

        The yield starts at `per_episode` and is what was seen, one imagined success included, so that it is never 0.
        One more for every eight that are needed keeps the end of a run from being a queue of single tries. Trajectories
        of episodes that come after the one that is to be started do not count: they cannot be committed before it.
        """
        missing = self._n - (self._finished.accepted - self._ahead)
        if missing <= 0:
            return 0
        tries_for_one = (self._finished.episodes + 1) / (self._finished.accepted + self._per_episode)
        return math.ceil(missing * tries_for_one) + missing // (8 * self._per_episode)

    def progress(
        self,
        *,
        written: int,
        bad_personas: int,
        bound: Bound | None = None,
        surroundings: Callable[[], Surroundings] | None = None,
    ) -> Progress:
        """The counts at this moment."""
        done = self._finished
        return Progress(
            n=self._n,
            accepted=written,
            kept=done.accepted - written,
            started=self.started,
            finished=done.episodes,
            in_flight=self.in_flight,
            failed=done.episodes - done.fruitful,
            scripts_refused=done.scripts_refused,
            drafts_refused=done.drafts_refused,
            by_rule={rule: count for rule, count in done.by_rule.items() if count},
            bad_personas=bad_personas,
            usage=done.usage,
            cost_usd=done.cost_usd,
            elapsed=time.monotonic() - self._began,
            finished_before=self._before,
            accepted_before=self._accepted_before,
            commonest_reason=done.commonest_reason,
            last_reason=done.last_reason,
            bound=bound,
            surroundings=surroundings,
        )
