"""`estimate`: a few episodes, extrapolated to a whole run."""

import math
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from itertools import pairwise
from pathlib import Path
from statistics import NormalDist, fmean
from tempfile import TemporaryDirectory
from typing import Any, Literal, cast

from refinesynth.backends import BackendSpec
from refinesynth.client.budget.budget import Budget
from refinesynth.errors import BudgetSpent, InputError, RunStopped
from refinesynth.outcome import Cost
from refinesynth.personas import PersonaSource
from refinesynth.run import RunFolder
from refinesynth.run.run_folder import ScriptSource, open_source
from refinesynth.settings import RunSettings
from refinesynth.synthesis.concurrency import MIN_IN_FLIGHT
from refinesynth.synthesis.progress import Progress
from refinesynth.synthesis.synthesize import synthesize
from refinesynth.text.formatting import compact, dollars, duration
from refinesynth.trajectory import Persona

CONFIDENCE = 0.9
"""Probability that the yield lies within its range."""
SAMPLE = 8
"""Default number of personas to play."""


@dataclass(frozen=True, slots=True)
class Range:
    """An uncertain number."""

    low: float
    likely: float
    high: float
    """Upper end; infinite without a bound."""


@dataclass(frozen=True, kw_only=True)
class Estimate:
    """Estimated needs of `n` trajectories, from the episodes of a dry run; the ranges reflect the yield's alone."""

    n: int
    concurrency: int
    source: str
    """Source of the personas, in words."""
    episodes: int
    accepted: int
    """Trajectories of these episodes."""
    paid: Cost
    """Cost of the dry run."""
    elapsed: float
    per_persona: Range
    """Trajectories per persona (Wilson's interval)."""
    personas: Range
    """Personas for `n` trajectories. The following ranges are for `n` too, at the mean usage of an episode."""
    requests: Range
    input_tokens: Range
    output_tokens: Range
    cost_usd: Range | None
    """US dollars; None if a model's price is unknown."""
    seconds: Range
    """Duration at this concurrency, if the backend keeps up."""

    @classmethod
    def of(
        cls,
        episodes: Sequence[tuple[int, Cost]],
        *,
        n: int,
        per_episode: int = 1,
        concurrency: int,
        source: str,
        elapsed: float,
        episode_seconds: float,
    ) -> "Estimate":
        """Make an estimate from each episode's number of trajectories (at most `per_episode`) and cost, and their duration."""
        accepted = sum(count for count, _ in episodes)
        rate = wilson(accepted, len(episodes), maximum=per_episode)

        def extrapolate(amount: Callable[[Cost], float], minimum: float = 0.0) -> Range:
            """Extrapolate the mean amount of an episode to the episodes for `n` trajectories."""
            amount_for_n = n * fmean(amount(spent) for _, spent in episodes)
            ends = (amount_for_n / share if share else math.inf for share in (rate.high, rate.likely, rate.low))
            return Range(*(max(end, minimum) for end in ends))

        paid = sum((spent for _, spent in episodes), Cost())
        return cls(
            n=n,
            concurrency=concurrency,
            source=source,
            episodes=len(episodes),
            accepted=accepted,
            paid=paid,
            elapsed=elapsed,
            per_persona=rate,
            personas=extrapolate(lambda _spent: 1),
            requests=extrapolate(lambda spent: spent.usage.requests),
            input_tokens=extrapolate(lambda spent: spent.usage.input_tokens),
            output_tokens=extrapolate(lambda spent: spent.usage.output_tokens),
            cost_usd=None if paid.cost_usd is None else extrapolate(lambda spent: spent.cost_usd or 0.0),
            # A run takes at least the time of one episode.
            seconds=extrapolate(lambda _spent: episode_seconds / concurrency, minimum=episode_seconds),
        )

    def rows(self) -> list[tuple[str, str, str, str]]:
        """Return the heading and one row per figure: name, likely value, low and high end; `?` for an infinite end."""
        figures: list[tuple[str, Range | None, Callable[[float], str]]] = [
            ("personas needed", self.personas, lambda count: f"{math.ceil(count):,}"),
            ("trajectories for each", self.per_persona, lambda count: f"{count:.2f}"),
            ("requests", self.requests, compact),
            ("tokens in", self.input_tokens, compact),
            ("tokens out", self.output_tokens, compact),
            ("cost", self.cost_usd, dollars),
            (f"time, {self.concurrency:,} in flight", self.seconds, duration),
        ]
        table = [(f"for n = {self.n:,}", "likely", "from", "to")]
        for name, values, text_of in figures:
            ends = () if values is None else (values.likely, values.low, values.high)
            likely, low, high = [text_of(end) if math.isfinite(end) else "?" for end in ends] or ("unknown", "", "")
            table.append((name, likely, low, high))
        return table

    def __str__(self) -> str:
        return "\n".join(f"{name:<26}{likely:>12}{low:>12}{high:>12}" for name, likely, low, high in self.rows())

    def as_json(self) -> dict[str, Any]:
        """Return the fields by name, with the sample's fields under `sample`; an infinite end is None."""
        fields = {name: _finite(value) for name, value in asdict(self).items() if name not in {"paid", "elapsed"}}
        sample = {name: fields.pop(name) for name in ("episodes", "accepted")}
        usage = self.paid.usage.model_dump()
        return {
            **fields,
            "sample": {**sample, **usage, "cost_usd": self.paid.cost_usd, "seconds": self.elapsed},
            "confidence": CONFIDENCE,
        }


