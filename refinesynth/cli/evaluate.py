"""Commands `evaluate` and `compare`: scores of a model on unseen benchmarks, and comparisons of evaluations."""

import time
from collections.abc import Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.table import Table as Grid

from refinesynth.cli.backend_options import value_of
from refinesynth.cli.exit_codes import ExitCode
from refinesynth.cli.field_options import option, values_by_field
from refinesynth.cli.interrupt import force_exit_after, interruptible
from refinesynth.cli.terminal import note, say, styled
from refinesynth.cli.terminal import output as standard_output
from refinesynth.errors import InputError
from refinesynth.files.atomic_write import exclusive_access
from refinesynth.lazy_imports import check_installed
from refinesynth.text.formatting import counted, duration, one_line

if TYPE_CHECKING:
    from inspect_ai.log import EvalLog

    from refinesynth.evaluate.comparing.table_values import Table
    from refinesynth.evaluate.evaluation_run import Progress

_EXIT_TIMEOUT = 2.0
"""Most seconds from Ctrl-C to the end of the process, in which Inspect can write its logs."""
_INTERVAL = 10.0
"""Least seconds between two progress lines."""


def evaluate(
    *,
    python: Annotated[list[str] | None, option(metavar="NAME=PATH")] = None,
    set_: Annotated[list[str] | None, option("--set", metavar="SETTING=VALUE")] = None,
    **typed: Any,
) -> None:
    """Play a model in environments that it has never seen, and write Inspect logs.

    The same command again keeps finished episodes. `refinesynth compare` and `refinesynth view` read the folder.

    Options:
        python: The interpreter that has that benchmark's package. Repeat it for more.
        set_: A setting of the model: of a backend, see docs/backends.md, or of Inspect's provider, such as
            batch_size=16.
    """
    check_installed("evaluate", "inspect_ai", "numpy")
    printer = _ProgressPrinter()
    with force_exit_after(_EXIT_TIMEOUT, lambda: note(printer.interrupted_note)) as end:
        with interruptible() as interrupt:  # The imports take seconds; afterwards Inspect handles signals.
            from refinesynth.evaluate.evaluation_run import evaluate as run
            from refinesynth.evaluate.settings import Evaluation
        if interrupt.exit_code is not None:
            end()
            raise typer.Exit(interrupt.exit_code)
        evaluation = Evaluation(
            **values_by_field(Evaluation, typed),
            pythons=_pairs(python, "--python", "NAME=PATH"),
            settings={name: value_of(text) for name, text in _pairs(set_, "--set", "SETTING=VALUE").items()},
        )
        try:
            logs = run(evaluation, on_progress=printer.show)
        except KeyboardInterrupt:
            end()
            raise typer.Exit(ExitCode.INTERRUPTED) from None
    raise typer.Exit(_report(logs, evaluation.folder))


class _ProgressPrinter:
    def __init__(self) -> None:
        self._next_at = 0.0
        self.interrupted_note = "interrupted before an episode was played"

    def show(self, progress: "Progress") -> None:
        """Print tasks and bounds first, then the state at most every `_INTERVAL` seconds."""
        done = f"{progress.finished:,} of {counted(progress.total, 'episode')}"
        self.interrupted_note = f"interrupted: {done} finished, kept in {progress.folder}; the same command goes on"
        if progress.seconds_left is None:
            tasks = ", ".join(
                task if steps is None else f"{task} (at most {counted(steps, 'action')})"
                for task, steps in progress.steps.items()
            )
            bound = f"an answer has at most {progress.max_tokens:,} tokens (--max-tokens)"
            form = " by tool calls" if progress.tools else ""
            note(f"{progress.model} plays {tasks}{form}: {done} finished; {bound}")
        elif progress.finished == progress.total or time.monotonic() >= self._next_at:
            self._next_at = time.monotonic() + _INTERVAL
            note(f"{done} finished, about {duration(progress.seconds_left)} to go")


def _report(logs: "Sequence[EvalLog]", folder: Path) -> ExitCode:
    from inspect_ai.log import read_eval_log_sample_summaries

    from refinesynth.evaluate.comparing.table_values import INSTANCES

    code = ExitCode.OK
    for log in logs:
        if log.status == "success":
            continue
        code = ExitCode.INCOMPLETE
        summaries = read_eval_log_sample_summaries(log.location)
        failed = [sample.error for sample in summaries if sample.error]
        first_error = failed[0] if failed else log.error.message if log.error else log.status
        note(
            f"{log.eval.task}: {len(failed)} of {len(summaries)} plays failed, the first with: {first_error}. "
            "The same command plays them again."
        )
    paper = " --paper" if any(log.eval.task.rpartition("/")[2] in INSTANCES for log in logs) else ""
    say(f"logs: {folder}\nNext:\n  refinesynth compare {folder}{paper}\n  refinesynth view {folder}")
    return code


def _pairs(texts: Sequence[str] | None, option: str, form: str) -> dict[str, str]:
    pairs: dict[str, str] = {}
    for text in texts or ():
        name, _, value = map(str.strip, text.partition("="))
        if not (name and value):
            raise InputError(f"{option} {text!r}: write {form}")
        if name in pairs:
            raise InputError(f"{option} {name} is given twice; give it once")
        pairs[name] = value
    return pairs


_MAX_WIDTH = 10_000
"""Widest table; rows that are wider than the terminal continue on its next line."""


def compare(
    folders: Annotated[list[Path] | None, typer.Argument(metavar="[FOLDER]...")] = None,
    *,
    paper: bool = False,
    output: Annotated[Path | None, option("-o", "--output", metavar="FOLDER")] = None,
) -> None:
    """Compare evaluations: scores with intervals, paired differences, and reactions to failures.

    With --paper alone, show the published tables.

    Options:
        folders: Folders of `evaluate`; each is compared with the first.
        paper: Put the paper's published rows beside.
        output: Write compare.md, .html, .png and .json there.
    """
    if not folders and not paper:
        raise InputError("give folders of evaluations, or --paper for the published tables")
    if output is not None and output.exists() and not output.is_dir():
        raise InputError(f"{str(output)!r} is a file; give a folder for what is written")
    if output is not None:
        check_installed("report", "matplotlib", "numpy")
    with nullcontext() if output is None else exclusive_access(output):
        if folders:
            check_installed("evaluate", "inspect_ai", "numpy")
            from refinesynth.evaluate.comparing.comparison import compare as compared

            comparison = compared(folders, paper=paper)
        else:
            from refinesynth.evaluate.comparing.table_values import Comparison, main_table

            comparison = Comparison({}, [main_table({}, paper=True)])
        for name, model in comparison.models.items():
            say(styled(one_line(f"{name}: {model}")))
        for table in comparison.tables:
            _print_table(table)
        for warning in comparison.warnings:
            say(styled(f"! {one_line(warning)}", "yellow"))
        if output is not None:
            from refinesynth.evaluate.comparing.comparison_files import write_comparison

            paths = (one_line(str(path)) for path in write_comparison(comparison, output))
            note(styled(f"written: {', '.join(paths)}", "dim"))


def _print_table(table: "Table") -> None:
    say(styled(f"\n{table.title}", "bold"))
    grid = Grid(box=None, padding=(0, 2, 0, 0), pad_edge=False, header_style="dim")
    for index, heading in enumerate(table.columns):
        grid.add_column(heading, justify="left" if index < table.labels else "right", no_wrap=True)
    for row in table.texts():
        grid.add_row(*map(styled, map(one_line, row)))
    console = standard_output()
    console.width = _MAX_WIDTH
    console.print(grid)
    for remark in table.notes:
        say(styled(remark, "dim"))
