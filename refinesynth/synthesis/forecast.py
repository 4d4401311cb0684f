"""From a few episodes to what a whole run will take, with honest ranges."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import NormalDist, fmean
from typing import Any, Self

from refinesynth.cost import Cost
from refinesynth.text.figures import compact, dollars, duration
from refinesynth.text.notebook import html_table

CONFIDENCE = 0.9
"""How often the yield lies within its range."""
_RANGES = (
    "acceptance",
    "per_persona",
    "personas",
    "requests",
    "input_tokens",
    "output_tokens",
    "cost_usd",
    "seconds",
)


@dataclass(frozen=True, slots=True)
class Range:
    """A number that is not known exactly."""

    low: float
    likely: float
    high: float
    """Infinite where nothing bounds it."""

    def over(self, other: "Range") -> Self:
        """This divided by a yield; the extremes of both together, so the result is too wide rather than too narrow."""
        return type(self)(_over(self.low, other.high), _over(self.likely, other.likely), _over(self.high, other.low))

    def times(self, factor: float) -> Self:
        """This, so many times."""
        return type(self)(self.low * factor, self.likely * factor, self.high * factor)

    def at_least(self, bound: float) -> Self:
        """This, nowhere less than `bound`."""
        return type(self)(max(self.low, bound), max(self.likely, bound), max(self.high, bound))

    def as_json(self) -> dict[str, float | None]:
        """For programs; what is infinite is None."""
        ends = {"low": self.low, "likely": self.likely, "high": self.high}
        return {name: end if math.isfinite(end) else None for name, end in ends.items()}


@dataclass(frozen=True, kw_only=True)
class Estimate:
    """What `n` trajectories will take, from the episodes of a dry run."""

    n: int
    concurrency: int
    source: str
    """What the personas were read from, in words."""
    available: int | None
    """How many personas there are at most; None if that is unknown."""
    episodes: int
    """Played for this."""
    accepted: int
    """Trajectories that they gave."""
    fruitful: int
    """Of these episodes, those that gave one or more."""
    most: int
    """Trajectories that one persona may give."""
    paid: Cost
    """By this estimate."""
    elapsed: float
    """Seconds that it took."""
    acceptance: Range
    """Share of the personas that give a trajectory (Wilson's interval)."""
    per_persona: Range
    """Trajectories for each persona, those that give none included; the same as `acceptance` where one gives one at
    most."""
    personas: Range
    """Needed for `n`. So are all ranges that follow, at what an episode took on average."""
    requests: Range
    input_tokens: Range
    output_tokens: Range
    cost_usd: Range | None
    """US dollars; None where a model's price is unknown."""
    seconds: Range
    """At this concurrency, if the backend keeps up with it."""

    @classmethod
    def of(
        cls,
        episodes: Sequence[tuple[int, Cost]],
        *,
        n: int,
        most: int = 1,
        concurrency: int,
        source: str,
        available: int | None = None,
        elapsed: float,
        episode_seconds: float,
    ) -> "Estimate":
        """From the trajectories of each episode, `most` or fewer, and what it took; one lasted `episode_seconds` on
        average.
        """
        accepted = sum(count for count, _ in episodes)
        fruitful = sum(count > 0 for count, _ in episodes)
        # Nothing between 0 and 1 is spread wider around its mean than what is always 0 or 1. So Wilson's interval holds
        # for any number of trajectories too.
        per_persona = wilson(accepted / most, len(episodes)).times(most)
        needed = Range(n, n, n).over(per_persona)

        def in_all(amount: Callable[[Cost], float]) -> Range:
            in_n = n * fmean(amount(spent) for _, spent in episodes) if episodes else 0.0
            return Range(in_n, in_n, in_n).over(per_persona)

        paid = sum((spent for _, spent in episodes), Cost())
        return cls(
            n=n,
            concurrency=concurrency,
            source=source,
            available=available,
            episodes=len(episodes),
            accepted=accepted,
            fruitful=fruitful,
            most=most,
            paid=paid,
            elapsed=elapsed,
            acceptance=wilson(fruitful, len(episodes)),
            per_persona=per_persona,
            personas=needed,
            requests=in_all(lambda spent: spent.usage.requests),
            input_tokens=in_all(lambda spent: spent.usage.input_tokens),
            output_tokens=in_all(lambda spent: spent.usage.output_tokens),
            cost_usd=None if paid.cost_usd is None else in_all(lambda spent: spent.cost_usd or 0.0),
            # No run is faster than one episode.
            seconds=needed.times(episode_seconds / concurrency).at_least(episode_seconds),
        )

    def rows(self) -> list[tuple[str, str, str, str]]:
        """A heading, and a row for each figure: its name, what is likely, and the ends of its range; `?` for no end."""
        shown: list[tuple[str, Range | None, Callable[[float], str]]] = [
            ("personas needed", self.personas, lambda count: f"{math.ceil(count):,}"),
            ("accepted of them", self.acceptance, lambda share: f"{share:.0%}"),
            *([("trajectories for each", self.per_persona, lambda count: f"{count:.2f}")] if self.most > 1 else []),
            ("requests", self.requests, compact),
            ("tokens in", self.input_tokens, compact),
            ("tokens out", self.output_tokens, compact),
            ("cost", self.cost_usd, dollars),
            (f"time, {self.concurrency:,} in flight", self.seconds, duration),
        ]

        def row(name: str, values: Range | None, show: Callable[[float], str]) -> tuple[str, str, str, str]:
            if values is None:
                return (name, "unknown", "", "")
            likely, low, high = (
                show(end) if math.isfinite(end) else "?" for end in (values.likely, values.low, values.high)
            )
            return (name, likely, low, high)

        return [(f"for n = {self.n:,}", "likely", "from", "to"), *(row(*one) for one in shown)]

    def __str__(self) -> str:
        """The rows as lines of text."""
        return "\n".join(f"{name:<26}{likely:>12}{low:>12}{high:>12}" for name, likely, low, high in self.rows())

    def _repr_html_(self) -> str:
        return html_table(self.rows())

    def as_json(self) -> dict[str, Any]:
        """For programs."""
        found: dict[str, Range | None] = {name: getattr(self, name) for name in _RANGES}
        return {
            "n": self.n,
            "concurrency": self.concurrency,
            "source": self.source,
            "available": self.available,
            "sample": {
                "episodes": self.episodes,
                "accepted": self.accepted,
                "fruitful": self.fruitful,
                **self.paid.usage.model_dump(),
                "cost_usd": self.paid.cost_usd,
                "seconds": self.elapsed,
            },
            "confidence": CONFIDENCE,
            **{name: None if one is None else one.as_json() for name, one in found.items()},
        }


def wilson(hits: float, tries: int) -> Range:
    """Where a share may lie of which `hits` of `tries` were seen; from 0 to 1 if there was no try.

    Also the mean of what is anywhere between 0 and 1 in each try, and `hits` together; it is too wide then.
    """
    if not tries:
        return Range(0.0, 0.5, 1.0)
    z = NormalDist().inv_cdf((1 + CONFIDENCE) / 2)
    share, spread = hits / tries, z * z / tries
    middle = (share + spread / 2) / (1 + spread)
    half = z / (1 + spread) * math.sqrt(share * (1 - share) / tries + spread / tries / 4)
    # No sample shows that nothing is ever accepted.
    likely = share if hits else middle
    return Range(
        0.0 if not hits else max(0.0, middle - half), likely, 1.0 if hits == tries else min(1.0, middle + half)
    )


def _over(amount: float, share: float) -> float:
    return amount / share if share else math.inf
