"""Agents in environments that they have never seen, on Inspect AI: an episode whose DungeonMaster is a real environment.

The module can be called: `rs.evaluate("oracle", tasks="worlds:runs/held-out")` is `evaluate` below, whether the
room was imported before or not.
"""

import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from os import PathLike
from types import ModuleType
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from refinesynth.evaluate.comparing.cells import Comparison
    from refinesynth.evaluate.evaluating import Progress

__all__ = ["EvaluationResult", "TaskScore", "compare", "evaluate"]


@dataclass(frozen=True)
class TaskScore:
    """The scores of one task, as shares of one."""

    task: str
    """Benchmark, its argument and the perturbation: `babyai`, `worlds:runs/held-out`, `alfworld P1`."""
    instances: int
    """Instances with at least one finished episode."""
    missing: int
    """Episodes that have no score: they failed, and the same call plays them again."""
    success: float | None
    """Mean over epochs, then over instances; None while episodes are missing."""
    progress: float | None
    """The same of the progress."""
    rates: Mapping[str, float | None]
    """How the agent dealt with its failures: `invalid_actions`, `recovers` and the others of docs/evaluation.md; None where
    nothing happened that a rate could be taken of."""


@dataclass(frozen=True)
class EvaluationResult:
    """Result of an evaluation."""

    model: str
    folder: str
    """Of the logs, which `compare` and `refinesynth view` read."""
    scores: tuple[TaskScore, ...]
    """In the order of the tasks' names; all that are in the folder."""

    @property
    def complete(self) -> bool:
        """Return whether every episode has a score."""
        return not any(one.missing for one in self.scores)


def evaluate(
    model: str,
    tasks: str,
    *,
    data: str | PathLike[str] | None = None,
    output: str | PathLike[str] | None = None,
    limit: int | None = None,
    epochs: int = 1,
    temperature: float = 0.0,
    max_tokens: int | None = None,
    seed: int | None = None,
    perturb: str = "",
    reflexion: int = 0,
    steps: int | None = None,
    shots: int = 0,
    compat: Literal["agentboard", "repaired"] = "agentboard",
    environments: int = 0,
    pythons: Mapping[str, str] | None = None,
    settings: Mapping[str, Any] | None = None,
    budget: str | None = None,
    on_progress: "Callable[[Progress], object] | None" = None,
) -> EvaluationResult:
    """Play a model in environments, as `refinesynth evaluate` does; the options are those of the command, described at
    the fields of `refinesynth.evaluate.evaluating.Evaluation`.

    The same call goes on where an earlier one ended. Not async: Inspect runs event loops of its own, in a notebook as well.

    Raises:
        InputError: Something that was asked cannot be done, or no episode could be scored.
        RunFolderError: Another evaluation is going on in the folder.
        StorageError: The folder cannot be written.
        KeyboardInterrupt: It was interrupted; what was finished is kept.
    """
    from pathlib import Path

    from refinesynth.extras import check_installed

    check_installed("evaluate", "inspect_ai", "numpy")
    from refinesynth.evaluate.comparing.reading import read_evaluation
    from refinesynth.evaluate.evaluating import Evaluation
    from refinesynth.evaluate.evaluating import evaluate as played

    asked = Evaluation(
        model=model,
        tasks=tasks,
        data=None if data is None else Path(data),
        output=None if output is None else Path(output),
        limit=limit,
        epochs=epochs,
        temperature=temperature,
        max_tokens=max_tokens,
        seed=seed,
        perturb=perturb,
        reflexion=reflexion,
        steps=steps,
        shots=shots,
        compat=compat,
        environments=environments,
        pythons=pythons or {},
        settings=settings or {},
        budget=budget,
    )
    logs = played(asked, on_progress=on_progress or (lambda _: None))
    scores = tuple(
        TaskScore(
            task=one.task,
            instances=len(one.ids),
            missing=one.missing,
            success=None if one.missing else float(one.means("success").mean()),
            progress=None if one.missing else float(one.means("progress").mean()),
            rates=one.counts.rates,
        )
        for one in read_evaluation(asked.folder)
    )
    return EvaluationResult(logs[0].eval.model, str(asked.folder), scores)


def compare(folders: Sequence[str | PathLike[str]], *, paper: bool = False) -> "Comparison":
    """Compare evaluations with the first of them, as `refinesynth compare` does: tables of scores, differences and rates.

    Args:
        folders: At least one, each written by `evaluate`.
        paper: Whether the paper's published rows stand beside.

    Raises:
        InputError: A folder is none, is given twice, holds no logs, or one that cannot be read or used.
    """
    from pathlib import Path

    from refinesynth.extras import check_installed

    check_installed("evaluate", "inspect_ai", "numpy")
    from refinesynth.evaluate.comparing.comparison import compare as compared

    return compared([Path(folder) for folder in folders], paper=paper)


class _Callable(ModuleType):
    """The room as `refinesynth.evaluate` shows it: an import of anything in it puts it in the place of the function."""

    __call__ = staticmethod(evaluate)


sys.modules[__name__].__class__ = _Callable
