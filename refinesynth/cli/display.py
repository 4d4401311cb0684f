"""What a run shows while it goes on: a board that is redrawn on a terminal, log lines everywhere else."""

import time
from collections import deque
from collections.abc import Callable, Mapping

from rich.console import Console, Group, RenderableType
from rich.text import Text

from refinesynth.cli import bill
from refinesynth.cli.reasons import reasons
from refinesynth.cli.screen import Screen, bar
from refinesynth.cli.terminal import labelled, styled
from refinesynth.synthesis.progress import Progress
from refinesynth.text.figures import counted, duration, per_time
from refinesynth.text.printable import one_line

LOG_EVERY = 10.0
"""Seconds between log lines where there is no terminal."""

WINDOW = 60.0
"""Seconds that the rate looks back over: long enough for slow models, short enough to notice a stall."""

_RULES_SHOWN = 6
"""Rules that the board lists before the rest is summed up."""


class Display:
    """Shows a run's progress: a board on a terminal that can redraw, so that the clock moves while the models think;
    else log lines.
    """

    def __init__(self, console: Console) -> None:
        self._pace = Pace()
        self._clock = _Clock()
        self._latest: Progress | None = None
        self._logged: Progress | None = None
        self._screen = Screen(console, self._draw)

    def open(self) -> None:
        """Begin."""
        self._screen.open()

    def update(self, moment: Progress) -> None:
        """Take a new moment; cheap, called for every one."""
        self._latest = moment
        self._clock.set(moment.elapsed)
        self._pace.observe(moment)

    def tick(self) -> None:
        """Called about every `LOG_EVERY` seconds, whether anything happened or not."""
        if self._latest is not None and not self._screen.redraws:
            self._logged = self._latest
            self.say(in_a_line(self._latest, self._pace, self._clock.now()))

    def say(self, text: str) -> None:
        """Show a remark once."""
        self._screen.say(text)

    def close(self) -> None:
        """End; the last moment stays visible."""
        self._screen.close()
        if self._logged is not self._latest:
            self.tick()

    def _draw(self) -> RenderableType:
        if self._latest is None:
            return Text("starting", style="dim")
        return board(self._latest, self._pace, self._clock.now())


class Pace:
    """Watches the moments of one run. Time is the run's own (`Progress.elapsed`); no clock is read."""

    def __init__(self) -> None:
        self._seen: deque[tuple[float, int]] = deque()
        self._latest: Progress | None = None

    def observe(self, moment: Progress) -> None:
        """Take note of a moment; moments come in order."""
        if not self._seen:
            self._seen.append((0.0, moment.accepted_before))
        self._seen.append((moment.elapsed, moment.gained))
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
        return max(0, self._latest.n - self._latest.gained) / rate


class _Clock:
    """Seconds of the run between two moments."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._offset = 0.0

    def set(self, elapsed: float) -> None:
        self._offset = elapsed - self._clock()

    def now(self) -> float:
        return self._clock() + self._offset


def in_a_line(moment: Progress, pace: Pace, now: float) -> str:
    """A moment as one log line."""
    around = moment.look()
    bound = f" (bound by {moment.bound})" if moment.bound and moment.in_flight else ""
    return "; ".join(
        [
            f"{duration(now)} {_accepted(moment)} accepted",
            f"{_speed(pace, now)}",
            f"{moment.in_flight:,} in flight{bound}, {moment.failed:,} gave none{_kept(moment, ', ')}",
            f"refused: {counted(moment.scripts_refused, 'script')}, {counted(moment.drafts_refused, 'draft')}",
            f"{bill.tokens(moment, around)}",
            f"cost {bill.cost(moment, around)}",
            *reasons(moment.commonest_reason, moment.last_reason, failed=moment.failed),
            *(one_line(trouble, most=200) for trouble in around.troubles),
        ]
    )


def board(moment: Progress, pace: Pace, now: float) -> RenderableType:
    """A moment as a few lines that fit 80 columns."""
    around = moment.look()
    accepted = Text(_accepted(moment), style="bold green" if moment.accepted >= moment.n else "bold")
    top = bar("accepted", moment.accepted, moment.n, accepted, Text(f"{duration(now)}", style="dim"))
    facts = labelled()
    facts.add_row("pace", _speed(pace, now))
    facts.add_row(
        "episodes",
        f"{moment.in_flight:,} in flight · {moment.finished:,} finished · {moment.failed:,} without a trajectory"
        f"{_kept(moment, ' · ')}",
    )
    if moment.bound and moment.in_flight:
        facts.add_row("bound by", moment.bound)
    facts.add_row("refused", f"{counted(moment.scripts_refused, 'script')} · {counted(moment.drafts_refused, 'draft')}")
    if moment.by_rule:
        facts.add_row("by rule", styled(_rules(moment.by_rule)))
    for reason in reasons(moment.commonest_reason, moment.last_reason, failed=moment.failed):
        facts.add_row("why none", styled(reason))
    facts.add_row("tokens", bill.tokens(moment, around))
    facts.add_row("cost", bill.cost(moment, around))
    for trouble in around.troubles:
        facts.add_row("backend", styled(f"! {one_line(trouble, most=200)}", "yellow"))
    if moment.bad_personas:
        it = "it" if moment.bad_personas == 1 else "them"
        facts.add_row("personas", f"! {counted(moment.bad_personas, 'row')} skipped: no persona in {it}")
    return Group(top, facts)


def _accepted(moment: Progress) -> str:
    return f"{moment.accepted:,}/{moment.n:,}"


def _kept(moment: Progress, before: str) -> str:
    """What waits for an earlier episode, or was in flight when the last one that was needed came in."""
    return f"{before}{moment.kept:,} kept for later" if moment.kept else ""


def _speed(pace: Pace, now: float) -> str:
    remaining = pace.remaining(now)
    if remaining is None:
        return "no pace yet"
    return f"{per_time(pace.rate(now))}, about {duration(remaining)} left" if remaining else per_time(pace.rate(now))


def _rules(by_rule: Mapping[str, int]) -> str:
    ranked = sorted(by_rule.items(), key=lambda item: (-item[1], item[0]))
    shown = [f"{one_line(rule, most=40)} {count:,}" for rule, count in ranked[:_RULES_SHOWN]]
    if len(ranked) > _RULES_SHOWN:
        shown.append(f"{len(ranked) - _RULES_SHOWN} more {sum(count for _, count in ranked[_RULES_SHOWN:]):,}")
    return " · ".join(shown)
