"""`estimate`: a handful of personas played for real, and from that what a whole run will take."""

import math
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Literal

from refinesynth.backends import BackendSpec
from refinesynth.client.budget.budget import Budget
from refinesynth.errors import BudgetSpent, InputError, RunStopped
from refinesynth.personas import PersonaSource
from refinesynth.run import EpisodeLine, RunFolder
from refinesynth.run.scripts import ScriptSource, open_source
from refinesynth.settings import RunSettings
from refinesynth.settings.shard import WHOLE
from refinesynth.synthesis.configured import configured
from refinesynth.synthesis.forecast import Estimate
from refinesynth.synthesis.progress import Progress
from refinesynth.synthesis.room import FEWEST
from refinesynth.synthesis.synthesize import synthesize
from refinesynth.trajectory import Persona

SAMPLE = 8
"""Personas that are played by default."""
_LOOKED_AT = 1_000
"""The sample is spread over so many personas at the beginning of the source: reading more might take long."""


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
    """Play `sample` personas as `synthesize` would, and extrapolate to `n`. This asks the backend and costs money.

    Nothing is kept: what is played here is played and paid again by a run. Of a file, a list or a dataset, the sample
    is spread over the first 1,000 personas; of an iterator it is the first ones, which are consumed.

    Not promised: that the backend is as quick with `concurrency` episodes in flight as it was with `sample`, that
    personas further on are like those at the beginning, and that no more scripts resemble earlier ones than did in the
    sample, where near-duplicates are refused.

    Args:
        personas: As for `synthesize`, as are `backend` and all further settings.
        n: Accepted trajectories to extrapolate to.
        backend: See `synthesize`.
        sample: Personas to play.
        concurrency: Episodes in flight that the time is extrapolated to; the 16 that a run begins with for `auto`.
        budget: What the sample may cost; if it is spent, the episodes that were finished count.
        on_progress: Called with each change of the sample's run.
        settings: Everything else that `synthesize` takes, but `output` and `fresh`. So few are played in this process,
            whatever `workers` says.

    Raises:
        InputError: Something that was given cannot be used.
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
    for name in ("workers", "cluster", "journals"):
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
    """`sample` personas, with their scripts where these are given; what they were read from, and how many it holds at
    most, if that is known.
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
    """How long all episodes lasted together: what was in flight between two moments, times the time between them."""
    return sum(one.in_flight * (then.elapsed - one.elapsed) for one, then in pairwise(moments))
