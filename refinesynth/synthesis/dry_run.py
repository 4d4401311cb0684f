"""`estimate`: plays a few personas, and extrapolates to a whole run."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from statistics import NormalDist, fmean
from tempfile import TemporaryDirectory
from typing import Any, Literal, Self

from refinesynth.backends import BackendSpec
from refinesynth.client.budget.budget import Budget
from refinesynth.cost import Cost
from refinesynth.errors import BudgetSpent, InputError, RunStopped
from refinesynth.personas import PersonaSource
from refinesynth.run import EpisodeLine, RunFolder
from refinesynth.run.folder import ScriptSource, open_source
from refinesynth.settings import RunSettings
from refinesynth.settings.shard import WHOLE
from refinesynth.synthesis.concurrency import FEWEST
from refinesynth.synthesis.configured import configured
from refinesynth.synthesis.progress import Progress
from refinesynth.synthesis.synthesize import synthesize
from refinesynth.text.figures import compact, dollars, duration
from refinesynth.text.notebook import html_table
from refinesynth.trajectory import Persona

CONFIDENCE = 0.9
"""Probability that the yield lies within its range."""
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
    """An uncertain number."""

    low: float
    likely: float
    high: float
    """Infinite without a bound."""

    def over(self, other: "Range") -> Self:
        """Divide by a yield; the extremes combine, so the result is rather too wide than too narrow."""
        return type(self)(_over(self.low, other.high), _over(self.likely, other.likely), _over(self.high, other.low))

    def times(self, factor: float) -> Self:
        return type(self)(self.low * factor, self.likely * factor, self.high * factor)

    def at_least(self, bound: float) -> Self:
        """Raise all values to at least `bound`."""
        return type(self)(max(self.low, bound), max(self.likely, bound), max(self.high, bound))

    def as_json(self) -> dict[str, float | None]:
        """Return the values by name; None for infinity."""
        ends = {"low": self.low, "likely": self.likely, "high": self.high}
        return {name: end if math.isfinite(end) else None for name, end in ends.items()}


@dataclass(frozen=True, kw_only=True)
class Estimate:
    """Needs of `n` trajectories, from the episodes of a dry run."""

    n: int
    concurrency: int
    source: str
    """Source of the personas, in words."""
    available: int | None
    """Most personas in the source; None if unknown."""
    episodes: int
    """Episodes that were played."""
    accepted: int
    """Their trajectories."""
    fruitful: int
    """Episodes with a trajectory."""
    most: int
    """Most trajectories of one persona."""
    paid: Cost
    """Cost of the estimate."""
    elapsed: float
    """Seconds of the estimate."""
    acceptance: Range
    """Share of the personas with a trajectory (Wilson's interval)."""
    per_persona: Range
    """Trajectories per persona; equals `acceptance` if a persona gives at most one."""
    personas: Range
    """Personas for `n`. All following ranges are for `n` too, at the mean usage of an episode."""
    requests: Range
    input_tokens: Range
    output_tokens: Range
    cost_usd: Range | None
    """US dollars; None where a model's price is unknown."""
    seconds: Range
    """At this concurrency, if the backend keeps up."""

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
        """Make it from the trajectories (at most `most`) and the cost of each episode, and their mean duration."""
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
        """Return a heading and a row for each figure: name, likely value, and the ends of its range; `?` for no end."""
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
        return "\n".join(f"{name:<26}{likely:>12}{low:>12}{high:>12}" for name, likely, low, high in self.rows())

    def _repr_html_(self) -> str:
        return html_table(self.rows())

    def as_json(self) -> dict[str, Any]:
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
    """Return the range of a share of which `hits` of `tries` were seen; 0 to 1 without a try.

    Also holds for the mean of numbers between 0 and 1 with the sum `hits`; it is too wide then.
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


SAMPLE = 8
"""Personas that are played by default."""
_LOOKED_AT = 1_000
"""First personas of the source over which the sample is spread: reading more might take long."""


@configured
async def estimate(
    personas: PersonaSource | None = None,
    n: int = 100,
    backend: BackendSpec = "rehearsal",
    *,
    sample: int = SAMPLE,
    concurrency: int | Literal["auto"] = "auto",
    budget: Budget | str | None = None,
    on_progress: Callable[[Progress], None] | None = None,
    **settings: Any,
) -> Estimate:
    """Play `sample` personas as `synthesize` would, and extrapolate to `n`. This makes paid requests.

    Nothing is kept: a run plays and pays the sample again. The sample is spread over the first 1,000 personas of a
    file, a list or a dataset; of an iterator it takes the first ones, which are consumed.

    Not promised: that the backend is as fast with `concurrency` episodes in flight as with `sample`, that later personas
    are like the first, and that no more scripts resemble earlier ones than in the sample.

    Args:
        personas: As for `synthesize`, as are `backend` and all further settings.
        n: Accepted trajectories to extrapolate to.
        backend: See `synthesize`.
        sample: Personas to play.
        concurrency: Episodes in flight for the extrapolated time; 16, the beginning of a run, for `auto`.
        budget: Budget of the sample; once it is spent, the finished episodes count.
        on_progress: Called with each change of the sample's run.
        settings: Further settings of `synthesize`, except `output` and `fresh`; `workers` has no effect.

    Raises:
        InputError: A setting cannot be used.
        BudgetSpent: The budget did not pay for one whole episode.
        RunStopped: No episode can go on.
    """
    in_flight = FEWEST if concurrency == "auto" else concurrency
    _check(n=n, sample=sample, concurrency=in_flight)
    if taken := settings.keys() & {"output", "fresh"}:
        raise InputError(f"an estimate keeps nothing: leave out {', '.join(sorted(taken))}")
    shard = settings.pop("shard", None)
    part = RunSettings.of({"n": n, "shard": shard})
    n = part.wanted()
    for name in ("workers", "cluster"):
        settings.pop(name, None)
    scripts: ScriptSource | None = settings.pop("scripts", None)
    chosen, source, available = await _spread(personas, scripts, settings.pop("column", None), sample)
    if available is not None:
        available = (part.shard or WHOLE).share(available)
    # Looked at by `synthesize`; what it would refuse is not multiplied before it does.
    counts = [settings.get(name, 1) for name in ("branches", "episodes_per_script")]
    most = math.prod(count for count in counts if isinstance(count, int) and count > 0)
    seen: list[Progress] = []

    def see(moment: Progress) -> None:
        seen.append(moment)
        if on_progress is not None:
            on_progress(moment)

    with TemporaryDirectory(prefix="refinesynth-dry-run-") as folder:
        try:
            result = await synthesize(
                None if scripts is not None else chosen,
                # No sooner is every persona played for sure: one may give so many.
                len(chosen) * most,
                backend,
                scripts=None if scripts is None else chosen,
                output=Path(folder) / "run",
                concurrency=min(in_flight, len(chosen)),
                budget=budget,
                on_progress=see,
                **settings,
            )
        except RunStopped as stopped:
            # Without what is said of the folder, which will not be there.
            raise RunStopped(str(stopped.__cause__ or stopped)) from stopped
        lines = _finished(result.path)
    if not lines:
        raise BudgetSpent(f"the budget of {budget} did not pay for one whole episode: give a higher one, or none.")
    return Estimate.of(
        [(line.trajectories, line.spent) for line in lines],
        n=n,
        most=most,
        concurrency=in_flight,
        source=source,
        available=available,
        elapsed=seen[-1].elapsed,
        episode_seconds=_in_flight_seconds(seen) / len(lines),
    )


def _check(**counts: object) -> None:
    for name, value in counts.items():
        if isinstance(value, bool) or not isinstance(value, int) or value < 1:
            raise InputError(f"{name} is {value!r}; expected a whole number, 1 or more")


async def _spread(
    source: PersonaSource | None, scripts: ScriptSource | None, column: str | None, sample: int
) -> tuple[list[Persona], str, int | None]:
    """Return `sample` personas, with their scripts if given, the description of the source, and the most that it holds
    if known.
    """
    read_once = hasattr(source, "__next__") or hasattr(source, "__aiter__")
    most = sample if read_once else max(sample, _LOOKED_AT)
    found: list[Persona] = []
    async with open_source(source, scripts, column=column) as personas:
        available = await personas.at_most()
        await personas.look()
        async for _, persona in personas:
            found.append(persona)
            if len(found) == most:
                break
        count = min(sample, len(found))
        return [found[at * len(found) // count] for at in range(count)], personas.description, available


def _finished(path: Path) -> list[EpisodeLine]:
    folder = RunFolder.open(path)
    return [*folder.episodes(), *folder.waiting_lines()]


def _in_flight_seconds(moments: list[Progress]) -> float:
    """Return the sum of all episodes' durations: episodes in flight between two moments, times the time between."""
    return sum(one.in_flight * (then.elapsed - one.elapsed) for one, then in pairwise(moments))
