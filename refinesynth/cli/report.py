"""`refinesynth report`, `view` and `audit`: pages of a run, of an evaluation, and of flags to check."""

import os
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterable, Sequence
from contextlib import suppress
from itertools import combinations
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Annotated, Final

import typer
from rich.table import Table

from refinesynth.cli.backend_options import Set, tuned_backend
from refinesynth.cli.display import Display
from refinesynth.cli.exit_codes import ExitCode
from refinesynth.cli.field_options import option
from refinesynth.cli.interrupt import EXIT_CODES, interruptible
from refinesynth.cli.run_display import import_backends, run_displayed
from refinesynth.cli.run_records import Run, local_path
from refinesynth.cli.status import AsJson
from refinesynth.cli.terminal import note, notes, output, print_json, progress_line, say, styled
from refinesynth.client.budget.budget import Budget
from refinesynth.errors import InputError
from refinesynth.files.output_folder import cache_folder
from refinesynth.lazy_imports import check_installed
from refinesynth.outcome import Cost
from refinesynth.run import RunFolder
from refinesynth.text.formatting import counted, dollars, one_line

if TYPE_CHECKING:
    # At run time, only the functions of `audit` import it: it imports the clients of models and a web server.
    from refinesynth.report.audited_turns import Answers, AuditedTurn


def report(
    run: Run,
    *,
    output: Annotated[Path, option("-o", "--output", metavar="FILE")] = Path("report.html"),
    sample: Annotated[int, option(min=1)] = 500,
) -> None:
    """Write a report of a run: funnel, reasons of refusal, cost, mistakes, diversity, and trajectories to read.

    The page is one file without references to the network.

    Options:
        output: File to write; an earlier report is replaced.
        sample: Trajectories, and refused attempts, to include, drawn at random.
    """
    if output.is_dir():
        raise InputError(
            f"{str(output)!r} is a folder; give the file to write, such as {str(output / 'report.html')!r}"
        )
    from refinesynth.report import write_report

    with progress_line("the run"):
        write_report(run, output, sample=sample)
    note(f"written: {output}")


_HOST: Final = "127.0.0.1"


def view(
    folder: Annotated[Path, typer.Argument(metavar="FOLDER", help="Folder with logs of `evaluate`.")],
    *,
    port: Annotated[int, option(min=1, max=65_535)] = 7575,
) -> None:
    """Show an evaluation in Inspect's viewer, in a browser on this machine. Ctrl-C ends it.

    For a run, `refinesynth report` writes a page.
    """
    if next(folder.rglob("*.eval"), None) is None:
        raise InputError(
            f"{str(folder)!r} holds no logs of an evaluation (*.eval); give a folder that `refinesynth evaluate` wrote. For a run, give "
            "`refinesynth report RUN`"
        )
    check_installed("evaluate", "inspect_ai")
    inspect = [sys.executable, "-m", "inspect_ai", "view", "start"]
    command = [*inspect, "--log-dir", str(folder.resolve()), "--host", _HOST, "--port", str(port)]
    # A stale file in Inspect's data folder may name an unrelated process, which Inspect would end.
    with TemporaryDirectory() as data_home, interruptible() as interrupt:
        viewer = subprocess.Popen(command, env={**os.environ, "XDG_DATA_HOME": data_home})  # noqa: S603
        interrupt.call_on_signal(viewer.terminate)
        note(f"http://{_HOST}:{port} shows {folder} in some seconds; Ctrl-C ends it")
        code = viewer.wait()
    if interrupt.received is None:
        raise typer.Exit(code if code >= 0 else 128 - code)
    if interrupt.received is not signal.SIGINT:  # Ctrl-C is the normal end
        raise typer.Exit(EXIT_CODES[interrupt.received])


_FLAGS_RATER = "flags"
"""Name under which the flags of the run, or the labels of --truth, are compared with raters."""


def audit(
    run: Annotated[Path | None, typer.Argument(metavar="[RUN]", parser=local_path)] = None,
    *,
    rater: Annotated[str, option(metavar="NAME")] = "",
    per_cell: Annotated[int, option(min=1)] = 50,
    seed: int = 0,
    results: bool = False,
    judge: Annotated[str | None, option(metavar="BACKEND")] = None,
    set_: Set = None,
    budget: Annotated[str | None, option(metavar="LIMIT")] = None,
    truth: Annotated[Path | None, option(metavar="FILE")] = None,
    answers_file: Annotated[Path | None, option("-o", metavar="FILE")] = None,
    port: Annotated[int, option(min=0, max=65_535)] = 8410,
    json: AsJson = False,
) -> None:
    """Check flags by hand: a page shows turns without their flags, and you press `r` for right or `w` for wrong.

    Ctrl-C ends it; the same command continues. With --judge, a model rates the turns, which makes paid requests.

    Options:
        run: Folder or URL of a run; or give --truth.
        rater: Name under which your answers are kept.
        per_cell: Turns to rate of those without a flag, and of each kind of mistake.
        seed: Decides which turns are drawn.
        results: Show the agreement of all raters; ask nothing.
        judge: Let this model rate the turns.
        budget: Most that the judge may cost, such as 5usd or 2Mtok.
        truth: Rate labelled steps instead of a run: JSONL as of AgentProcessBench.
        answers_file: File of answers; by default audit.jsonl in the run, or beside FILE.
        port: On 127.0.0.1; 0 takes any free port.
    """
    if (results, judge is not None, bool(rater)).count(True) != 1:
        raise InputError("give one of --rater NAME (rate turns), --judge BACKEND (let a model rate) and --results")
    if judge is None and (set_ or budget is not None):
        raise InputError("--set and --budget concern the judge; add --judge BACKEND, or leave them out")
    if rater and (rater := one_line(rater, size=80).strip()) in {"", _FLAGS_RATER}:
        raise InputError(
            f"{rater!r} is no name of a rater; it must not be blank, or {_FLAGS_RATER!r}, which names the verdicts"
        )
    from refinesynth.report.audited_turns import Answers, sample_turns

    turns, path = _source(run, truth)
    if (path := answers_file or path) is None:
        raise InputError("the run is in an object store, and answers are kept here; give -o FILE")
    answers = Answers.read(path)
    if not results:
        with answers.open_for_writing():
            sample = sample_turns(turns, per_cell, seed)
            if not sample:
                raise InputError(f"there are no turns to rate in {str(run or truth)!r}")
            if judge is None:
                _ask_rater(sample, answers, rater, port)
                return
            code = _ask_judge(sample, answers, judge, set_ or [], Budget.of(budget))
        if code:
            raise typer.Exit(code)
        turns, _ = _source(run, truth)
    _show(turns, answers, json=json)


