"""Inspect tasks for benchmarks and for tasks of other packages.

A task of another package (`inspect:inspect_evals/tau2_airline`, `inspect:PACKAGE/TASK?name=value`) has its own solver and
scorer. Its score gets the form of our benchmarks, which resuming and comparisons need.
"""

import json
import re
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from math import nan
from typing import Any, cast
from urllib.parse import parse_qsl

import anyio
from inspect_ai import (
    Task,
    task_with,  # pyright: ignore[reportUnknownVariableType] - of types of its extras
)
from inspect_ai.dataset import MemoryDataset, Sample
from inspect_ai.event import ModelEvent
from inspect_ai.log import transcript
from inspect_ai.model import GenerateConfig
from inspect_ai.scorer import Score, Scorer, Target, mean, scorer, stderr, value_to_float
from inspect_ai.solver import Generate, Solver, TaskState, solver
from inspect_ai.util import registry_create

from refinesynth.errors import InputError
from refinesynth.evaluate.agent import RESULT, player
from refinesynth.evaluate.benchmarks import INSPECT, find, read_instances
from refinesynth.evaluate.chat_form import FORMS
from refinesynth.evaluate.environment_pool import EnvironmentPool
from refinesynth.evaluate.environments.environment import Benchmark, digest_of
from refinesynth.evaluate.environments.perturbation import BENCHMARK as PERTURBED
from refinesynth.evaluate.environments.perturbation import PERTURBATIONS
from refinesynth.evaluate.episode_counts import SCORE, Counts
from refinesynth.evaluate.inspect_models import ON_FAILURE
from refinesynth.evaluate.settings import TaskSettings

_FORM = f"expected {INSPECT}:PACKAGE/TASK, such as {INSPECT}:inspect_evals/tau2_airline"
_TO_FLOAT = value_to_float()


def _inspect_task(options: TaskSettings) -> Task:
    """Task of an installed package, by `options.argument`; samples are sorted by id if all of them have one.

    Raises:
        InputError: The task is unknown or unusable, or an option is for benchmarks of refinesynth only.
    """
    name, _, query = options.argument.partition("?")
    if not re.fullmatch(r"[\w.-]+/[\w.-]+", name):
        raise InputError(f"the task {INSPECT}:{options.argument} has no name of a package's task; {_FORM}")
    defaults = TaskSettings()
    for option in ("data", "perturb", "steps"):
        if getattr(options, option) != getattr(defaults, option):
            raise InputError(
                f"--{option} is for benchmarks of refinesynth, not for {name}; leave it out (its own arguments: {name}?NAME=VALUE)"
            )
    try:
        # A value that is not JSON stays text.
        arguments = {
            key: _value(text) for key, text in parse_qsl(query, keep_blank_values=True, strict_parsing=bool(query))
        }
        task = registry_create("task", name, **arguments)
    except LookupError as error:
        raise InputError(
            f"Inspect knows no task {name!r}; install its package (for inspect_evals: pip install 'refinesynth[inspect-evals]')"
        ) from error
    except Exception as error:  # whatever another package's code raises
        raise InputError(f"the task {name!r} cannot be made: {type(error).__name__}: {error}") from error
    if not task.scorer:
        raise InputError(f"the task {name!r} has no scorer, so nothing can be compared; give another task")
    if all(sample.id is not None for sample in task.dataset):
        # Some tasks shuffle their samples, but --limit and a second call need the same order.
        task.dataset.sort(key=lambda sample: _natural_key(str(sample.id)))
    elif task.dataset.shuffled:
        raise InputError(
            f"the task {name!r} shuffles samples without ids, so no second call finds them; try {name}?shuffle=false"
        )
    facts = {"argument": options.argument, "benchmark": INSPECT, **({"user": options.user} if options.user else {})}
    return task_with(
        task,
        name=task_name(INSPECT, "", options.argument),
        solver=unless_failed(task.solver),
        scorer=as_episode(task.scorer),
        config=task.config.merge(_CONFIG),
        metadata={**(task.metadata or {}), FACTS: facts},
        fail_on_error=True,
        continue_on_fail=True,
    )


