"""One limit of a budget, in US dollars or in tokens: what is spent of it, what is put aside, and what an episode
takes.
"""

import math
from dataclasses import dataclass, field

_CAUTION = 8
"""An episode that has cost more than an average one is taken to need an eighth of one more."""


@dataclass(slots=True)
class Average:
    """Mean and spread of what was seen so far (Welford's method)."""

    count: int = 0
    mean: float = 0.0
    _squares: float = 0.0

    def add(self, value: float) -> None:
        """One more."""
        self.count += 1
        step = value - self.mean
        self.mean += step / self.count
        self._squares += step * (value - self.mean)

    def know(self, total: float, count: int) -> None:
        """Begin with so many, of which only the sum is known."""
        self.count, self.mean = count, total / count if count else 0.0

    @property
    def deviation(self) -> float:
        """The standard deviation; 0 for fewer than two."""
        return math.sqrt(self._squares / (self.count - 1)) if self.count > 1 else 0.0


@dataclass(slots=True)
class BudgetLimit:
    """What may still be spent of one limit. Amounts are in its unit."""

    limit: float
    guess: float
    """What an episode is taken to need before the first has ended; afterwards it counts as one of them."""
    spent: float = 0.0
    """Settled, that of earlier processes included."""
    at_worst: float = 0.0
    """What is put aside may come to so much."""
    expected: float = 0.0
    """What is put aside will probably come to so much."""
    episode: Average = field(default_factory=Average)
    """What an episode takes from its beginning to its end."""
    in_flight: float = 0.0
    """Cost by episodes that have not ended."""

    def admits(self, expected: float) -> bool:
        """Whether a request may be sent that probably takes `expected`.

        So the total passes the limit by less than the worst case of the request that was let in last, even if
        everything else in flight comes to its worst; and it is expected not to pass it at all.
        """
        return self.spent + self.at_worst < self.limit and self.spent + self.expected + expected <= self.limit

    def put_aside(self, worst: float, expected: float) -> None:
        """Reservation this back for a request."""
        self.at_worst += worst
        self.expected += expected

    def put_back(self, worst: float, expected: float) -> None:
        """The request is over."""
        self.at_worst -= worst
        self.expected -= expected

    def settle_rounding(self) -> None:
        """Nothing is put aside: say so to the last bit."""
        self.at_worst = self.expected = 0.0

    def covers_another(self, in_flight: int) -> bool:
        """Whether one more episode is expected to be paid for to its end, and before it all that are in flight.

        Spread is allowed for as if episodes were independent. Nothing in flight and nothing known: then it must be
        tried.
        """
        if not in_flight and not self.episode.count:
            return self.spent < self.limit
        seen = self.episode
        mean = (self.guess + seen.mean * seen.count) / (1 + seen.count)
        remaining = max(in_flight * mean - self.in_flight, in_flight * mean / _CAUTION)
        margin = seen.deviation * math.sqrt(in_flight)
        return self.spent + remaining + margin + mean <= self.limit
