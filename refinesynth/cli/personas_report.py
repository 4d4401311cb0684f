"""What was found or done to a collection of personas, for people and as JSON."""

from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any, NoReturn, TypeVar

import typer

from refinesynth.cli.interrupt import interruptible
from refinesynth.cli.terminal import labelled, notes, output, styled
from refinesynth.personas import DedupReport, PersonaStats, Sample
from refinesynth.text.figures import counted
from refinesynth.text.jsontext import write_json
from refinesynth.text.printable import one_line, printable

_Result = TypeVar("_Result")


class _Stopped(BaseException):
    """A signal came. Not an `Exception`, so that nothing on its way up takes it for its own."""


def until_stopped(work: Callable[[Callable[[int], None]], _Result]) -> _Result:
    """Result of `work(report)`, called in this thread; `report(rows)` shows how many rows were read.

    Raises:
        typer.Exit: A signal came, with its exit code; `work` was left in the middle.
    """
    with interruptible() as interrupt, progress_line() as report:
        try:
            interrupt.stops(_stop)
            return work(lambda rows: report(f"{rows:,} rows"))
        except _Stopped:
            raise typer.Exit(interrupt.exit_code or 0) from None


def _stop() -> NoReturn:
    raise _Stopped


@contextmanager
def progress_line() -> Generator[Callable[[str], None]]:
    """A line that is written over on a terminal; nothing elsewhere."""
    console = notes()
    if not console.is_terminal:
        yield lambda _text: None
        return
    with console.status("reading") as status:
        yield status.update


_LISTED = 10
"""Most frequent things that people are shown; JSON has more."""


def show_stats(found: PersonaStats, *, json: bool) -> None:
    """Print what `stats` found."""
    if json:
        _print_json(found.as_json())
        return
    table = labelled(apart=2)
    table.add_row("personas", f"{found.personas:,}")
    for label, lengths in (("characters", found.characters), ("words", found.words)):
        table.add_row(
            label,
            f"{lengths.least:,} to {lengths.most:,}, median {lengths.median:,}, mean {lengths.mean:,}, "
            f"one in ten {lengths.longest_tenth:,} or more",
        )
    at_least = "" if found.distinct_words_exact else "at least "
    table.add_row("distinct words", f"{at_least}{found.distinct_words:,}")
    table.add_row("exact duplicates", _share(found.exact_duplicates, found.personas))
    if found.near_duplicates is not None:
        table.add_row("near-duplicates", _share(found.near_duplicates, found.personas))
    if found.domains is not None:
        table.add_row("domains", f"{found.distinct_domains:,}: {_ranked(found.domains, found.personas)}")
    table.add_row("who they are", _ranked(found.nouns, found.personas))
    output().print(table)
    _print_problems(found.bad, found.problems)


def show_dedup(report: DedupReport, *, json: bool) -> None:
    """Print what `dedup` did."""
    if json:
        _print_json({**asdict(report), "output": str(report.output)})
        return
    console = output()
    console.print(one_line(f"{report.output}: {report.kept:,} of {counted(report.read, 'persona')}"), soft_wrap=True)
    left_out = f"{counted(report.exact, 'exact duplicate')} and {counted(report.near, 'near-duplicate')}"
    console.print(f"left out: {left_out}", soft_wrap=True)
    _print_problems(report.bad, report.problems)


def show_sample(drawn: Sample, path: Path, n: int, *, json: bool) -> None:
    """Print what `sample` drew."""
    if json:
        facts = {"output": str(path), "drawn": len(drawn.records)}
        names = ("read", "bad", "problems", "duplicates", "domains")
        _print_json({**facts, **{name: getattr(drawn, name) for name in names}})
    else:
        console = output()
        console.print(
            one_line(f"{path}: {counted(len(drawn.records), 'persona')} of {drawn.read:,}")
            + (f", {counted(drawn.duplicates, 'near-duplicate')} left out" if drawn.duplicates else ""),
            soft_wrap=True,
        )
        if drawn.domains:
            ranked = dict(sorted(drawn.domains.items(), key=lambda item: (-item[1], item[0])))
            console.print(f"{counted(len(ranked), 'domain')}: {_ranked(ranked)}", soft_wrap=True)
        _print_problems(drawn.bad, drawn.problems)
    if len(drawn.records) < n:
        notes().print(f"{n:,} were asked for, and there are only {len(drawn.records):,}", soft_wrap=True)


def _print_json(value: Mapping[str, Any]) -> None:
    output().print(printable(write_json(value).decode()), soft_wrap=True)


def _print_problems(bad: int, problems: Sequence[str]) -> None:
    if not bad:
        return
    console = notes()
    console.print(styled(f"{counted(bad, 'row')} skipped, being no persona:", "yellow"), soft_wrap=True)
    for problem in problems:
        console.print(f"  {one_line(problem, most=200)}", soft_wrap=True)
    if bad > len(problems):
        console.print("  ...", soft_wrap=True)


def _share(part: int, whole: int) -> str:
    return f"{part:,} ({part / whole:.2%})"


def _ranked(counts: Mapping[str, int], whole: int | None = None) -> str:
    shown = [
        f"{one_line(name, most=40)} {count:,}" + (f" ({count / whole:.1%})" if whole else "")
        for name, count in list(counts.items())[:_LISTED]
    ]
    return ", ".join([*shown, "..."] if len(counts) > _LISTED else shown)
