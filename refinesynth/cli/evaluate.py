"""`refinesynth evaluate`: a model on benchmarks that it has not seen."""

import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from refinesynth.cli.exits import ExitCode
from refinesynth.errors import InputError
from refinesynth.extras import check_installed

if TYPE_CHECKING:
    from inspect_ai.log import EvalLog

    from refinesynth.evaluate.evaluating import Progress

_ENDS = 2.0
"""Seconds after Ctrl-C within which the logs are written and the process ends, whatever is still at work."""
_EVERY = 10.0
"""Seconds between two lines on the progress."""

ModelOption = Annotated[
    str,
    typer.Option(
        "--model",
        "-m",
        metavar="NAME",
        help="A folder with a model, a backend or litellm model string, hf/NAME, vllm/NAME, or a control: random, first, or oracle, which plays the known solution of a grounded world.",
    ),
]
Tasks = Annotated[
    str,
    typer.Option(
        "--tasks",
        metavar="NAME,...",
        help="held-out, alfworld, babyai, scienceworld, pddl, jericho, hotpotqa, worlds:RUN, mistakes:RUN.",
    ),
]
Data = Annotated[
    Path | None,
    typer.Option(
        "--data",
        metavar="FOLDER",
        help="Benchmark data, one folder per benchmark; docs/evaluation.md says where it comes from.",
    ),
]
Output = Annotated[
    Path | None,
    typer.Option(
        "-o",
        "--output",
        metavar="FOLDER",
        help="Where the logs go; by default evals/MODEL. What is there is gone on with.",
    ),
]
Limit = Annotated[int | None, typer.Option("--limit", help="Instances of each benchmark at most, the first ones.")]
EpochsOption = Annotated[int, typer.Option("--epochs", help="How often each instance is played.")]
Temperature = Annotated[float, typer.Option("--temperature", help="0 is greedy.")]
MaxTokens = Annotated[int | None, typer.Option("--max-tokens", help="Of one answer; by default 1,024.")]
Seed = Annotated[int | None, typer.Option("--seed", help="Passed to the model.")]
Perturb = Annotated[
    str,
    typer.Option(
        "--perturb",
        metavar="P1..P5",
        help="The paper's other wordings of ALFWorld, beside the original one: P1, P2,P4, P1..P5.",
    ),
]
Reflexion = Annotated[
    int,
    typer.Option(
        "--reflexion", metavar="N", help="Attempts at an instance at most, with a reflection after each that failed."
    ),
]
Steps = Annotated[
    int | None, typer.Option("--steps", help="Actions of an attempt at most; by default the benchmark's, mostly 30.")
]
Shots = Annotated[
    int,
    typer.Option(
        "--shots",
        metavar="0|1",
        help="Worked examples in the first message: another instance, solved by the oracle (worlds and mistakes).",
    ),
]
CompatOption = Annotated[
    str,
    typer.Option("--compat", help="agentboard keeps its quirks, so that scores compare with published ones; repaired."),
]
Environments = Annotated[
    int,
    typer.Option(
        "--environments",
        metavar="N",
        help="Processes of each benchmark at most; by default as memory allows, up to 16.",
    ),
]
Python = Annotated[
    list[str] | None,
    typer.Option(
        "--python", metavar="NAME=PATH", help="The interpreter that has that benchmark's package. Repeat it for more."
    ),
]
Set = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="SETTING=VALUE",
        help="A setting of the model: of a backend, see docs/backends.md, or of Inspect's provider, such as batch_size=16.",
    ),
]
BudgetOption = Annotated[
    str | None,
    typer.Option(
        "--budget",
        metavar="AMOUNT",
        help="Most that may be spent: 5usd, 2Mtok. What is left to do waits for the same command with more.",
    ),
]


