"""`refinesynth evaluate`: a model on benchmarks that it has not seen."""

import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from refinesynth.cli.backend_options import value_of
from refinesynth.cli.exit_codes import ExitCode
from refinesynth.cli.field_options import given
from refinesynth.cli.interrupt import ended_within, interruptible
from refinesynth.cli.terminal import notes, output
from refinesynth.errors import InputError
from refinesynth.extras import check_installed
from refinesynth.text.number_format import counted, duration

if TYPE_CHECKING:
    from inspect_ai.log import EvalLog

    from refinesynth.evaluate.evaluation_run import Progress

_ENDS = 2.0
"""Seconds after Ctrl-C within which the logs are written and the process ends, whatever is still at work."""
_EVERY = 10.0
"""Seconds between two lines on the progress."""

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


def evaluate(
    *,
    python: Python = None,
    set_: Set = None,
    compat: Annotated[str | None, typer.Option("--compat", hidden=True)] = None,
    reflexion: Annotated[int | None, typer.Option("--reflexion", hidden=True)] = None,
    shots: Annotated[int | None, typer.Option("--shots", hidden=True)] = None,
    **typed: Any,
) -> None:
    """Play a model in environments that it has never seen, and write Inspect logs.

    The same command again keeps what is finished. `refinesynth compare` and `refinesynth view` read the folder.
    """
    if compat is not None and compat != "agentboard":
        raise InputError(
            f"--compat {compat} was removed: environments keep AgentBoard's quirks, so that scores compare with published "
            "ones. Leave it out"
        )
    if reflexion is not None and reflexion > 1:
        raise InputError(
            f"--reflexion {reflexion} was removed: an instance is played once. Leave it out, or give --epochs for several plays"
        )
    if shots:
        raise InputError(f"--shots {shots} was removed: the first message has no worked example. Leave it out")
    for name, value in (("compat", compat), ("reflexion", reflexion), ("shots", shots)):
        if value is not None:
            notes().print(f"! --{name} is gone and does nothing", soft_wrap=True)
    check_installed("evaluate", "inspect_ai", "numpy")
    board = _Board()
    with ended_within(_ENDS, lambda: notes().print(board.interrupted, soft_wrap=True)) as end:
        with interruptible() as interrupt:  # This takes seconds; then Inspect takes the signals.
            from refinesynth.evaluate.evaluation_run import evaluate as run
            from refinesynth.evaluate.settings import Evaluation
        if interrupt.exit_code is not None:
            end()
            raise typer.Exit(interrupt.exit_code)
        asked = Evaluation(
            **given(Evaluation, typed),
            pythons=dict(_pair(text, "--python", "NAME=PATH") for text in python or ()),
            settings={
                name: value_of(text) for name, text in (_pair(text, "--set", "SETTING=VALUE") for text in set_ or ())
            },
        )
        try:
            logs = run(asked, on_progress=board.show)
        except KeyboardInterrupt:
            end()
            raise typer.Exit(ExitCode.INTERRUPTED) from None
    raise typer.Exit(_report(logs, asked.folder))


class _Board:
    def __init__(self) -> None:
        self._shown: float | None = None
        self.interrupted = "interrupted before an episode was played"

    def show(self, now: "Progress") -> None:
        """Print tasks and bounds first, then the state at most every `_EVERY` seconds."""
        done = f"{now.finished:,} of {counted(now.of, 'episode')}"
        self.interrupted = f"interrupted: {done} finished, kept in {now.folder}; the same command goes on"
        if now.seconds_left is None:
            tasks = ", ".join(
                task if steps is None else f"{task} (at most {counted(steps, 'action')})"
                for task, steps in now.steps.items()
            )
            bound = f"an answer has at most {now.max_tokens:,} tokens (--max-tokens)"
            form = " by tool calls" if now.tools else ""
            notes().print(f"{now.model} plays {tasks}{form}: {done} finished; {bound}", soft_wrap=True)
        elif self._shown is None or now.finished == now.of or time.monotonic() - self._shown >= _EVERY:
            self._shown = time.monotonic()
            notes().print(f"{done} finished, about {duration(now.seconds_left)} to go", soft_wrap=True)


def _report(logs: "Sequence[EvalLog]", folder: Path) -> ExitCode:
    from inspect_ai.log import read_eval_log_sample_summaries

    from refinesynth.evaluate.comparing.table_values import INSTANCES

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
