"""The number of requests that a server takes at once, found out by trying which of two limits brings more answers."""

import math
from collections.abc import Hashable
from dataclasses import dataclass

UNBOUNDED = 2**31
"""`ConcurrencyLimit.current` where there is none."""
_START = 16
"""Few enough for a small server, and four doublings below what most take."""
_WORTH = 0.25
"""Of two limits the larger is kept if it brings at least this share of proportion: 19 % more requests at once, 4.4 %
more answers. Less, and answers would come later for next to nothing; more, and one that nearly pays would not be found
among the noise."""
_HALVINGS, _DOUBLINGS = 2, 4
"""Trials in a row that did not pay: so many halve the step between two limits, in its logarithm (a factor of 2, 1.41,
1.19), so that the search ends within a fifth of what is right, and steps stay larger than chance; those beyond double
the rest between trials (8 and 16 rounds), so that trials cost next to nothing at last."""
_FEW = 8
"""Fewest answers from which a long step is judged, fewest faults that say anything, and fewest requests at once that
slowness alone leads to: a few requests too many do no harm."""
_ROUND = 32
"""Fewest answers from which a short step is judged, so that chance weighs less than the step."""
_TIMES = 3
"""Times the faults that luck brings, and one more, that end a trial before its round is over: four refusals do. Where
luck breaks a sixth of all requests, it takes half of them, which end it anyway: there nothing is to be gained."""
_SUDDENLY = 1.5
"""Slowness beside what it was that ends a rest."""
_IN_USE = 0.8
"""Share of the limit in use from which it is the limit that binds, and not the demand."""


@dataclass
class _Sum:
    """Answers of one kind."""

    seconds: float = 0.0
    tokens: float = 0.0


@dataclass
class _Measured:
    """A limit, and what was measured there."""

    size: int
    used: float
    """Logarithm of the places in use, on average."""
    gain: float
    """Logarithm of the requests in flight, on average, times the share of them that were answered."""
    lost: float
    """Share of those begun that were not answered."""
    pace: dict[Hashable, float]
    """Logarithm of the seconds per output token of each kind of request."""

    def mix(self, new: "_Measured") -> None:
        """Measured once more; the last rounds weigh most."""
        self.used += (new.used - self.used) / 3
        self.gain += (new.gain - self.gain) / 3
        self.lost += (new.lost - self.lost) / 3
        for kind, pace in new.pace.items():
            known = self.pace.get(kind, pace)
            self.pace[kind] = known + (pace - known) / 3


