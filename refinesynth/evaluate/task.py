"""A benchmark as a task of Inspect."""

from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from math import nan
from typing import Any, cast

from inspect_ai import Task
from inspect_ai.dataset import MemoryDataset, Sample
from inspect_ai.model import GenerateConfig
from inspect_ai.scorer import Score, Scorer, Target, mean, scorer, stderr
from inspect_ai.solver import TaskState

from refinesynth.errors import InputError
from refinesynth.evaluate.agent import RESULT, player
from refinesynth.evaluate.benchmarks import INSPECT, find, read_instances
from refinesynth.evaluate.chat_form import FORMS
from refinesynth.evaluate.environment_pool import EnvironmentPool
from refinesynth.evaluate.environments.environment import Benchmark
from refinesynth.evaluate.environments.perturbation import PERTURBATIONS
from refinesynth.evaluate.episode_counts import SCORE, Counts
from refinesynth.evaluate.settings import TaskSettings


@scorer(metrics={"*": [mean(), stderr()]}, name=SCORE)
def episode() -> Scorer:
    """Score with `success` (0 or 1), `progress` (0 to 1), the environment's measures and rates (NaN, unscored, if undefined).

    Metadata: `counts` (the fields of `Counts`, to be summed), `stopped`, `attempts`, `faults` and the instance's `level`.
    """

    async def score(state: TaskState, target: Target) -> Score:
        del target
        found: dict[str, Any] = state.store.get(RESULT)
        counts = cast("dict[str, int]", found["counts"])
        rates = {name: nan if rate is None else rate for name, rate in Counts(**counts).rates.items()}
        value = {"success": found["success"], "progress": found["progress"], **found["measures"], **rates}
        kept = {name: found[name] for name in ("counts", "stopped", "faults")}
        return Score(
            value=value,
            answer=f"{100 * found['progress']:.0f} % in {counts['turns']} turns",
            explanation=f"ended by: {found['stopped']}",
            metadata={**kept, "level": state.metadata.get("level", "")},
        )

    return score


MAX_TOKENS = 1_024
_CONFIG = GenerateConfig(temperature=0.0, max_tokens=MAX_TOKENS)


def _checked_pool(benchmark: Benchmark, options: TaskSettings) -> EnvironmentPool:
    """Pool of a task that Inspect makes, closed at the end of the process."""
    pool = EnvironmentPool(benchmark, options.perturb)
    pool.check(solves=bool(options.shots))
    return pool


_pool_of: ContextVar[Callable[[Benchmark, TaskSettings], EnvironmentPool]] = ContextVar("pool", default=_checked_pool)


@contextmanager
def placed(environments: int, pythons: Mapping[str, str]) -> Generator[list[EnvironmentPool]]:
    """Within the block, environments of new tasks run in at most `environments` processes each (0: as memory allows).

    `pythons` names interpreters by benchmark. Yields the list of pools, which are not checked yet and end with the block.
    """
    pools: list[EnvironmentPool] = []

    def opened(benchmark: Benchmark, options: TaskSettings) -> EnvironmentPool:
        python = pythons.get(benchmark.name)
        pools.append(EnvironmentPool(benchmark, options.perturb, python, environments))
        return pools[-1]

    token = _pool_of.set(opened)
    try:
        yield pools
    finally:
        _pool_of.reset(token)
        for pool in pools:
            pool.close()


FACTS = "refinesynth"
"""Key of a task's facts in a log's metadata."""


def benchmark_task(name: str, options: TaskSettings) -> Task:
    """Task of a benchmark with its pool, of which one process is opened unless within `placed`; raises InputError."""
    if name == INSPECT:
        from refinesynth.evaluate.inspect_tasks import inspect_task

        about = {"argument": options.argument, "benchmark": name, **({"user": options.user} if options.user else {})}
        title = task_name(name, "", options.argument)
        return inspect_task(options, title=title, config=_CONFIG, facts={FACTS: about})
    benchmark = find(name)
    _check(benchmark, options)
    found = read_instances(name, data=options.data, argument=options.argument)
    instances = {instance.id: instance for instance in found}
    steps = options.steps or benchmark.steps
    pool = _pool_of.get()(benchmark, options)
    facts = {key: getattr(options, key) for key in ("argument", "perturb", "compat", "shots")}
    # Absent for text: an evaluation that was begun before there was a choice has other arguments otherwise.
    form = {"form": options.form} if options.form in FORMS else {}
    # Evaluations of earlier versions name `reflexion`, and compare with these where it was off.
    facts |= {"reflexion": 0, "benchmark": name, "steps": steps, "instances": len(instances), **form}
    samples = [Sample(id=one.id, input=f"{name} {one.id}", metadata={"level": one.level}) for one in instances.values()]
    return Task(
        name=task_name(name, options.perturb, options.argument),
        dataset=MemoryDataset(samples, name=name, location=str(options.argument or options.data or "")),
        solver=player(pool, instances, steps=steps, reflexion=0, shots=options.shots, **form),
        scorer=episode(),
        config=_CONFIG,
        # A sample that failed does not keep the others from ending, and the same command runs it again.
        fail_on_error=True,
        continue_on_fail=True,
        metadata={FACTS: facts},
    )


def task_name(benchmark: str, perturb: str, argument: str) -> str:
    """Name of a task in logs."""
    if benchmark == INSPECT:
        return argument.partition("?")[0].rpartition("/")[2]
    return f"{benchmark}-{perturb}" if perturb else benchmark


def task_facts(metadata: Mapping[str, Any] | None) -> dict[str, Any]:
    """Facts of a task in its log; empty for other logs. Logs with different facts do not compare."""
    found: object = (metadata or {}).get(FACTS)
    return dict(cast("Mapping[str, Any]", found)) if isinstance(found, Mapping) else {}


def _check(benchmark: Benchmark, options: TaskSettings) -> None:
    if options.perturb:
        known = PERTURBATIONS.get(options.perturb)
        if known is None or benchmark.name not in known.benchmarks:
            possible = [key for key, one in PERTURBATIONS.items() if benchmark.name in one.benchmarks]
            raise InputError(
                f"{benchmark.name} has no perturbation {options.perturb!r}; expected {', '.join(possible) or 'none'}"
            )