def evaluate(
    *,
    model: ModelOption,
    tasks: Tasks,
    data: Data = None,
    output: Output = None,
    limit: Limit = None,
    epochs: EpochsOption = 1,
    temperature: Temperature = 0.0,
    max_tokens: MaxTokens = None,
    seed: Seed = None,
    perturb: Perturb = "",
    reflexion: Reflexion = 0,
    steps: Steps = None,
    shots: Shots = 0,
    compat: CompatOption = "agentboard",
    environments: Environments = 0,
    python: Python = None,
    set_: Set = None,
    budget: BudgetOption = None,
) -> None:
    """Play a model in environments that it has never seen, and write Inspect logs.

    The same command again keeps what is finished. `refinesynth compare` and `refinesynth view` read the folder.
    """
    check_installed("evaluate", "inspect_ai", "numpy")
    if compat not in ("agentboard", "repaired"):
        raise InputError(f"--compat {compat!r}; expected agentboard or repaired")
    from refinesynth.cli.interrupt import ended_within, interruptible
    from refinesynth.cli.terminal import notes

    board = _Board()
    with ended_within(_ENDS, lambda: notes().print(board.interrupted, soft_wrap=True)) as end:
        with interruptible() as interrupt:  # This takes seconds; then Inspect takes the signals.
            from refinesynth.evaluate.evaluating import Evaluation
            from refinesynth.evaluate.evaluating import evaluate as run
        if interrupt.exit_code is not None:
            end()
            raise typer.Exit(interrupt.exit_code)
        asked = Evaluation(
            model=model,
            tasks=tasks,
            data=data,
            output=output,
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
            pythons=dict(_pair(text, "--python", "NAME=PATH") for text in python or ()),
            settings={
                name: _value(text) for name, text in (_pair(text, "--set", "SETTING=VALUE") for text in set_ or ())
            },
            budget=budget,
        )
        try:
            logs = run(asked, on_progress=board.show)
        except KeyboardInterrupt:
            end()
            raise typer.Exit(ExitCode.INTERRUPTED) from None
    raise typer.Exit(_report(logs, asked.folder))


class _Board:
    """Progress lines of an evaluation: tasks and bounds first, then finished episodes and the time left."""

    def __init__(self) -> None:
        self._shown: float | None = None
        self.interrupted = "interrupted before an episode was played"

    def show(self, now: "Progress") -> None:
        """Say the first line, or the state, at most every ten seconds."""
        from refinesynth.cli.terminal import notes
        from refinesynth.text.figures import counted, duration

        done = f"{now.finished:,} of {counted(now.of, 'episode')}"
        self.interrupted = f"interrupted: {done} finished, kept in {now.folder}; the same command goes on"
        if now.seconds_left is None:
            tasks = ", ".join(f"{task} (at most {counted(steps, 'action')})" for task, steps in now.steps.items())
            bound = f"an answer has at most {now.max_tokens:,} tokens (--max-tokens)"
            notes().print(f"{now.model} plays {tasks}: {done} finished; {bound}", soft_wrap=True)
        elif self._shown is None or now.finished == now.of or time.monotonic() - self._shown >= _EVERY:
            self._shown = time.monotonic()
            notes().print(f"{done} finished, about {duration(now.seconds_left)} to go", soft_wrap=True)


def _report(logs: "Sequence[EvalLog]", folder: Path) -> ExitCode:
    """Say what came of it, and what failed, if anything did: Inspect's own exit code does not."""
    from inspect_ai.log import read_eval_log_sample_summaries

    from refinesynth.cli.terminal import notes, output
    from refinesynth.evaluate.comparing.published import INSTANCES

    code = ExitCode.OK
    for log in logs:
        if log.status == "success":
            continue
        code = ExitCode.FELL_SHORT
        failed = [one.error for one in read_eval_log_sample_summaries(log.location) if one.error]
        first = failed[0] if failed else log.error.message if log.error else log.status
        notes().print(
            f"{log.eval.task}: {len(failed)} of {log.eval.dataset.samples} instances failed, the first with: {first}. "
            "The same command plays them again.",
            soft_wrap=True,
        )
    paper = " --paper" if any(log.eval.task.rpartition("/")[2] in INSTANCES for log in logs) else ""
    output().print(
        f"logs: {folder}\nNext:\n  refinesynth compare {folder}{paper}\n  refinesynth view {folder}", soft_wrap=True
    )
    return code


def _pair(text: str, option: str, form: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not (name.strip() and equals and value.strip()):
        raise InputError(f"{option} {text!r}: write {form}")
    return name.strip(), value.strip()


def _value(text: str) -> Any:
    """As JSON where it is some, else the text."""
    import orjson

    try:
        return orjson.loads(text)
    except orjson.JSONDecodeError:
        return text