class ConcurrencyLimit:
    """The most requests that may be in flight. Pure arithmetic: no clock, no waiting.

    Only one thing is asked of a limit: how many answers it brings. By Little's law that is, per second, the requests in
    flight, times the share of them that are answered, over the time that an answer takes per output token (kinds of
    requests are compared each with itself). So faults that come whatever the load speak against no limit, for they take
    the same share of a small one; refusals and slowness beyond what a server can take do, because there more requests
    bring no more answers.

    It is measured in rounds of as many answers as requests are in flight, of requests that were begun at this limit. Of
    two limits the larger is kept if it brings clearly more, else the smaller. A trial that did not pay is followed by a
    shorter step or, at last, a longer rest; two that paid, by longer steps again. A larger limit whose faults say before
    the round is over that it cannot pay is given up at once, and the next rest is twice as long. Where most of what is
    begun fails at the limit that was good, it is halved.

    Guarantees: 1 <= `current` <= ceiling. A server that takes C requests at once, and queues or refuses the rest, is
    left, without noise, at 0.84 C to 1.14 C (8 at least where it queues). Not promised: anything while demand is below the limit, or
    where luck alone breaks half of the requests.
    """

    def __init__(self, *, start: int | None = _START, ceiling: int | None = None) -> None:
        """Begins with `start` requests in flight; None sets no limit and tries none."""
        self._ceiling = float("inf") if ceiling is None else float(ceiling)
        self._start = self._ceiling if start is None else min(float(start), self._ceiling)
        self._work: dict[Hashable, float] = {}
        """Seconds that all requests of a kind have taken so far: how much it weighs."""
        self._begun = 0
        self.restart()

    @property
    def current(self) -> int:
        """Requests that may be in flight now."""
        return UNBOUNDED if math.isinf(self._size) else max(1, int(self._size))

    def restart(self) -> None:
        """Forget what this server took: it was gone, and may be another one."""
        self._search_from(self._start)

    def begin(self) -> int:
        """A request is begun.

        Returns:
            Its number, to be handed back with its outcome; `ended` comes last, and always.
        """
        self._begun += 1
        return self._begun

    def answered(
        self, number: int, *, seconds: float, tokens: float, kind: Hashable, in_flight: int, held: int = 0
    ) -> None:
        """A request was answered.

        Args:
            number: The request's, from `begin`.
            seconds: What it took.
            tokens: Output tokens.
            kind: Requests of one kind are expected to take alike per token, such as those of one role of one model.
            in_flight: Requests in flight, this one included.
            held: Places that are kept free, as the server wishes.
        """
        if number < self._first:
            return
        one = self._sums.setdefault(kind, _Sum())
        one.seconds += seconds
        one.tokens += max(tokens, 1.0)
        self._count += 1
        self._in_flight += in_flight
        self._in_use += in_flight + held

    def failed(self, number: int) -> None:
        """A request got no answer, for whatever reason that lies with the server or on the way to it.

        Requests that were begun before the limit last changed do not count: they say nothing of the present one.
        """
        if number < self._first:
            return
        self._faults += 1
        begun = self._begun - self._opened
        trial = self._settled is not None and self.current > self._settled.size
        if self._faults >= _FEW and self._faults > begun / 2:
            if trial:
                self._give_up()
            else:
                self._search_from(self._size / 2)
        elif trial and self._refuted(begun):
            self._give_up()
            # What costs refusals is tried half as often.
            self._rest *= 2

    def ended(self, number: int) -> None:
        """A request is not in flight any more, however it ended."""
        if number < self._first:
            return
        self._left -= 1
        if self._left <= 0:
            if self._count:
                self._judge(self._measured())
            self._open()

    def _refuted(self, begun: int) -> bool:
        """Whether a larger limit has lost more already than it could bring, and several times what luck takes."""
        if self._settled is None or self._faults <= _TIMES * (1 + self._settled.lost * begun) or self._faults >= begun:
            return False
        loss = math.log((1 - self._settled.lost) / (1 - self._faults / begun))
        return loss > (1 - _WORTH) * math.log(self.current / self._settled.size)

    def _give_up(self) -> None:
        if self._settled is not None:
            self._resize(self._settled.size)
        self._fail()
        self._open()

    @property
    def _stride(self) -> float:
        return 2.0**0.5 ** min(self._failures, _HALVINGS)

    def _search_from(self, size: float) -> None:
        self._settled: _Measured | None = None
        self._failures = 0
        self._paid = False
        self._rest = 0
        self._up = True
        self._resize(size)
        self._open()

    def _open(self) -> None:
        self._sums: dict[Hashable, _Sum] = {}
        self._count = self._in_flight = self._in_use = self._faults = 0
        self._opened = self._begun
        self._left = max(self.current, _ROUND if self._failures >= _HALVINGS else _FEW)

    def _measured(self) -> _Measured:
        for kind, one in self._sums.items():
            self._work[kind] = self._work.get(kind, 0.0) + one.seconds
        # Times of zero are a clock's that is too coarse.
        pace = {kind: math.log(max(one.seconds, 1e-9) / one.tokens) for kind, one in self._sums.items()}
        answered = self._count / (self._count + self._faults)
        used, in_flight = self._in_use / self._count, self._in_flight / self._count
        return _Measured(self.current, math.log(used), math.log(in_flight * answered), 1 - answered, pace)

    def _slower(self, here: _Measured, there: _Measured) -> float:
        """How much slower it is here than there, as a logarithm; kinds weigh by the work that they are."""
        both = here.pace.keys() & there.pace.keys()
        work = sum(self._work[kind] for kind in both)
        return sum(self._work[kind] * (here.pace[kind] - there.pace[kind]) for kind in both) / work if work else 0.0

    def _judge(self, here: _Measured) -> None:
        settled = self._settled
        if settled is None:
            self._settled = here
        elif here.size == settled.size:
            if self._slower(here, settled) > math.log(_SUDDENLY):
                self._rest = 0
                self._up = False
            settled.mix(here)
            self._rest -= 1
        else:
            large, small = (here, settled) if self._up else (settled, here)
            wider = large.used - small.used
            more = large.gain - small.gain - self._slower(large, small)
            if 2 * wider < math.log(large.size / small.size):
                # Demand was too low to decide: it begins here again.
                self._settled = here
                self._up = True
            elif (more >= _WORTH * wider) == self._up:
                self._settled = here
                self._failures = max(self._failures - self._paid, 0)
                self._paid = True
            else:
                self._resize(settled.size)
                self._up = not self._up
                self._fail()
        if self._rest <= 0 and here.used >= math.log(_IN_USE * here.size):
            self._step()

    def _fail(self) -> None:
        self._failures = min(self._failures + 1, _DOUBLINGS)
        self._paid = False
        self._rest = 0 if self._failures <= _HALVINGS else 2**self._failures

    def _step(self) -> None:
        size = self._size
        if self._up:
            self._resize(max(size * self._stride, size + 1))
        else:
            self._resize(max(size / self._stride, min(size, _FEW)))
        if self.current == int(size):
            # At the ceiling or the floor: the other way, some time.
            self._up = not self._up
            self._fail()

    def _resize(self, size: float) -> None:
        self._size = min(max(size, 1.0), self._ceiling)
        self._first = self._begun + 1