def _value(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return text


def _number(value: Any) -> float:
    """A score as a number; NaN for other words, lists and mappings, which Inspect would count as 0."""
    if isinstance(value, str) and not re.fullmatch(r"[CIPN]|(?i:yes|no|true|false)|[\d.]+", value):
        return nan
    return _TO_FLOAT(value) if isinstance(value, str | int | float) else nan


def _natural_key(text: str) -> list[tuple[int, str]]:
    """Sort key that puts 10 after 9."""
    return [(int(part), "") if part.isdecimal() else (-1, part) for part in re.split(r"(\d+)", text)]


@solver
def unless_failed(inner: Solver) -> Solver:
    """Play a task and fail the sample if a request fails; tasks such as tau2's would catch the error and continue.

    A failure of our backends ends the sample at once; a failure of another provider is found at its end.
    """

    async def solve(state: TaskState, generate: Generate) -> TaskState:
        with anyio.CancelScope() as scope:
            token = ON_FAILURE.set(scope.cancel)
            try:
                state = await inner(state, generate)
            finally:
                ON_FAILURE.reset(token)
        failed = [event.error for event in transcript().events if isinstance(event, ModelEvent) and event.error]
        if failed or scope.cancelled_caught:
            raise RuntimeError(f"a request to a model failed: {failed[0] if failed else 'see the log'}")
        return state

    return solve


@scorer(metrics={"*": [mean(), stderr()]}, name=SCORE)
def as_episode(scorers: Sequence[Scorer]) -> Scorer:
    """Score with `success` (1 if the first scorer's value is 1) and `progress` (that value); raises ValueError outside 0 to 1."""

    async def score(state: TaskState, target: Target) -> Score:
        results = [result for inner in scorers if (result := await inner(state, target)) is not None]
        if not results:
            raise ValueError("the task gave no score")
        value = _number(results[0].value)
        if not 0 <= value <= 1:
            raise ValueError(
                f"the task's score is {results[0].value!r}; expected a number from 0 to 1, or right and wrong"
            )
        turns, values = sum(message.role == "assistant" for message in state.messages), [item.value for item in results]
        return Score(
            value={"success": float(value == 1), "progress": value},
            answer=results[0].answer,
            explanation=results[0].explanation,
            metadata={"counts": {"turns": turns}, "stopped": "", "faults": [], "scores": values},
        )

    return score


@scorer(metrics={"*": [mean(), stderr()]}, name=SCORE)
def episode() -> Scorer:
    """Score with `success` (0 or 1), `progress` (0 to 1), the environment's measures and rates (NaN, unscored, if undefined).

    Metadata: `counts` (the fields of `Counts`, to be summed), `stopped`, `faults` and the instance's `level` and `digest`.
    """

    async def score(state: TaskState, target: Target) -> Score:
        del target
        result: dict[str, Any] = state.store.get(RESULT)
        counts = cast("dict[str, int]", result["counts"])
        rates = {name: nan if rate is None else rate for name, rate in Counts(**counts).rates.items()}
        value = {"success": result["success"], "progress": result["progress"], **result["measures"], **rates}
        metadata = {name: result[name] for name in ("counts", "stopped", "faults")}
        return Score(
            value=value,
            answer=f"{100 * result['progress']:.0f} % in {counts['turns']} turns",
            explanation=f"ended by: {result['stopped']}",
            metadata={**metadata, **{name: state.metadata.get(name, "") for name in ("level", "digest")}},
        )

    return score


MAX_TOKENS = 1_024
_CONFIG = GenerateConfig(temperature=0.0, max_tokens=MAX_TOKENS)


def _checked_pool(benchmark: Benchmark, options: TaskSettings) -> EnvironmentPool:
    """Pool of a task that Inspect makes, closed at the end of the process."""
    pool = EnvironmentPool(benchmark, options.perturb)
    pool.check()
    return pool


_pool_of: ContextVar[Callable[[Benchmark, TaskSettings], EnvironmentPool]] = ContextVar("pool", default=_checked_pool)


@contextmanager
def environment_pools(environments: int, pythons: Mapping[str, str]) -> Generator[list[EnvironmentPool]]:
    """Within the block, environments of new tasks run in at most `environments` processes each (0: as memory allows).

    `pythons` names interpreters by benchmark. Yields the list of pools, which are not checked; they are closed at the end.
    """
    pools: list[EnvironmentPool] = []

    def open_pool(benchmark: Benchmark, options: TaskSettings) -> EnvironmentPool:
        python = pythons.get(benchmark.name)
        pools.append(EnvironmentPool(benchmark, options.perturb, python, environments))
        return pools[-1]

    token = _pool_of.set(open_pool)
    try:
        yield pools
    finally:
        _pool_of.reset(token)
        for pool in pools:
            pool.close()


FACTS = "refinesynth"
"""Key of a task's facts in a log's metadata."""


def benchmark_task(name: str, options: TaskSettings) -> Task:
    """Task of a benchmark with its pool; outside `environment_pools`, one process is opened as a check. Raises InputError."""
    if name == INSPECT:
        return _inspect_task(options)
    benchmark = find(name)
    variants = [*PERTURBATIONS] if name == PERTURBED else []
    if options.perturb and options.perturb not in variants:
        raise InputError(f"{name} has no perturbation {options.perturb!r}; expected {', '.join(variants) or 'none'}")
    all_instances = read_instances(name, data=options.data, argument=options.argument)
    instances = {instance.id: instance for instance in all_instances}
    steps = options.steps or benchmark.steps
    pool = _pool_of.get()(benchmark, options)
    facts = {key: getattr(options, key) for key in ("argument", "perturb")}
    # Absent for text, because evaluations from before forms could be chosen have no such argument.
    form = {"form": options.form} if options.form in FORMS else {}
    facts |= {"benchmark": name, "steps": steps, "instances": len(instances), **form}
    samples = [
        # Ids of trajectories are unique in their run alone.
        Sample(
            id=id_,
            input=f"{name} {id_}",
            metadata={"level": item.level, "digest": digest_of(item.data) if "script" in item.data else ""},
        )
        for id_, item in instances.items()
    ]
    return Task(
        name=task_name(name, options.perturb, options.argument),
        dataset=MemoryDataset(samples, name=name, location=str(options.argument or options.data or "")),
        solver=player(pool, instances, steps=steps, **form),
        scorer=episode(),
        config=_CONFIG,
        # The other samples continue after a failed one, which the same command repeats.
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
    facts: object = (metadata or {}).get(FACTS)
    return dict(cast("Mapping[str, Any]", facts)) if isinstance(facts, Mapping) else {}


def task_key(metadata: Mapping[str, Any] | None) -> tuple[str, str, str]:
    """Benchmark, argument and perturbation of a task, from its facts; empty texts for another log."""
    facts = task_facts(metadata)
    return str(facts.get("benchmark") or ""), str(facts.get("argument") or ""), str(facts.get("perturb") or "")
