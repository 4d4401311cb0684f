"""Budget of a run in US dollars, tokens, or both; spent and reserved amounts of each limit."""

import math
import re
from dataclasses import dataclass, field
from typing import cast

from refinesynth.errors import InputError
from refinesynth.outcome import Cost

_SCALES = {"": 1, "k": 10**3, "m": 10**6, "g": 10**9, "b": 10**9}
_NUMBER = r"(?P<number>\d+(?:_\d+)*(?:\.\d*)?(?:e[+]?\d+)?|\.\d+)"
_DOLLARS = re.compile(rf"\$\s*{_NUMBER}|{_NUMBER.replace('number', 'behind')}\s*(?:usd|\$|dollars?)", re.IGNORECASE)
_TOKENS = re.compile(rf"{_NUMBER}\s*(?P<scale>[kmgb]?)\s*tok(?:en)?s?", re.IGNORECASE)
_FORMS = "write for example 50usd, 20Mtok, 800ktok, or 50usd,20Mtok for both"


@dataclass(frozen=True, kw_only=True)
class Budget:
    """Limits on spending; the first one reached counts."""

    usd: float | None = None
    """US dollars."""
    tokens: float | None = None
    """Tokens of prompts, cached ones included, and completions together."""

    def __post_init__(self) -> None:
        for name, value in (("usd", self.usd), ("tokens", self.tokens)):
            is_number = isinstance(value, int | float) and not isinstance(value, bool)
            if value is not None and not (is_number and 0 < value < math.inf):
                raise InputError(f"a budget of {value!r} {name}: expected a number above 0; {_FORMS}")

    def __str__(self) -> str:
        parts: list[str] = []
        if self.usd is not None:
            parts.append(f"{self.usd:,.2f} USD" if self.usd >= 1 else f"{self.usd:g} USD")
        if self.tokens is not None:
            parts.append(f"{self.tokens:,.0f} tokens")
        return " and ".join(parts) or "no limit"

    @classmethod
    def parse(cls, text: str) -> "Budget":
        """Parse `50usd`, `$0.50`, `20Mtok`, `1e6 tokens`, or one of each, separated by a comma.

        Raises:
            InputError: The text is no budget, is not above 0, or names one limit twice.
        """
        limits: dict[str, float] = {}
        for part in text.split(","):
            name, value = _limit(part.strip(), text)
            if name in limits:
                raise InputError(f"the budget {text!r} names {name} twice; {_FORMS}")
            limits[name] = value
        return cls(**limits)

    @classmethod
    def of(cls, value: "Budget | str | None") -> "Budget | None":
        """Return a budget from an argument. Raises InputError: it is none."""
        if value is None or isinstance(value, Budget):
            return value
        if not isinstance(cast("object", value), str):
            raise InputError(f"a budget of {value!r}: expected Budget(...) or text; {_FORMS}")
        return cls.parse(value)


def _limit(part: str, text: str) -> tuple[str, float]:
    if match := _DOLLARS.fullmatch(part):
        return "usd", float(match["number"] or match["behind"])
    if match := _TOKENS.fullmatch(part):
        return "tokens", float(match["number"]) * _SCALES[match["scale"].casefold()]
    raise InputError(f"{text!r} is no budget; {_FORMS}")


_REMAINDER_DIVISOR = 8
"""Divisor of the mean cost: the least that an episode in flight is expected to cost further."""


@dataclass(slots=True)
class Average:
    """Mean and spread of a series (Welford's method)."""

    count: int = 0
    mean: float = 0.0
    _squares: float = 0.0

    def add(self, value: float) -> None:
        self.count += 1
        step = value - self.mean
        self.mean += step / self.count
        self._squares += step * (value - self.mean)

    def start_from(self, total: float, count: int) -> None:
        """Begin with `count` values of sum `total`, each taken as their mean."""
        self.count, self.mean = count, total / count if count else 0.0

    @property
    def deviation(self) -> float:
        """Standard deviation; 0 for fewer than two values."""
        return math.sqrt(self._squares / (self.count - 1)) if self.count > 1 else 0.0


@dataclass(slots=True)
class BudgetLimit:
    """One limit of a budget; its amounts are US dollars or tokens."""

    limit: float
    first_guess: float
    """Expected cost of an episode before the first one ends; it counts as one episode in `mean`."""
    spent: float = 0.0
    """Settled amount, earlier processes included."""
    is_tokens: bool = False
    """True for tokens, False for US dollars."""
    worst_case: float = 0.0
    """Worst case of the reservations."""
    expected: float = 0.0
    """Expected cost of the reservations."""
    episode: Average = field(default_factory=Average)
    """Cost of ended episodes."""
    in_flight: float = 0.0
    """Cost so far of the episodes in flight."""

    def amount_of(self, cost: Cost) -> float:
        """Return a cost in this limit's unit; an unknown price counts as 0."""
        return cost.tokens if self.is_tokens else cost.cost_usd or 0.0

    @property
    def mean(self) -> float:
        """Expected cost of one whole episode."""
        return (self.first_guess + self.episode.mean * self.episode.count) / (1 + self.episode.count)

    def admits(self, expected: float) -> bool:
        """Return True if a request of this `expected` cost may be sent.

        The expected total then stays within the limit. Even if every reservation costs its worst case, the total
        exceeds the limit by less than the worst case of the last admitted request.
        """
        return self.spent + self.worst_case < self.limit and self.spent + self.expected + expected <= self.limit

    def covers_another(self, in_flight: int) -> bool:
        """Return True if the limit is expected to pay for all episodes in flight and one more.

        The margin is the standard deviation of as many independent episodes. A first episode starts if any is left.
        """
        if not in_flight and not self.episode.count:
            return self.spent < self.limit
        mean = self.mean
        remaining = max(in_flight * mean - self.in_flight, in_flight * mean / _REMAINDER_DIVISOR)
        margin = self.episode.deviation * math.sqrt(in_flight)
        return self.spent + remaining + margin + mean <= self.limit
