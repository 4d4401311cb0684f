"""Entry points for Inspect: `inspect eval refinesynth/babyai --model refinesynth/gpt-4o -T data=data/`."""

from collections.abc import Callable
from typing import Literal

from inspect_ai import Task, task

from refinesynth.evaluate.agent import BaselineModel
from refinesynth.evaluate.benchmarks import TABLE
from refinesynth.evaluate.chat_form import Local
from refinesynth.evaluate.inspect_models import OwnBackend
from refinesynth.evaluate.settings import TaskSettings
from refinesynth.evaluate.task import benchmark_task, episode

__all__ = ["TASKS", "BaselineModel", "Local", "OwnBackend", "episode"]


def registered(name: str) -> Callable[..., Task]:
    """Register the function that makes the task of that name, and return it."""

    @task(name=name)
    def of_benchmark(
        *,
        data: str | None = None,
        argument: str = "",
        perturb: str = "",
        steps: int | None = None,
        form: Literal["auto", "react", "tools", "parallel_tools"] = "auto",
        user: str = "",
    ) -> Task:
        arguments = locals()
        return benchmark_task(name, TaskSettings(**{field: arguments[field] for field in TaskSettings.model_fields}))

    return of_benchmark


TASKS = {name: registered(name) for name in TABLE.entries()}
"""Functions by benchmark, also of installed packages, whose benchmarks are not imported here."""
