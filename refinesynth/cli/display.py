"""Display of a run in progress and its cost: redrawn on a terminal, log lines elsewhere."""

import time
from collections import deque
from collections.abc import Callable

from rich.console import Console, Group, RenderableType
from rich.text import Text

from refinesynth.cli.terminal import Screen, styled
from refinesynth.synthesis.progress import Progress, Surroundings
from refinesynth.text.formatting import compact, counted, dollars, duration, one_line, per_time

LOG_EVERY = 10.0
"""Seconds between the first log lines without a terminal."""
_GROWTH = 8
"""Divisor of the elapsed time that gives the later intervals between log lines: an eighth."""
RATE_WINDOW = 60.0
"""Window of the rate, in seconds."""
_WIDTH = 200


class Display(Screen):
    """Progress of a run: redrawn on a terminal that can, else log lines."""

    def __init__(self, console: Console) -> None:
        self._pace = Pace()
        self._offset = 0.0
        """Elapsed seconds of the run minus the monotonic clock, at the latest update."""
        self._latest: Progress | None = None
        self._logged: Progress | None = None
        self._next_log_at = 0.0
        super().__init__(console, self._draw)

    def update(self, progress: Progress) -> None:
        """Store a new state of the run."""
        self._latest = progress
        self._offset = progress.elapsed - time.monotonic()
        self._pace.observe(progress)

    def tick(self, *, last: bool = False) -> None:
        """Log a line if the console cannot redraw; called every `LOG_EVERY` seconds. The interval between lines grows with the
        elapsed time.
        """
        now = self._now()
        if self._latest is None or self.can_redraw or (now < self._next_log_at and not last):
            return
        self._logged = self._latest
        self._next_log_at = now + max(LOG_EVERY, now / _GROWTH)
        self.say("; ".join(status_clauses(self._latest, self._pace, now)))

    def close(self) -> None:
        super().close()
        if self._logged is not self._latest:
            self.tick(last=True)

    def _now(self) -> float:
        return time.monotonic() + self._offset

    def _draw(self) -> RenderableType:
        if self._latest is None:
            return Text("starting", style="dim")
        head, *others = status_clauses(self._latest, self._pace, self._now())
        return Group(styled(head, "bold"), *map(styled, others))


class Pace:
    """Rate of accepted trajectories. Times are seconds of the run (`Progress.elapsed`)."""

    def __init__(self) -> None:
        self._samples: deque[tuple[float, int]] = deque()
        self._latest: Progress | None = None

    def observe(self, progress: Progress) -> None:
        if not self._samples:
            self._samples.append((0.0, progress.accepted_before))
        self._samples.append((progress.elapsed, progress.gained))
        self._latest = progress
        # One observation before the window stays; otherwise the rate would not cover the whole window.
        while len(self._samples) > 2 and self._samples[1][0] < progress.elapsed - RATE_WINDOW:  # noqa: PLR2004
            self._samples.popleft()

    def rate(self, now: float) -> float:
        """Accepted trajectories per second over the last `RATE_WINDOW` seconds before `now` (seconds of the run)."""
        if not self._samples:
            return 0.0
        start, accepted = self._samples[0]
        return (self._samples[-1][1] - accepted) / (now - start) if now > start else 0.0

    def remaining(self, now: float) -> float | None:
        """Seconds until `n` trajectories at the current rate; None while the rate is 0."""
        rate = self.rate(now)
        if self._latest is None or rate <= 0:
            return None
        return max(0, self._latest.n - self._latest.gained) / rate


def status_clauses(progress: Progress, pace: Pace, now: float) -> list[str]:
    """State of a run as clauses; the first has the time and the accepted trajectories."""
    state = progress.look()
    bound = f" (bound by {progress.bound})" if progress.bound and progress.in_flight else ""
    kept = f", {progress.kept:,} kept for later" if progress.kept else ""
    return [
        f"{duration(now)} {progress.accepted:,}/{progress.n:,} accepted",
        _speed(pace, now),
        f"{progress.in_flight:,} in flight{bound}, {progress.failed:,} gave none{kept}",
        f"refused: {counted(progress.scripts_refused, 'script')}, {counted(progress.drafts_refused, 'draft')}",
        tokens(progress, state),
        f"cost {cost(progress, state)}",
        *failure_reasons(progress.commonest_reason, progress.last_reason, failed=progress.failed),
        *(one_line(trouble, size=200) for trouble in state.troubles),
        *([f"{counted(progress.bad_personas, 'row')} skipped: no persona in them"] if progress.bad_personas else []),
    ]


def _speed(pace: Pace, now: float) -> str:
    remaining = pace.remaining(now)
    if remaining is None:
        return "no pace yet"
    return f"{per_time(pace.rate(now))}, about {duration(remaining)} left" if remaining else per_time(pace.rate(now))


def failure_reasons(commonest: tuple[str, int] | None, last: str | None, *, failed: int) -> list[str]:
    """The most frequent and the latest reason of episodes without a trajectory."""
    texts: list[str] = []
    if commonest is not None:
        reason, count = commonest
        texts.append(f"{count:,} of {counted(failed, 'episode')} without a trajectory: {one_line(reason, size=_WIDTH)}")
    if last is not None and (commonest is None or last != commonest[0]):
        texts.append(f"the last: {one_line(last, size=_WIDTH)}")
    return texts


def cost(progress: Progress, state: Surroundings) -> str:
    """Cost in dollars: `12.30 USD of 50.00 USD, 0.0123 USD each, about 39.40 USD in all`."""
    if state.paid.cost_usd is None:
        return "unknown"
    limit = None if state.budget is None else state.budget.usd
    text = dollars(state.paid.cost_usd) + ("" if limit is None else f" of {dollars(limit)}")
    mean = _per_trajectory(progress, progress.cost_usd)
    if not mean:
        return text
    text += f", {dollars(mean)} each"
    if progress.gained < progress.n:
        text += _forecast(progress, paid=state.paid.cost_usd, mean=mean, limit=limit, show=dollars)
    return text


def tokens(progress: Progress, state: Surroundings) -> str:
    """Tokens: `1.23M in (20% cached), 203k out, 812 requests, 3 retries`, then the use of a token budget."""
    usage = state.paid.usage
    cached = f" ({usage.cached_tokens / usage.input_tokens:.0%} cached)" if usage.cached_tokens else ""
    text = (
        f"{compact(usage.input_tokens)} in{cached}, {compact(usage.output_tokens)} out, "
        f"{counted(usage.requests, 'request')}"
    )
    if state.retries:
        text += f", {counted(state.retries, 'retry', 'retries')}"
    limit = None if state.budget is None else state.budget.tokens
    if limit is None:
        return text
    text += f"; {compact(state.paid.tokens)} of {compact(limit)}"
    mean = _per_trajectory(progress, progress.usage.input_tokens + progress.usage.output_tokens)
    if mean and progress.gained < progress.n:
        text += _forecast(progress, paid=state.paid.tokens, mean=mean, limit=limit, show=compact)
    return text


def _per_trajectory(progress: Progress, spent: float | None) -> float | None:
    """Cost per trajectory over finished episodes; episodes in flight have partial costs and no trajectory yet."""
    return None if spent is None or not progress.gained else spent / progress.gained


def _forecast(run: Progress, *, paid: float, mean: float, limit: float | None, show: Callable[[float], str]) -> str:
    total = paid + (run.n - run.gained) * mean
    if limit is not None and total > limit:
        affordable = run.gained + int(max(0.0, limit - paid) / mean)
        return f", about {affordable:,} of {run.n:,} on this budget"
    return f", about {show(total)} in all"
