"""`refinesynth personas`: deduplication and sampling of persona collections before a run."""

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from refinesynth.cli.exit_codes import ExitCode
from refinesynth.cli.field_options import option
from refinesynth.cli.terminal import note, print_json, progress_line, say
from refinesynth.personas import dedup as deduplicate
from refinesynth.personas import sample as draw
from refinesynth.personas import write_records
from refinesynth.personas.near_duplicates import check_output
from refinesynth.text.number_format import counted
from refinesynth.text.printable import one_line

personas = typer.Typer(
    help="Remove near-duplicates from collections of personas, draw balanced samples. docs/personas.md has more."
)

Files = Annotated[
    list[Path] | None,
    typer.Argument(
        metavar="FILE...",
        help="JSONL, CSV, TSV or plain text, also .gz, - for standard input; by default our own.",
    ),
]
Column = Annotated[
    str | None,
    option(metavar="NAME", help="Where the persona stands in a row, if not in `persona` or `text`."),
]
Output = Annotated[Path, option("-o", "--output", metavar="FILE", help="JSONL to write; .gz compresses it.")]
Overwrite = Annotated[bool, option(help="Replace FILE if it is there.")]
_MAX_DOMAINS = 10
AsJson = Annotated[bool, option(help="The report as one JSON object.")]
Threshold = Annotated[float, option(help="Share of their words from which on two personas are near-duplicates.")]


@personas.command()
def dedup(
    files: Files = None,
    *,
    output: Output,
    column: Column = None,
    threshold: Threshold = 0.9,
    overwrite: Overwrite = False,
    json: AsJson = False,
) -> None:
    """Write the personas without their near-duplicates; the first of several is kept.

    Uses MinHash, by default with Persona Hub's settings. The output is written completely or not at all.
    """
    with progress_line("rows") as show_count:
        report = deduplicate(
            files or None,
            output,
            column=column,
            threshold=threshold,
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
    balance_by: Annotated[str | None, option(metavar="FIELD", help="As many of each value of this field.")] = None,
    overwrite: Overwrite = False,
    json: AsJson = False,
) -> None:
    """Draw personas at random, the same for the same seed; --balance-by balances them over the values of a field.

    Exits with 1 if there are fewer than -n; those are written.
    """
    check_output(output, files, overwrite=overwrite)
    with progress_line("rows") as show_count:
        drawn = draw(files or None, n, column=column, seed=seed, balance_by=balance_by, on_progress=show_count)
    write_records(drawn.records, output, overwrite=overwrite)
    if json:
        facts = {"output": str(output), "drawn": len(drawn.records)}
        names = ("read", "bad", "problems", "domains")
        print_json({**facts, **{name: getattr(drawn, name) for name in names}})
    else:
        say(one_line(f"{output}: {counted(len(drawn.records), 'persona')} of {drawn.read:,}"))
        if drawn.domains:
            ranked = sorted(drawn.domains.items(), key=lambda item: (-item[1], item[0]))
            shown = [f"{one_line(name, size=40)} {count:,}" for name, count in ranked[:_MAX_DOMAINS]]
            listed = ", ".join([*shown, "..."] if len(ranked) > _MAX_DOMAINS else shown)
            say(f"{counted(len(ranked), 'group')}: {listed}")
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