def _source(run: Path | None, truth: Path | None) -> "tuple[Iterable[AuditedTurn], Path | None]":
    """The turns and the default file of answers; no file for a run in an object store."""
    from refinesynth.report.audited_turns import labelled_turns, turns_of_run

    if truth is not None and run is None:
        return labelled_turns(truth), truth.with_suffix(".audit.jsonl")
    if run is None or truth is not None:
        raise InputError("give the folder of a run, or --truth FILE with labelled steps, not both")
    folder = RunFolder.open(run)
    copied = folder.path.resolve().is_relative_to(cache_folder().resolve())
    return turns_of_run(folder), None if copied else folder.path / "audit.jsonl"


def _ask_rater(sample: "Sequence[AuditedTurn]", answers: "Answers", rater: str, port: int) -> None:
    from refinesynth.report.audited_turns import audit_app
    from refinesynth.serve import serve

    with suppress(KeyboardInterrupt):
        text = f"asks {rater} about {counted(len(sample), 'turn')}; Ctrl-C ends it"
        serve(audit_app(sample, answers, rater), port=port, on_ready=lambda address: note(f"{address} {text}"))
    ratings = answers.by_rater.get(rater, {})
    note(f"{sum(turn.id in ratings for turn in sample)} of {len(sample)} answered, in {answers.path}")


def _ask_judge(
    sample: "Sequence[AuditedTurn]", answers: "Answers", judge: str, settings: Sequence[str], budget: Budget | None
) -> ExitCode:
    from refinesynth.report.audited_turns import judge_turns

    display, backend = Display(notes()), tuned_backend(judge, settings)
    import_backends({"backend": backend})
    display.say(f"asks {backend.label} about {counted(len(sample), 'turn')}, less those that it has rated")

    async def rate(**_: object) -> int:
        return await judge_turns(sample, backend, answers, budget=budget)

    try:
        failed, code = run_displayed(rate, display)
    finally:
        ratings, spent = answers.by_rater.get(backend.label, {}), answers.paid.get(backend.label, Cost())
        cost = "unknown" if spent.cost_usd is None else dollars(spent.cost_usd)
        display.say(f"{counted(len(ratings), 'answer')} in {answers.path}: {spent.tokens:,} tokens, cost {cost}")
    if failed:
        display.say(f"no usable answer about {counted(failed, 'turn')}; the same command asks again")
    return code if failed is None else ExitCode.INCOMPLETE if failed else ExitCode.OK


def _show(turns: "Iterable[AuditedTurn]", answers: "Answers", *, json: bool) -> None:
    """Print confusion matrices, and the agreement of each pair among the verdicts and the raters."""
    from refinesynth.report.audited_turns import agreement

    rated = {id_ for ratings in answers.by_rater.values() for id_ in ratings}
    known = {turn.id: turn for turn in turns if turn.id in rated}
    if not known:
        raise InputError(f"there are no answers in {str(answers.path)!r}; give --rater NAME or --judge BACKEND first")
    counts = Counter(
        (rater, known[id_].right, known[id_].cell, right)
        for rater, ratings in answers.by_rater.items()
        for id_, right in ratings.items()
        if id_ in known
    )
    rows = sorted({key[:3] for key in counts}, key=lambda row: (row[0], not row[1], row[2]))
    cells = [
        (rater, cell, counts[rater, flag, cell, True], counts[rater, flag, cell, False]) for rater, flag, cell in rows
    ]
    raters = [(_FLAGS_RATER, {id_: turn.right for id_, turn in known.items()}), *answers.by_rater.items()]
    pairs = [(first, second, agreement(its, others)) for (first, its), (second, others) in combinations(raters, 2)]
    if json:
        records = [dict(zip(("rater", "cell", "right", "wrong"), row, strict=True)) for row in cells]
        print_json({"cells": records, "agreement": [{"raters": pair, **stat._asdict()} for *pair, stat in pairs]})
        return
    table = Table("rater", "turns", box=None, padding=(0, 2, 0, 0), header_style="dim")
    for heading in ("right", "wrong", "share wrong"):
        table.add_column(heading, justify="right")
    for rater, cell, right, wrong in cells:
        table.add_row(styled(one_line(rater)), cell, str(right), str(wrong), f"{wrong / (right + wrong):.1%}")
    output().print(table)
    for first, second, stat in pairs:
        if stat.turns:
            kappa = "undefined" if stat.kappa is None else f"{stat.kappa:.2f} [{stat.low:.2f}, {stat.high:.2f}]"
            share = f"{stat.agreed} of {counted(stat.turns, 'turn')} ({stat.agreed / stat.turns:.1%})"
            say(one_line(f"{first} and {second} agree on {share}, kappa {kappa}"))
    say("[]: 95 % bootstrap interval over trajectories", "dim")
