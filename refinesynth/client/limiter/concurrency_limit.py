"""How many requests a server takes at once, found out by trying: additive increase, multiplicative decrease, and a
climb.
"""

import math
from collections.abc import Hashable
from dataclasses import dataclass

UNBOUNDED = 2**31
"""`ConcurrencyLimit.current` where there is none."""
_START = 16
_WORTH = 0.75
"""Share of proportional slowing-down at which more in flight is no longer worth it: a quarter more requests at once
must bring at least 5.7 % more tokens a second."""
_STRIDE, _FIRST_STRIDE = 1.25, 2.0
"""Factor between two limits that are compared, and the one at the start, until it goes wrong for the first time."""
_FLOOR = 8
"""Slowness alone never leads below this: it says too little there, and a few requests too many do no harm."""
_ROUND, _QUICK_ROUND = 32, 8
"""Fewest answers from which slowness is judged: usually, and while it doubles."""
_RESTS = (1, 16)
"""Rounds at a limit that was found good, before another is tried: at first, and most."""
_TAIL = 0.05
"""Share of a round's requests that is not waited for."""
_SUDDENLY = 1.5
"""Slowness beside what it was that ends a rest."""
_NOTHING_NEW = 1.1
"""Two levels nearer than this are not compared: demand was too low to decide."""
_WANTED = 0.8
"""Share of the limit in use from which it is the limit that binds."""
_SAFE, _NEAR, _CREEP, _CREEP_AT_LEAST = 0.8, 0.9, 0.0025, 0.125
"""After a refusal: the share of the refused limit that is taken to be good at most, the one from which on it is gone
carefully, and how much a round trip then adds, as a share and in requests."""
_FAULTS, _FAULTY = 3, 0.2
"""Faults in a round, and share of its answers, from which they count as a refusal."""


@dataclass
class _Sum:
    """Answers of one kind."""

    seconds: float = 0.0
    tokens: float = 0.0
    count: int = 0

    def add(self, seconds: float, tokens: float, count: int = 1) -> None:
        self.seconds += seconds
        self.tokens += tokens
        self.count += count


@dataclass
class _Camp:
    """A limit, and what was measured there."""

    size: float
    level: float
    """Requests in flight, on average."""
    buckets: dict[Hashable, float]
    """Seconds per output token of each kind of request."""

    def mix(self, new: "_Camp") -> None:
        """Measured once more; the last rounds weigh most."""
        self.level += (new.level - self.level) / 3
        for kind, buckets in new.buckets.items():
            known = self.buckets.get(kind, buckets)
            self.buckets[kind] = known + (buckets - known) / 3


