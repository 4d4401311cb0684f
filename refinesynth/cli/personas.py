"""`refinesynth personas`: statistics, deduplication and sampling of persona collections before a run."""

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from refinesynth.cli.exit_codes import ExitCode
from refinesynth.cli.field_options import option
from refinesynth.cli.terminal import labelled, note, print_json, progress_line, say
from refinesynth.personas import Similar, write_records
from refinesynth.personas import dedup as deduplicate
from refinesynth.personas import sample as draw
from refinesynth.personas import stats as describe
from refinesynth.personas.near_duplicates import check_output
from refinesynth.text.number_format import counted
from refinesynth.text.printable import one_line

personas = typer.Typer(
    help="Look at collections of personas, remove near-duplicates, draw balanced samples. docs/personas.md has more."
)

Files = Annotated[
    list[Path] | None,
    typer.Argument(
        metavar="FILE...",
        help="JSONL, JSON, CSV, TSV, Parquet or plain text, also .gz and .zst, - for standard input; by default our own.",
    ),
]
Column = Annotated[
    str | None,
    option(metavar="NAME", help="Where the persona stands in a row, if not in `persona` or `text`."),
]
Output = Annotated[Path, option("-o", "--output", metavar="FILE", help="JSONL to write; .gz and .zst compress it.")]
Overwrite = Annotated[bool, option(help="Replace FILE if it is there.")]
_MAX_DOMAINS = 10
AsJson = Annotated[bool, option(help="The report as one JSON object.")]
Threshold = Annotated[float, option(help="Share of their words from which on two personas are near-duplicates.")]


@personas.command()
def stats(
    files: Files = None,
    *,
    column: Column = None,
    near: Annotated[bool, option("--near/--no-near")] = True,
    threshold: Threshold = 0.9,
    json: AsJson = False,
) -> None:
    """Show the number and lengths of personas, their words and duplicates.

    Options:
        near: Look for near-duplicates, which takes most of the time.
    """
    similar = Similar(threshold=threshold)
    with progress_line("rows") as show_count:
        figures = describe(files or None, column=column, similar=similar, near=near, on_progress=show_count)
    if json:
        print_json(figures.as_json())
        return
    table = labelled(gap=2)
    table.add_row("personas", f"{figures.personas:,}")
    for label, lengths in (("characters", figures.characters), ("words", figures.words)):
        spread = f"{lengths.least:,} to {lengths.most:,}, median {lengths.median:,}, mean {lengths.mean:,}"
        table.add_row(label, f"{spread}, one in ten {lengths.longest_tenth:,} or more")
    at_least = "" if figures.distinct_words_exact else "at least "
    table.add_row("distinct words", f"{at_least}{figures.distinct_words:,}")
    table.add_row("exact duplicates", _share(figures.exact_duplicates, figures.personas))
    if figures.near_duplicates is not None:
        table.add_row("near-duplicates", _share(figures.near_duplicates, figures.personas))
    say(table)
    _print_problems(figures.bad, figures.problems)


@personas.command()
def dedup(
    files: Files = None,
    *,
    output: Output,
    column: Column = None,
    threshold: Threshold = 0.9,
    ngrams: Annotated[int, option(help="Compare by runs of that many words.")] = 1,
    permutations: Annotated[int, option(help="Hash values of a MinHash signature.")] = 128,
    removed: Annotated[Path | None, option(metavar="FILE", help="List what is left out, and why.")] = None,
    overwrite: Overwrite = False,
    json: AsJson = False,
) -> None:
    """Write the personas without their near-duplicates; the first of several is kept.

    Uses MinHash, by default with Persona Hub's settings. The output is written completely or not at all.
    """
    similar = Similar(threshold, ngrams, permutations)
    with progress_line("rows") as show_count:
        report = deduplicate(
            files or None,
            output,
            column=column,
            similar=similar,
            removed=removed,
            overwrite=overwrite,
            on_progress=show_count,
        )
    if json:
        print_json({**asdict(report), "output": str(report.output)})
        return
    say(one_line(f"{report.output}: {report.kept:,} of {counted(report.read, 'persona')}"))
    say(f"left out: {counted(report.exact, 'exact duplicate')} and {counted(report.near, 'near-duplicate')}")
    _print_problems(report.bad, report.problems)


@personas.command()
def sample(
    files: Files = None,
    *,
    n: Annotated[int, option("-n", min=1, help="How many personas.")],
    output: Output,
    column: Column = None,
    seed: Annotated[int, option(help="Another seed draws others.")] = 0,
    balance_by: Annotated[
        str | None,
        option(metavar="FIELD", help="As many of each domain: `domain` (Persona Hub's fields), or another field."),
    ] = None,
    dedup: Annotated[bool, option(help="Leave near-duplicates out, as `personas dedup` does.")] = False,
    threshold: Threshold = 0.9,
    overwrite: Overwrite = False,
    json: AsJson = False,
) -> None:
    """Draw personas at random, the same for the same seed; --balance-by balances them over domains.

    Exits with 1 if there are fewer than -n; those are written.
    """
    check_output(output, files, overwrite=overwrite)
    similar = Similar(threshold=threshold) if dedup else None
    with progress_line("rows") as show_count:
        drawn = draw(
            files or None, n, column=column, seed=seed, balance_by=balance_by, similar=similar, on_progress=show_count
        )
    write_records(drawn.records, output, overwrite=overwrite)
    if json:
        facts = {"output": str(output), "drawn": len(drawn.records)}
        names = ("read", "bad", "problems", "duplicates", "domains")
        print_json({**facts, **{name: getattr(drawn, name) for name in names}})
    else:
        say(
            one_line(f"{output}: {counted(len(drawn.records), 'persona')} of {drawn.read:,}")
            + (f", {counted(drawn.duplicates, 'near-duplicate')} left out" if drawn.duplicates else "")
        )
        if drawn.domains:
            ranked = sorted(drawn.domains.items(), key=lambda item: (-item[1], item[0]))
            shown = [f"{one_line(name, size=40)} {count:,}" for name, count in ranked[:_MAX_DOMAINS]]
            listed = ", ".join([*shown, "..."] if len(ranked) > _MAX_DOMAINS else shown)
            say(f"{counted(len(ranked), 'domain')}: {listed}")
        _print_problems(drawn.bad, drawn.problems)
    if len(drawn.records) < n:
        note(f"{n:,} were asked for, and there are only {len(drawn.records):,}")
        raise typer.Exit(ExitCode.INCOMPLETE)


def _print_problems(bad: int, problems: Sequence[str]) -> None:
    if not bad:
        return
    note(f"{counted(bad, 'row')} skipped, being no persona:", "yellow")
    for problem in problems:
        note(f"  {one_line(problem, size=200)}")
    if bad > len(problems):
        note("  ...")


def _share(part: int, total: int) -> str:
    return f"{part:,} ({part / total:.2%})"
