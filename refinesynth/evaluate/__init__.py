"""Evaluation of agents in unseen environments, on Inspect AI.

The module can be called: `rs.evaluate("oracle", tasks="worlds:runs/held-out")` calls `evaluate` below.
"""

import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from os import PathLike
from types import ModuleType
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from refinesynth.evaluate.comparing.table_values import Comparison
    from refinesynth.evaluate.evaluation_run import Progress

__all__ = ["EvaluationResult", "TaskScore", "compare", "evaluate"]


@dataclass(frozen=True)
class TaskScore:
    """Scores of one task, from 0 to 1."""

    task: str
    """Benchmark, its argument and the perturbation: `babyai`, `worlds:runs/held-out`, `alfworld P1`."""
    instances: int
    """Instances with at least one finished episode."""
    missing: int
    """Episodes without a score, because they failed or were never played; the same call plays them."""
    success: float | None
    """Mean over epochs, then over instances; None while episodes are missing."""
    progress: float | None
    """Mean progress, likewise."""
    rates: Mapping[str, float | None]
    """`invalid_actions`, `recovers` and the others of docs/evaluation.md; None without a case to count."""


@dataclass(frozen=True)
class EvaluationResult:
    model: str
    folder: str
    """Folder of the logs, for `compare` and `refinesynth view`."""
    scores: tuple[TaskScore, ...]
    """All tasks in the folder, ordered by benchmark, argument and perturbation."""

    @property
    def complete(self) -> bool:
        """True if every episode has a score."""
        return not any(score.missing for score in self.scores)


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
    steps: int | None = None,
    form: Literal["auto", "react", "tools", "parallel_tools"] = "auto",
    user: str = "",
    environments: int = 0,
    pythons: Mapping[str, str] | None = None,
    settings: Mapping[str, Any] | None = None,
    budget: str | None = None,
    on_progress: "Callable[[Progress], object] | None" = None,
) -> EvaluationResult:
    """Play a model in environments, as `refinesynth evaluate` does.

    The same call continues an earlier one. Not async: Inspect runs its own event loops, also in a notebook.

    Args:
        model: A folder with a model, a GGUF file, a backend or litellm model string, hf/NAME, vllm/NAME, or a control:
            random, first, or oracle, which plays the known solution of a grounded world.
        tasks: held-out, alfworld, babyai, scienceworld, pddl, jericho, hotpotqa, worlds:RUN, mistakes:RUN,
            recovery:RUN, inspect:PACKAGE/TASK.
        data: Benchmark data, one folder per benchmark; docs/evaluation.md says where it comes from.
        output: Folder of the logs; by default evals/MODEL. What is there is gone on with.
        limit: Instances of each benchmark at most, the first ones.
        epochs: Plays of each instance.
        temperature: Temperature of the sampling; 0 is greedy.
        max_tokens: Most tokens of one answer; by default 1,024, which hold a thought and an action.
        seed: Seed that is passed to the model.
        perturb: The paper's other wordings of ALFWorld, beside the original one: P1, P2,P4, P1..P5.
        steps: Actions of a play at most; by default the benchmark's, mostly 30.
        form: Form of the chat: `react` (Thought and Action as text), `tools` (native tool calls, one function per
            action), `parallel_tools` (the same, and the task allows several calls in a message), or `auto`: the form
            that a folder from `refinesynth train` was trained in, else react. All calls of a message are executed.
        user: Model that plays the user in a task that has one, such as tau2's: any backend, with `--set
            user.SETTING=VALUE`. By default the evaluated model plays it too.
        environments: Processes of each benchmark at most; by default as memory allows, up to 16.
        pythons: Benchmark to the interpreter that has its package; this one where none is named.
        settings: Settings of the model: of a backend, see docs/backends.md, or of Inspect's provider, such as
            batch_size.
        budget: Most that may be spent: 5usd, 2Mtok. What is left to do waits for the same command with more.
        on_progress: Called before the first episode and after each.

    Raises:
        InputError: A setting or a file cannot be used, or no episode could be scored.
        RunFolderError: Another evaluation uses the folder.
        StorageError: The folder cannot be written.
        KeyboardInterrupt: The evaluation was interrupted; finished episodes are kept.
    """
    arguments = locals()
    from refinesynth.lazy_imports import check_installed

    check_installed("evaluate", "inspect_ai", "numpy")
    from refinesynth.evaluate.comparing.eval_logs import read_evaluation
    from refinesynth.evaluate.evaluation_run import evaluate as run_evaluation
    from refinesynth.evaluate.settings import Evaluation

    evaluation = Evaluation(
        **{name: value for name, value in arguments.items() if name != "on_progress" and value is not None}
    )
    logs = run_evaluation(evaluation, on_progress=on_progress or (lambda _: None))
    scores = tuple(
        TaskScore(
            task=logged.task,
            instances=len(logged.ids),
            missing=logged.missing,
            success=None if logged.missing else float(logged.means("success").mean()),
            progress=None if logged.missing else float(logged.means("progress").mean()),
            rates=logged.counts.rates,
        )
        for logged in read_evaluation(evaluation.folder)
    )
    return EvaluationResult(logs[0].eval.model, str(evaluation.folder), scores)


def compare(folders: Sequence[str | PathLike[str]], *, paper: bool = False) -> "Comparison":
    """Compare evaluations with the first of them: tables of scores, differences and rates.

    Args:
        folders: At least one, each written by `evaluate`.
        paper: Include the paper's published rows.

    Raises:
        InputError: A folder is missing, given twice, or holds no logs or one that cannot be read or used.
    """
    from pathlib import Path

    from refinesynth.lazy_imports import check_installed

    check_installed("evaluate", "inspect_ai", "numpy")
    from refinesynth.evaluate.comparing.comparison import compare as compared

    return compared([Path(folder) for folder in folders], paper=paper)


class _Callable(ModuleType):
    """Makes `refinesynth.evaluate` callable: the import of a submodule replaces the function by the module."""

    __call__ = staticmethod(evaluate)


sys.modules[__name__].__class__ = _Callable
