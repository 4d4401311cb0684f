"""How fast a run goes, and when it will be done."""

from collections import deque

from refinesynth.synthesis.progress import Progress

WINDOW = 60.0
"""Seconds that the rate looks back over: long enough for slow models, short enough to notice a stall."""


class Pace:
    """Watches the moments of one run. Time is the run's own (`Progress.elapsed`); no clock is read."""

    def __init__(self) -> None:
        self._seen: deque[tuple[float, int]] = deque()
        self._latest: Progress | None = None

    def observe(self, moment: Progress) -> None:
        """Take note of a moment; moments come in order."""
        if not self._seen:
            self._seen.append((0.0, moment.accepted_before))
        self._seen.append((moment.elapsed, moment.accepted))
        self._latest = moment
        # One moment before the window stays, so that the rate spans all of the window.
        while len(self._seen) > 2 and self._seen[1][0] < moment.elapsed - WINDOW:  # noqa: PLR2004
            self._seen.popleft()

    def rate(self, now: float) -> float:
        """Accepted trajectories per second over the last `WINDOW` seconds before `now` (seconds of the run)."""
        if not self._seen:
            return 0.0
        since, accepted = self._seen[0]
        return (self._seen[-1][1] - accepted) / (now - since) if now > since else 0.0

    def remaining(self, now: float) -> float | None:
        """Seconds until `n` at this rate; None while nothing is accepted."""
        rate = self.rate(now)
        if self._latest is None or rate <= 0:
            return None
        return max(0, self._latest.n - self._latest.accepted) / rate
