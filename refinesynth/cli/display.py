"""Display of a run in progress and its cost: a redrawn board on a terminal, log lines elsewhere."""

import time
from collections import deque
from collections.abc import Callable

from rich.console import Console, Group, RenderableType
from rich.text import Text

from refinesynth.cli.terminal import Screen, bar, labelled, styled
from refinesynth.synthesis.progress import Progress, Surroundings
from refinesynth.text.number_format import compact, counted, dollars, duration, per_time
from refinesynth.text.printable import one_line

LOG_EVERY = 10.0
"""Seconds between the first log lines without a terminal."""
_GROWTH = 8
"""Divisor of the elapsed time that gives the later intervals between log lines: an eighth."""
WINDOW = 60.0
"""Window of the rate, in seconds."""
_RULES_SHOWN = 6
"""Most rules listed on the board; the others are summed up."""
_SHOWN = 200


class Display(Screen):
    """Progress of a run: a board on a terminal that can redraw, else log lines."""

    def __init__(self, console: Console) -> None:
        self._pace = Pace()
        self._offset = 0.0
        """Elapsed seconds of the run minus the monotonic clock, at the latest update."""
        self._latest: Progress | None = None
        self._logged: Progress | None = None
        self._said = list[str]()
        """Parts of the state at the last log line, unchanged ones included."""
        self._due = 0.0
        super().__init__(console, self._draw)

    def update(self, moment: Progress) -> None:
        """Store a new state of the run."""
        self._latest = moment
        self._offset = moment.elapsed - time.monotonic()
        self._pace.observe(moment)

    def tick(self, *, last: bool = False) -> None:
        """Log a line if the console cannot redraw: all parts in the first and last line, else the changed parts.
        Called every `LOG_EVERY` seconds; the interval between lines grows with the elapsed time.
        """
        now = self._now()
        if self._latest is None or self.redraws or (now < self._due and not last):
            return
        self._logged, before = self._latest, [] if last else self._said
        head, *self._said = in_parts(self._latest, self._pace, now)
        self._due = now + max(LOG_EVERY, now / _GROWTH)
        self.say("; ".join([head, *(part for part in self._said if part not in before)]))

    def close(self) -> None:
        super().close()
        if self._logged is not self._latest:
            self.tick(last=True)

    def _now(self) -> float:
        return time.monotonic() + self._offset

    def _draw(self) -> RenderableType:
        if self._latest is None:
            return Text("starting", style="dim")
        return board(self._latest, self._pace, self._now())


class Pace:
    """Rate of accepted trajectories. Times are seconds of the run (`Progress.elapsed`)."""

    def __init__(self) -> None:
        self._seen: deque[tuple[float, int]] = deque()
        self._latest: Progress | None = None

    def observe(self, moment: Progress) -> None:
        if not self._seen:
            self._seen.append((0.0, moment.accepted_before))
        self._seen.append((moment.elapsed, moment.gained))
        self._latest = moment
        # One observation before the window stays; otherwise the rate would not cover the whole window.
        while len(self._seen) > 2 and self._seen[1][0] < moment.elapsed - WINDOW:  # noqa: PLR2004
            self._seen.popleft()

    def rate(self, now: float) -> float:
        """Accepted trajectories per second over the last `WINDOW` seconds before `now` (seconds of the run)."""
        if not self._seen:
            return 0.0
        since, accepted = self._seen[0]
        return (self._seen[-1][1] - accepted) / (now - since) if now > since else 0.0

    def remaining(self, now: float) -> float | None:
        """Seconds until `n` trajectories at the current rate; None while the rate is 0."""
        rate = self.rate(now)
        if self._latest is None or rate <= 0:
            return None
        return max(0, self._latest.n - self._latest.gained) / rate


def in_parts(moment: Progress, pace: Pace, now: float) -> list[str]:
    """State of a run as clauses; the first has the time and the accepted trajectories."""
    around = moment.look()
    bound = f" (bound by {moment.bound})" if moment.bound and moment.in_flight else ""
    return [
        f"{duration(now)} {_accepted(moment)} accepted",
        _speed(pace, now),
        f"{moment.in_flight:,} in flight{bound}, {moment.failed:,} gave none{_kept(moment, ', ')}",
        f"refused: {counted(moment.scripts_refused, 'script')}, {counted(moment.drafts_refused, 'draft')}",
        tokens(moment, around),
        f"cost {cost(moment, around)}",
        *reasons(moment.commonest_reason, moment.last_reason, failed=moment.failed),
        *(one_line(trouble, size=200) for trouble in around.troubles),
    ]


