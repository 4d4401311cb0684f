"""The counts of a run that is going on."""

import math
import time
from collections.abc import Callable, Iterable

from refinesynth.run import EpisodeLine, Totals
from refinesynth.synthesis.progress import Progress, Surroundings


class Tally:
    """Counts what was started and what is finished, and from that how many episodes may be in flight."""

    def __init__(self, *, n: int, committed: Totals, waiting: Iterable[EpisodeLine] = ()) -> None:
        """Begin from what an earlier process has finished; of that, `waiting` is not committed."""
        self._n = n
        self._finished = committed.model_copy(deep=True)
        self._began = time.monotonic()
        self._ahead = 0
        """Accepted episodes of an earlier process that the feeder has not come to yet."""
        for line in waiting:
            self._finished.add(line)
            self._ahead += line.accepted
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
        self._ahead -= line.accepted

    def wanted(self) -> int:
        """How many episodes should be in flight: enough for what is missing, at the yield so far, and a few to spare.

        The yield starts at 1 and is what was seen, one imagined success included, so that it is never 0. One more for
        every eight that are needed keeps the end of a run from being a queue of single tries. Accepted episodes that come
        after the one that is to be started do not count: they cannot be committed before it.
        """
        missing = self._n - (self._finished.accepted - self._ahead)
        if missing <= 0:
            return 0
        tries_for_one = (self._finished.episodes + 1) / (self._finished.accepted + 1)
        return math.ceil(missing * tries_for_one) + missing // 8

    def progress(
        self, *, written: int, bad_personas: int, surroundings: Callable[[], Surroundings] | None = None
    ) -> Progress:
        """The counts at this moment."""
        done = self._finished
        return Progress(
            n=self._n,
            accepted=done.accepted,
            written=written,
            started=self.started,
            finished=done.episodes,
            in_flight=self.in_flight,
            failed=done.episodes - done.accepted,
            scripts_refused=done.scripts_refused,
            drafts_refused=done.drafts_refused,
            by_rule=dict(done.by_rule),
            bad_personas=bad_personas,
            usage=done.usage,
            cost_usd=done.cost_usd,
            elapsed=time.monotonic() - self._began,
            finished_before=self._before,
            accepted_before=self._accepted_before,
            surroundings=surroundings,
        )