def _finite(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _finite(item) for name, item in cast("dict[str, Any]", value).items()}
    if isinstance(value, tuple | list):
        return [_finite(item) for item in cast("list[Any]", value)]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def wilson(hits: float, trials: int, *, maximum: int = 1) -> Range:
    """Return the confidence range of a mean, from `trials` numbers between 0 and `maximum` with the sum `hits`.

    Wilson's interval of a proportion; it is too wide for numbers strictly between 0 and `maximum`.
    """
    z = NormalDist().inv_cdf((1 + CONFIDENCE) / 2)
    share, spread = hits / maximum / trials, z * z / trials
    center = (share + spread / 2) / (1 + spread)
    half_width = z / (1 + spread) * math.sqrt(share * (1 - share) / trials + spread / trials / 4)
    low, high = max(0.0, center - half_width) if hits else 0.0, 1.0 if share == 1 else min(1.0, center + half_width)
    # A sample without a hit does not prove that the yield is 0.
    return Range(maximum * low, maximum * (share if hits else center), maximum * high)


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

    The episodes are discarded: a run plays and pays for these personas again. The sample takes the first personas, and
    consumes those of an iterator.

    Assumptions: the backend is as fast with `concurrency` episodes in flight as with `sample`, later personas are like
    the first ones, and the share of near-duplicate scripts stays that of the sample.

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
        BudgetSpent: The budget does not cover one whole episode.
        RunStopped: No episode can continue.
    """
    if isinstance(sample, bool) or not isinstance(sample, int) or sample < 1:  # pyright: ignore[reportUnnecessaryIsInstance]
        raise InputError(f"sample is {sample!r}; expected a whole number, 1 or more")
    if unusable := settings.keys() & {"output", "fresh"}:
        raise InputError(f"an estimate keeps nothing: leave out {', '.join(sorted(unusable))}")
    run_settings = RunSettings.make({"n": n, "concurrency": concurrency, "shard": settings.pop("shard", None)})
    in_flight = MIN_IN_FLIGHT if run_settings.concurrency == "auto" else run_settings.concurrency
    for name in ("workers", "cluster"):
        settings.pop(name, None)
    scripts: ScriptSource | None = settings.pop("scripts", None)
    chosen, source = await _sample(personas, scripts, settings.pop("column", None), sample)
    # `synthesize` reports invalid values; they must not break the multiplication first.
    counts = [settings.get(name, 1) for name in ("branches", "episodes_per_script")]
    per_episode = math.prod(count for count in counts if isinstance(count, int) and count > 0)
    history: list[Progress] = []

    def record(progress: Progress) -> None:
        history.append(progress)
        if on_progress is not None:
            on_progress(progress)

    with TemporaryDirectory(prefix="refinesynth-dry-run-") as folder:
        try:
            result = await synthesize(
                None if scripts is not None else chosen,
                # With a lower `n`, the run could end before the last persona.
                len(chosen) * per_episode,
                backend,
                scripts=None if scripts is None else chosen,
                output=Path(folder) / "run",
                concurrency=min(in_flight, len(chosen)),
                budget=budget,
                on_progress=record,
                **settings,
            )
        except RunStopped as error:
            # The outer message names the temporary folder, which is deleted.
            raise RunStopped(str(error.__cause__ or error)) from error
        run = RunFolder.open(result.path)
        lines = [*run.episodes(), *run.waiting_lines()]
    if not lines:
        raise BudgetSpent(f"the budget of {budget} did not pay for one whole episode: give a higher one, or none.")
    # Sum over episodes of their time in flight, in seconds.
    in_flight_s = sum(earlier.in_flight * (later.elapsed - earlier.elapsed) for earlier, later in pairwise(history))
    return Estimate.of(
        [(line.trajectories, line.spent) for line in lines],
        n=run_settings.wanted(),
        per_episode=per_episode,
        concurrency=in_flight,
        source=source,
        elapsed=history[-1].elapsed,
        episode_seconds=in_flight_s / len(lines),
    )


async def _sample(
    source: PersonaSource | None, scripts: ScriptSource | None, column: str | None, sample: int
) -> tuple[list[Persona], str]:
    """Return `sample` personas, with their scripts if given, and the description of the source."""
    first: list[Persona] = []
    async with open_source(source, scripts, column=column) as personas:
        await personas.read_first()
        async for _, persona in personas:
            first.append(persona)
            if len(first) == sample:
                break
        return first, personas.description
