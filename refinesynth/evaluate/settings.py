"""Settings of an evaluation. Imports nothing of Inspect."""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from refinesynth.errors import InputError
from refinesynth.option import INPUT, LIMITS, MACHINES, MODEL, OUTPUT, PLAY, Option

FromOne = Annotated[int, Field(ge=1)]


class TaskSettings(BaseModel):
    """Settings of a task that decide its results; invalid values raise InputError."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)

    data: Annotated[Path | None, Option(INPUT, "FOLDER")] = None
    """Benchmark data, one folder per benchmark; docs/evaluation.md says where it comes from."""
    argument: str = ""
    """Text behind the benchmark's name: `runs/held-out` of `worlds:runs/held-out`."""
    perturb: Annotated[str, Option(PLAY, "P1..P5", shows_default=False)] = ""
    """The paper's other wordings of ALFWorld, beside the original one: P1, P2,P4, P1..P5."""
    steps: Annotated[FromOne | None, Option(LIMITS, "N")] = None
    """Actions of a play at most; by default the benchmark's, mostly 30."""
    form: Annotated[Literal["auto", "react", "tools", "parallel_tools"], Option(PLAY)] = "auto"
    """Form of the chat: `react` (Thought and Action as text), `tools` (native tool calls, one function per action),
    `parallel_tools` (the same, and the task allows several calls in a message), or `auto`: the form that a folder from
    `refinesynth train` was trained in, else react. All calls of a message are executed."""

    user: Annotated[str, Option(MODEL, "NAME", shows_default=False)] = ""
    """Model that plays the user in a task that has one, such as tau2's: any backend, with `--set user.SETTING=VALUE`. By
    default the evaluated model plays it too."""

    def __init__(self, **settings: Any) -> None:
        try:
            super().__init__(**settings)
        except ValidationError as error:
            raise InputError(_explained(error)) from None


class Evaluation(TaskSettings):
    """Settings of an evaluation."""

    model: Annotated[str, Option(MODEL, "NAME", ("-m", "--model"), required=True)]
    """A folder with a model, a GGUF file, a backend or litellm model string, hf/NAME, vllm/NAME, or a control: random,
    first, or oracle, which plays the known solution of a grounded world."""
    tasks: Annotated[str, Option(INPUT, "NAME,...", required=True)]
    """held-out, alfworld, babyai, scienceworld, pddl, jericho, hotpotqa, worlds:RUN, mistakes:RUN,
    recovery:RUN, inspect:PACKAGE/TASK."""
    output: Annotated[Path | None, Option(OUTPUT, "FOLDER", ("-o", "--output"))] = None
    """Folder of the logs; by default evals/MODEL. What is there is gone on with."""
    limit: Annotated[FromOne | None, Option(LIMITS, "N")] = None
    """Instances of each benchmark at most, the first ones."""
    epochs: Annotated[FromOne, Option(LIMITS, "N")] = 1
    """Plays of each instance."""
    temperature: Annotated[float, Field(ge=0, le=2), Option(MODEL)] = 0.0
    """Temperature of the sampling; 0 is greedy."""
    max_tokens: Annotated[FromOne | None, Option(MODEL, "N")] = None
    """Most tokens of one answer; by default 1,024, which hold a thought and an action."""
    seed: Annotated[int | None, Option(MODEL)] = None
    """Seed that is passed to the model."""
    environments: Annotated[int, Field(ge=0), Option(MACHINES, "N", shows_default=False)] = 0
    """Processes of each benchmark at most; by default as memory allows, up to 16."""
    pythons: Mapping[str, str] = {}
    """Benchmark to the interpreter that has its package; this one where none is named."""
    settings: Mapping[str, Any] = {}
    """Settings of the model: of a backend, see docs/backends.md, or of Inspect's provider, such as batch_size."""
    budget: Annotated[str | None, Option(LIMITS, "AMOUNT")] = None
    """Most that may be spent: 5usd, 2Mtok. What is left to do waits for the same command with more."""

    @property
    def folder(self) -> Path:
        """Folder of the logs."""
        name = re.sub(r"[^\w.-]+", "-", self.model.rstrip("/")).strip("-.")
        return self.output or Path("evals") / (name or "model")


def _explained(error: ValidationError) -> str:
    problem = error.errors(include_url=False)[0]
    context = problem.get("ctx", {})
    expected = problem["msg"].removeprefix("Input should be ")
    if "ge" in context or "le" in context:
        expected = f"{context['ge']} or more" if "ge" in context else f"{context['le']} or less"
    return f"{'.'.join(map(str, problem['loc']))} is {problem['input']!r}; expected {expected}"
