"""Adaptive limit of a server's concurrent requests, found by comparing which of two limits brings more answers."""

import math
from collections.abc import Hashable
from dataclasses import dataclass

UNBOUNDED = 2**31
"""`ConcurrencyLimit.current` without a limit."""
_START = 16
"""Few enough for a small server, and four doublings below what most servers take."""
_WORTH = 0.25
"""Share of proportional gain from which the larger of two limits is kept: 19 % more requests at once must bring 4.4
% more answers. A lower share would delay answers for next to nothing; a higher one would lose small gains in the
noise."""
_HALVINGS, _DOUBLINGS = 2, 4
"""Failed trials in a row: the first `_HALVINGS` halve the step between two limits, in its logarithm (a factor of 2,
1.41, 1.19), so the search ends within a fifth of the optimum and steps stay larger than chance. Further ones double
the rest between trials (8 and 16 rounds), so trials cost next to nothing in the end."""
_FEW = 8
"""Fewest answers to judge a long step, fewest faults that count, and fewest concurrent requests that slowness alone
leads to: a few requests too many do no harm."""
_ROUND = 32
"""Fewest answers to judge a short step, so chance weighs less than the step."""
_TIMES = 3
"""Multiple of the expected random faults, plus one more, that ends a trial early: four refusals do. At a random
fault rate of one sixth, half of all requests must fail, which ends the trial anyway."""
_SUDDENLY = 1.5
"""Relative slowness that ends a rest."""
_IN_USE = 0.8
"""Share of the limit in use from which the limit binds, and not the demand."""


@dataclass
class _Sum:
    """Answers of one kind."""

    seconds: float = 0.0
    tokens: float = 0.0


@dataclass
class _Measured:
    """A limit with its measurements."""

    size: int
    used: float
    """Logarithm of the mean number of places in use."""
    gain: float
    """Logarithm of the mean number of requests in flight, times the answered share of them."""
    lost: float
    """Unanswered share of the begun requests."""
    pace: dict[Hashable, float]
    """Logarithm of the seconds per output token of each kind of request."""

    def mix(self, new: "_Measured") -> None:
        """Average with a new measurement; the last rounds weigh most."""
        self.used += (new.used - self.used) / 3
        self.gain += (new.gain - self.gain) / 3
        self.lost += (new.lost - self.lost) / 3
        for kind, pace in new.pace.items():
            known = self.pace.get(kind, pace)
            self.pace[kind] = known + (pace - known) / 3


class ConcurrencyLimit:
    """Limit of the requests in flight. Pure arithmetic: no clock, no waiting.

    A limit is judged by the answers that it brings. By Little's law these are, per second, the requests in flight,
    times the answered share, over the time of an answer per output token (each kind of request is compared with
    itself). Faults at any load speak against no limit, since they take the same share of a small one. Refusals and
    slowness beyond the server's capacity do, because more requests then bring no more answers.

    A round is as many answers as requests in flight, of requests begun at this limit. Of two limits the larger is kept
    if it brings clearly more, else the smaller. A failed trial leads to a shorter step or a longer rest; two successful
    ones to longer steps again. A larger limit is given up at once if its faults show that it cannot pay, and the next
    rest doubles. If most requests fail at the limit that was good, it is halved.

    Guarantees: 1 <= `current` <= ceiling. Without noise, a server that takes C requests at once and queues or refuses
    the rest ends at 0.84 C to 1.14 C (at least 8 where it queues). Not promised: anything while demand is below the
    limit, or if random faults break half of the requests.
    """

    def __init__(self, *, start: int | None = _START, ceiling: int | None = None) -> None:
        """Begin with `start` requests in flight; None sets no limit and tries none."""
        self._ceiling = float("inf") if ceiling is None else float(ceiling)
        self._start = self._ceiling if start is None else min(float(start), self._ceiling)
        self._work: dict[Hashable, float] = {}
        """Kind of request to the seconds of all its requests so far, its weight."""
        self._begun = 0
        self.restart()

    @property
    def current(self) -> int:
        """Requests that may be in flight now."""
        return UNBOUNDED if math.isinf(self._size) else max(1, int(self._size))

    def restart(self) -> None:
        """Forget this server's limit: it was gone, and may be another one."""
        self._search_from(self._start)

    def begin(self) -> int:
        """Begin a request; return its number, for the report of its end. `ended` comes last, and always."""
        self._begun += 1
        return self._begun

    def answered(
        self, number: int, *, seconds: float, tokens: float, kind: Hashable, in_flight: int, held: int = 0
    ) -> None:
        """Report an answer to request `number`.

        `seconds` and output `tokens` are its own. Requests of one `kind`, such as of one role and model, are expected
        to take similar time per token. `in_flight` counts this request too; `held` places are kept free at the server's
        wish.
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
        """Report a request without an answer, for reasons of the server or the network.

        Requests begun before the limit last changed do not count.
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
        """Report the end of a request, after `answered` or `failed`."""
        if number < self._first:
            return
        self._left -= 1
        if self._left <= 0:
            if self._count:
                self._judge(self._measured())
            self._open()

    def _refuted(self, begun: int) -> bool:
        """Return True if a larger limit has lost more than it could bring, and several times the random faults."""
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

    def _slower(self, now: _Measured, before: _Measured) -> float:
        """Return the logarithm of the slowdown from `there` to `here`; kinds weigh by their work."""
        both = now.pace.keys() & before.pace.keys()
        work = sum(self._work[kind] for kind in both)
        return sum(self._work[kind] * (now.pace[kind] - before.pace[kind]) for kind in both) / work if work else 0.0

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
