"""A benchmark as a task of Inspect."""

from collections.abc import Generator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from math import nan
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple, cast

from inspect_ai import Task
from inspect_ai.dataset import MemoryDataset, Sample
from inspect_ai.model import GenerateConfig
from inspect_ai.scorer import Score, Scorer, Target, mean, scorer, stderr
from inspect_ai.solver import TaskState

from refinesynth.errors import InputError
from refinesynth.evaluate.agent import RESULT, player
from refinesynth.evaluate.benchmarks import Chosen, choose
from refinesynth.evaluate.environments.environment import Compat
from refinesynth.evaluate.environments.perturbation import PERTURBATIONS
from refinesynth.evaluate.measures import SCORE, Counts
from refinesynth.evaluate.pool import EnvironmentPool


@scorer(metrics={"*": [mean(), stderr()]}, name=SCORE)
def episode() -> Scorer:
    """Value: `success` (0 or 1), `progress` (0 to 1), the environment's own measures, and the episode's rates; NaN, which
    Inspect takes for unscored, where nothing happened that a rate could be taken of.

    Metadata: `counts`, the fields of `Counts`, to be summed; `stopped`, `attempts`, `faults` and the instance's `level`.
    """

    async def score(state: TaskState, target: Target) -> Score:
        del target
        found: dict[str, Any] = state.store.get(RESULT)
        counts = cast("dict[str, int]", found["counts"])
        rates = {name: nan if rate is None else rate for name, rate in Counts(**counts).rates.items()}
        value = {"success": found["success"], "progress": found["progress"], **found["measures"], **rates}
        kept = {name: found[name] for name in ("counts", "stopped", "attempts", "faults")}
        return Score(
            value=value,
            answer=f"{100 * found['progress']:.0f} % in {counts['turns']} turns",
            explanation=f"ended by: {found['stopped']}",
            metadata={**kept, "level": state.metadata.get("level", "")},
        )

    return score


MAX_TOKENS = 1_024
"""Of one answer, where nothing else is asked for."""


class Options(NamedTuple):
    """Options of a task, beside its benchmark."""

    data: Path | None = None
    """Folder of benchmark data."""
    argument: str = ""
    compat: Compat = "agentboard"
    perturb: str = ""
    """`P1` to `P5`, or none."""
    reflexion: int = 0
    """Attempts at most; 0 and 1 are one."""
    steps: int | None = None
    """Actions of an attempt at most; None takes the benchmark's."""
    shots: int = 0
    """Worked examples in the first message, 0 or 1."""


class Places(NamedTuple):
    """Places where environments run, which is no part of what a task is."""

    environments: int = 0
    """Processes of each benchmark at most; 0 lets memory decide."""
    pythons: Mapping[str, str] = MappingProxyType({})
    """Benchmark to its interpreter; this one where none is named."""
    pools: list[EnvironmentPool] | None = None
    """Those that were opened there; None where nobody closes them but the end of the process."""


_places: ContextVar[Places] = ContextVar("places", default=Places())  # noqa: B039 - it is immutable


@contextmanager
def placed(environments: int, pythons: Mapping[str, str]) -> Generator[list[EnvironmentPool]]:
    """Within this block, tasks that are made run their environments there; they end with it.

    Gives the pools of the tasks, which are to be checked.
    """
    pools: list[EnvironmentPool] = []
    token = _places.set(Places(environments, pythons, pools))
    try:
        yield pools
    finally:
        _places.reset(token)
        for pool in pools:
            pool.close()


FACTS = "refinesynth"
"""Key of a log's metadata under which a task says what it is."""


def benchmark_task(name: str, options: Options) -> Task:
    """The task of a benchmark, with its pool of processes, of which one is started to see that all is there, but within
    `placed`.

    Raises:
        InputError: No such benchmark, missing data or packages; the message says what to do.
    """
    chosen = choose(name, data=options.data, argument=options.argument, compat=options.compat)
    _check(chosen, options)
    instances = {instance.id: instance for instance in chosen.instances()}
    benchmark = chosen.benchmark
    steps = options.steps or benchmark.steps
    places = _places.get()
    pool = EnvironmentPool(benchmark, options.compat, options.perturb, places.pythons.get(name), places.environments)
    if places.pools is None:
        pool.check(solves=bool(options.shots))
    else:
        places.pools.append(pool)
    facts = {key: getattr(options, key) for key in ("argument", "perturb", "compat", "reflexion", "shots")}
    facts |= {"benchmark": name, "steps": steps, "instances": len(instances)}
    samples = [Sample(id=one.id, input=f"{name} {one.id}", metadata={"level": one.level}) for one in instances.values()]
    return Task(
        name=task_name(name, options.perturb),
        dataset=MemoryDataset(samples, name=name, location=str(options.argument or options.data or "")),
        solver=player(pool, instances, steps=steps, reflexion=options.reflexion, shots=options.shots),
        scorer=episode(),
        config=GenerateConfig(temperature=0.0, max_tokens=MAX_TOKENS),
        # A sample that failed does not keep the others from ending, and the same command runs it again.
        fail_on_error=True,
        continue_on_fail=True,
        metadata={FACTS: facts},
    )


def task_name(benchmark: str, perturb: str) -> str:
    """As it stands in logs."""
    return f"{benchmark}-{perturb}" if perturb else benchmark


def task_facts(metadata: Mapping[str, Any] | None) -> dict[str, Any]:
    """Return what a task says of itself in its log: benchmark, argument, perturb, compat, reflexion, shots, steps, instances.

    Two logs that differ in it do not compare. Empty for a log of another kind.
    """
    found: object = (metadata or {}).get(FACTS)
    return dict(cast("Mapping[str, Any]", found)) if isinstance(found, Mapping) else {}


def _check(chosen: Chosen, options: Options) -> None:
    if options.perturb:
        known = PERTURBATIONS.get(options.perturb)
        if known is None or chosen.benchmark.name not in known.benchmarks:
            possible = [key for key, one in PERTURBATIONS.items() if chosen.benchmark.name in one.benchmarks]
            raise InputError(
                f"{chosen.benchmark.name} has no perturbation {options.perturb!r}; expected {', '.join(possible) or 'none'}"
            )
    if options.steps is not None and options.steps < 1:
        raise InputError(f"an episode of {options.steps} actions; expected 1 or more")
    if options.reflexion < 0:
        raise InputError(f"reflexion with {options.reflexion} attempts; expected 1 or more")
    if options.shots not in (0, 1):
        raise InputError(f"shots is {options.shots}; expected 0 or 1")