def board(moment: Progress, pace: Pace, now: float) -> RenderableType:
    """State of a run as a few lines that fit 80 columns."""
    around = moment.look()
    accepted = Text(_accepted(moment), style="bold green" if moment.accepted >= moment.n else "bold")
    top = bar("accepted", moment.accepted, moment.n, accepted, Text(duration(now), style="dim"))
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
        ranked = sorted(moment.by_rule.items(), key=lambda item: (-item[1], item[0]))
        shown = [f"{one_line(rule, size=40)} {count:,}" for rule, count in ranked[:_RULES_SHOWN]]
        if rest := ranked[_RULES_SHOWN:]:
            shown.append(f"{len(rest)} more {sum(count for _, count in rest):,}")
        facts.add_row("by rule", styled(" · ".join(shown)))
    for reason in reasons(moment.commonest_reason, moment.last_reason, failed=moment.failed):
        facts.add_row("why none", styled(reason))
    facts.add_row("tokens", tokens(moment, around))
    facts.add_row("cost", cost(moment, around))
    for trouble in around.troubles:
        facts.add_row("backend", styled(f"! {one_line(trouble, size=200)}", "yellow"))
    if moment.bad_personas:
        it = "it" if moment.bad_personas == 1 else "them"
        facts.add_row("personas", f"! {counted(moment.bad_personas, 'row')} skipped: no persona in {it}")
    return Group(top, facts)


def _accepted(moment: Progress) -> str:
    return f"{moment.accepted:,}/{moment.n:,}"


def _kept(moment: Progress, before: str) -> str:
    """Clause on trajectories that wait for an earlier episode or exceed `n`; empty without any."""
    return f"{before}{moment.kept:,} kept for later" if moment.kept else ""


def _speed(pace: Pace, now: float) -> str:
    remaining = pace.remaining(now)
    if remaining is None:
        return "no pace yet"
    return f"{per_time(pace.rate(now))}, about {duration(remaining)} left" if remaining else per_time(pace.rate(now))


def reasons(commonest: tuple[str, int] | None, last: str | None, *, failed: int) -> list[str]:
    """The most frequent and the latest reason of episodes without a trajectory."""
    texts: list[str] = []
    if commonest is not None:
        reason, count = commonest
        texts.append(f"{count:,} of {counted(failed, 'episode')} without a trajectory: {one_line(reason, size=_SHOWN)}")
    if last is not None and (commonest is None or last != commonest[0]):
        texts.append(f"the last: {one_line(last, size=_SHOWN)}")
    return texts


def cost(moment: Progress, around: Surroundings) -> str:
    """Cost in dollars: `12.30 USD of 50.00 USD, 0.0123 USD each, about 39.40 USD in all`."""
    if around.paid.cost_usd is None:
        return "unknown"
    limit = None if around.budget is None else around.budget.usd
    text = dollars(around.paid.cost_usd) + ("" if limit is None else f" of {dollars(limit)}")
    each = _each(moment, moment.cost_usd)
    if not each:
        return text
    text += f", {dollars(each)} each"
    if moment.gained < moment.n:
        text += _forecast(moment, paid=around.paid.cost_usd, each=each, limit=limit, show=dollars)
    return text


def tokens(moment: Progress, around: Surroundings) -> str:
    """Tokens: `1.23M in (20% cached), 203k out, 812 requests, 3 retries`, then the use of a token budget."""
    usage = around.paid.usage
    cached = f" ({usage.cached_tokens / usage.input_tokens:.0%} cached)" if usage.cached_tokens else ""
    text = (
        f"{compact(usage.input_tokens)} in{cached}, {compact(usage.output_tokens)} out, "
        f"{counted(usage.requests, 'request')}"
    )
    if around.retries:
        text += f", {counted(around.retries, 'retry', 'retries')}"
    limit = None if around.budget is None else around.budget.tokens
    if limit is None:
        return text
    text += f"; {compact(around.paid.tokens)} of {compact(limit)}"
    each = _each(moment, moment.usage.input_tokens + moment.usage.output_tokens)
    if each and moment.gained < moment.n:
        text += _forecast(moment, paid=around.paid.tokens, each=each, limit=limit, show=compact)
    return text


def _each(moment: Progress, spent: float | None) -> float | None:
    """Cost per trajectory over finished episodes; episodes in flight have partial costs and no trajectory yet."""
    return None if spent is None or not moment.gained else spent / moment.gained


def _forecast(moment: Progress, *, paid: float, each: float, limit: float | None, show: Callable[[float], str]) -> str:
    in_all = paid + (moment.n - moment.gained) * each
    if limit is not None and in_all > limit:
        reaches = moment.gained + int(max(0.0, limit - paid) / each)
        return f", about {reaches:,} of {moment.n:,} on this budget"
    return f", about {show(in_all)} in all"
