"""Tasks of other packages, made for Inspect: `inspect:inspect_evals/tau2_airline`, `inspect:PACKAGE/TASK?name=value`.

Such a task has its own solver and scorer. It gets a score in the form of our benchmarks, so that evaluations are resumed and
compared alike.
"""

import json
import re
from collections.abc import Sequence
from importlib.metadata import entry_points
from math import nan
from typing import Any
from urllib.parse import parse_qsl

import anyio
from inspect_ai import Task, task_with  # pyright: ignore[reportUnknownVariableType] - of types of its extras
from inspect_ai.event import ModelEvent
from inspect_ai.log import transcript
from inspect_ai.model import GenerateConfig
from inspect_ai.scorer import Score, Scorer, Target, mean, scorer, stderr, value_to_float
from inspect_ai.solver import Generate, Solver, TaskState, solver
from inspect_ai.util import registry_create

from refinesynth.errors import InputError
from refinesynth.evaluate.benchmarks import INSPECT
from refinesynth.evaluate.episode_counts import SCORE
from refinesynth.evaluate.inspect_models import ON_FAILURE
from refinesynth.evaluate.settings import TaskSettings

_FORM = f"expected {INSPECT}:PACKAGE/TASK, such as {INSPECT}:inspect_evals/tau2_airline"
_RIGHT_OR_WRONG = value_to_float()


def inspect_task(options: TaskSettings, *, title: str, config: GenerateConfig, facts: dict[str, Any]) -> Task:
    """A task of an installed package, by `options.argument`; its samples are in the order of their ids.

    Raises:
        InputError: There is no such task, it cannot be made, or the options are for benchmarks of refinesynth alone.
    """
    name, _, given = options.argument.partition("?")
    if not re.fullmatch(r"[\w.-]+/[\w.-]+", name):
        raise InputError(f"the task {INSPECT}:{options.argument} has no name of a package's task; {_FORM}")
    usual = TaskSettings()
    for one in ("data", "perturb", "steps", "shots"):
        if getattr(options, one) != getattr(usual, one):
            raise InputError(
                f"--{one} is for benchmarks of refinesynth, not for {name}; leave it out (its own arguments: {name}?NAME=VALUE)"
            )
    try:
        # Of a value that is no JSON, the text.
        arguments = {
            key: _value(text) for key, text in parse_qsl(given, keep_blank_values=True, strict_parsing=bool(given))
        }
        task = registry_create("task", name, **arguments)
    except LookupError as error:
        raise InputError(f"Inspect knows no task {name!r}: {_why_unknown(name.partition('/')[0])}") from error
    except Exception as error:  # whatever another package's code raises
        raise InputError(f"the task {name!r} cannot be made: {type(error).__name__}: {error}") from error
    if not task.scorer:
        raise InputError(f"the task {name!r} has no scorer, so nothing can be compared; give another task")
    if all(sample.id is not None for sample in task.dataset):
        # Some are shuffled at random, and --limit and a second call need the same order.
        task.dataset.sort(key=lambda sample: _natural(str(sample.id)))
    elif task.dataset.shuffled:
        raise InputError(
            f"the task {name!r} shuffles samples without ids, so no second call finds them; try {name}?shuffle=false"
        )
    return task_with(
        task,
        name=title,
        solver=unless_failed(task.solver),
        scorer=as_episode(task.scorer),
        config=task.config.merge(config),
        metadata={**(task.metadata or {}), **facts},
        fail_on_error=True,
        continue_on_fail=True,
    )


def _why_unknown(package: str) -> str:
    points = entry_points(group="inspect_ai", name=package)
    for point in points:
        try:
            point.load()
        except Exception as error:  # noqa: BLE001 - Inspect has only logged it
            return f"the package {package} cannot be imported: {error}"
    if points:
        return f"the package {package} has none of that name; its documentation lists them"
    return f"no installed package {package} offers tasks (for inspect_evals: pip install 'refinesynth[inspect-evals]')"


def _value(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return text


def _number(value: Any) -> float:
    """A score as a number; NaN for those that Inspect would count as 0 for want of a meaning: other words, lists, mappings."""
    if isinstance(value, str) and not re.fullmatch(r"[CIPN]|(?i:yes|no|true|false)|[\d.]+", value):
        return nan
    return _RIGHT_OR_WRONG(value) if isinstance(value, str | int | float) else nan


def _natural(text: str) -> list[tuple[int, str]]:
    """Sorts 10 behind 9."""
    return [(int(part), "") if part.isdecimal() else (-1, part) for part in re.split(r"(\d+)", text)]


@solver
def unless_failed(inner: Solver) -> Solver:
    """Play a task, and fail the sample with the first failed request: tasks such as tau2's catch its error and go on.

    A failure of our backends ends the sample at once; that of another provider is found when the sample has ended.
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
        found = [one for each in scorers if (one := await each(state, target)) is not None]
        if not found:
            raise ValueError("the task gave no score")
        first = _number(found[0].value)
        if not 0 <= first <= 1:
            raise ValueError(
                f"the task's score is {found[0].value!r}; expected a number from 0 to 1, or right and wrong"
            )
        turns = sum(message.role == "assistant" for message in state.messages)
        return Score(
            value={"success": float(first == 1), "progress": first},
            answer=found[0].answer,
            explanation=found[0].explanation,
            metadata={"counts": {"turns": turns}, "stopped": "", "faults": [], "scores": [one.value for one in found]},
        )

    return score