class ConcurrencyLimit:
    """The most requests that may be in flight. Pure arithmetic: no clock, no waiting.

    Little's law makes the time per output token a gauge of throughput (tokens a second = in flight / time per token),
    so a server that sends no 429 shows where it is saturated: there, that time grows as the requests in flight do. It
    is measured in rounds: those that doubling is judged by take the first answers that come; later ones wait for nearly
    all of their requests, or short answers would speak for long ones, which bear a wait more easily. Kinds of requests
    are compared each with itself, and doubling begins again once most of the work is of kinds that it was not judged
    by. Of two limits, the larger is kept if it brings more tokens a second in at least a quarter of proportion, else
    the smaller. Doubling at first, steps of a quarter later, ever longer rests in between.

    Refusals (429, overload, timeouts) halve the limit, once per round trip. It then returns to between the last good
    limit and the refused one, and creeps on, by a quarter of a per cent a round trip at last, until it is past what was
    refused.

    Guarantees: 1 <= `current` <= ceiling. A server that takes C requests at once and queues the rest is left, without
    noise, at 0.94 C to 1.19 C (8 at least). Not promised: anything while demand is below the limit; full speed at a
    server that refuses at random (2 % leave about 7 at once).
    """

    def __init__(self, *, start: int | None = _START, ceiling: int | None = None) -> None:
        """Begins with `start` requests in flight; None sets no limit and tries none."""
        self._ceiling = float("inf") if ceiling is None else float(ceiling)
        self._start = self._ceiling if start is None else min(float(start), self._ceiling)
        self._work: dict[Hashable, float] = {}
        """Seconds that all requests of a kind have taken so far: how much it weighs."""
        self._doubled: set[Hashable] = set()
        """Kinds by which doubling was judged: the server may take more of others."""
        self._settled = False
        """Whether steps of a quarter have found a limit: from then on a mix that changes is no reason to double."""
        self._begun = 0
        self._good = 1.0
        self._refused_since = 0
        self.restart()

    @property
    def current(self) -> int:
        """Requests that may be in flight now."""
        return UNBOUNDED if math.isinf(self._size) else max(1, int(self._size))

    def restart(self) -> None:
        """Forget what this server took, but not how fast it answers: it was gone, and may be another one."""
        self._size = self._start
        self._roof = float("inf")
        self._recovering = False
        self._climb_from_scratch(_FIRST_STRIDE)

    def begin(self) -> int:
        """A request is begun.

        Returns:
            Its number, to be handed back with its outcome; `ended` comes last, and always.
        """
        self._begun += 1
        return self._begun

    def answered(self, number: int, *, seconds: float, tokens: float, kind: Hashable, in_flight: int) -> None:
        """A request was answered.

        Args:
            number: The request's, from `begin`.
            seconds: What it took.
            tokens: Output tokens.
            kind: Requests of one kind are expected to take alike per token, such as those of one role of one model.
            in_flight: Requests in flight, this one included.
        """
        if self._creeping and in_flight >= self.current:
            self._creep()
        if not self._first <= number <= self._last:
            return
        self._sums.setdefault(kind, _Sum()).add(seconds, max(tokens, 1.0))
        self._count += 1
        self._level += in_flight

    def ended(self, number: int) -> None:
        """A request is not in flight any more, however it ended."""
        if not self._first <= number <= self._last:
            return
        self._left -= 1
        if self._left <= 0 and self._count:
            self._close()

    def refused(self, number: int) -> None:
        """The server said, or showed, that it was asked too much: half as many from now on.

        Requests that were begun before the last such decrease do not count: they say nothing of the present limit.
        """
        if number < self._refused_since:
            return
        self._roof = self._size
        self._size = max(1.0, self._size / 2)
        self._good = min(max(self._good, self._size), _SAFE * self._roof)
        self._recovering = True
        self._climb_from_scratch(_STRIDE)
        self._refused_since = self._first

    def failed(self, number: int) -> None:
        """The server failed for another reason; many such in one round count as a refusal."""
        if self._first <= number <= self._last:
            self._faults += 1

    @property
    def _creeping(self) -> bool:
        return math.isfinite(self._roof) and not self._recovering

    def _creep(self) -> None:
        # A quarter of the way to near the roof in each round trip, and then slowly.
        step = max(_CREEP_AT_LEAST, _CREEP * self._roof, (_NEAR * self._roof - self._size) / 4)
        self._resize(self._size + step / self.current)
        if self._size > self._roof + 1:
            self._roof = float("inf")
            self._climb_from_scratch(_STRIDE)

    def _climb_from_scratch(self, stride: float) -> None:
        if stride > _STRIDE:
            self._doubled = set()
        self._settled = stride <= _STRIDE
        self._stride = stride
        self._camp: _Camp | None = None
        self._up = True
        self._rest = 0
        self._patience = _RESTS[0]
        self._open()

    def _open(self) -> None:
        self._sums: dict[Hashable, _Sum] = {}
        self._count = 0
        self._faults = 0
        self._level = 0.0
        self._first: float = self._begun + 1
        self._last: float = float("inf")
        if math.isinf(self._size):
            self._left: float = float("inf")
        elif self._recovering:
            self._left = max(self.current // 4, _QUICK_ROUND // 2)
        elif self._stride > _STRIDE:
            self._left = max(self.current // 2, _QUICK_ROUND)
        else:
            # All of so many, or the short answers, which come first, would stand for the long ones too.
            count = max(self.current, _ROUND)
            self._last = self._begun + count
            self._left = count - int(_TAIL * count)

    def _close(self) -> None:
        if self._faults >= _FAULTS and self._faults > _FAULTY * self._count:
            self.refused(self._begun)
            return
        if self._recovering:
            self._recovering = False
            self._resize((self._good + self._roof) / 2)
        else:
            self._good = self._size
            if not self._creeping:
                self._judge(self._measured())
        self._open()

    def _measured(self) -> _Camp:
        for kind, one in self._sums.items():
            self._work[kind] = self._work.get(kind, 0.0) + one.seconds
        # Times of zero are a clock's that is too coarse.
        buckets = {kind: max(one.seconds, 1e-9) / one.tokens for kind, one in self._sums.items()}
        return _Camp(self._size, self._level / self._count, buckets)

    def _slower(self, here: _Camp, there: _Camp) -> float:
        """How much slower it is here than there, as a logarithm; kinds weigh by the work that they are."""
        both = [kind for kind in here.buckets if kind in there.buckets]
        work = sum(self._work[kind] for kind in both)
        if work <= 0:
            return 0.0
        return sum(self._work[kind] * math.log(here.buckets[kind] / there.buckets[kind]) for kind in both) / work

    def _double_again(self) -> bool:
        """Whether doubling is to begin again, because it ended over kinds of requests that are few now."""
        if self._stride > _STRIDE:
            self._doubled.update(self._sums)
        if self._settled or self._stride > _STRIDE:
            return False
        work = sum(one.seconds for one in self._sums.values())
        return sum(one.seconds for kind, one in self._sums.items() if kind not in self._doubled) > work / 2

    def _judge(self, here: _Camp) -> None:
        binds = here.level >= _WANTED * here.size
        if binds and self._double_again():
            judged = self._doubled | self._sums.keys()
            self._climb_from_scratch(_FIRST_STRIDE)
            self._doubled = judged
        camp = self._camp
        if camp is None:
            self._camp = here
            self._rest = 0
        elif here.size == camp.size:
            if self._slower(here, camp) > math.log(_SUDDENLY):
                self._rest = 0
                self._up = False
            camp.mix(here)
            self._rest -= 1
        else:
            ratio = here.level / camp.level
            if (ratio < _NOTHING_NEW) if self._up else (ratio > 1 / _NOTHING_NEW):
                return
            crowding = self._slower(here, camp) / math.log(ratio)
            if (crowding < _WORTH) == self._up:
                self._camp = here
                self._patience = _RESTS[0]
            else:
                self._turn_back(camp)
        if binds and self._rest <= 0:
            self._step()

    def _turn_back(self, camp: _Camp) -> None:
        self._resize(camp.size)
        if self._stride > _STRIDE:
            # Where it was doubled, all was looked at in haste.
            self._stride = _STRIDE
            self._camp = None
            self._rest = 1
        else:
            self._settled = True
            self._up = not self._up
            self._rest = self._patience
            self._patience = min(2 * self._patience, _RESTS[1])

    def _step(self) -> None:
        size = self._size
        if self._up:
            self._resize(max(size * self._stride, size + 1))
        else:
            self._resize(max(size / self._stride, min(size, _FLOOR)))
        if self._size == size:
            # At the ceiling or the floor: the other way, some time.
            self._up = not self._up
            self._rest = self._patience
            self._patience = min(2 * self._patience, _RESTS[1])

    def _resize(self, size: float) -> None:
        self._size = min(max(size, 1.0), self._ceiling)
