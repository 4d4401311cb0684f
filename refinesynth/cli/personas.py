"""`refinesynth personas`: look at collections of personas, thin them out and draw from them, before a run."""

from pathlib import Path
from typing import Annotated

import typer

from refinesynth.cli.exits import ExitCode
from refinesynth.cli.personas_report import show_dedup, show_sample, show_stats, until_stopped
from refinesynth.personas import Similar, write_records
from refinesynth.personas import dedup as deduplicate
from refinesynth.personas import sample as draw
from refinesynth.personas import stats as describe
from refinesynth.personas.deduplicating import check_output

personas = typer.Typer(
    name="personas",
    help="Look at collections of personas, remove near-duplicates, draw balanced samples. docs/personas.md has more.",
    context_settings={"help_option_names": ["-h", "--help"]},
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
    typer.Option("--column", metavar="NAME", help="Where the persona stands in a row, if not in `persona` or `text`."),
]
Output = Annotated[
    Path, typer.Option("-o", "--output", metavar="FILE", help="JSONL to write; .gz and .zst compress it.")
]
Overwrite = Annotated[bool, typer.Option("--overwrite", help="Replace FILE if it is there.")]
AsJson = Annotated[bool, typer.Option("--json", help="The report as one JSON object.")]
Threshold = Annotated[
    float, typer.Option("--threshold", help="Share of their words from which on two personas are near-duplicates.")
]
Ngrams = Annotated[int, typer.Option("--ngrams", help="Compare by runs of that many words.")]
Permutations = Annotated[int, typer.Option("--permutations", help="Hash values of a MinHash signature.")]


@personas.command()
def stats(
    files: Files = None,
    *,
    column: Column = None,
    near: Annotated[
        bool, typer.Option("--near/--no-near", help="Look for near-duplicates, which takes most of the time.")
    ] = True,
    threshold: Threshold = 0.9,
    by: Annotated[str, typer.Option("--by", metavar="FIELD", help="Field that names the domain.")] = "domain",
    json: AsJson = False,
) -> None:
    """Say what personas there are: how many, how long, how much alike, of which domains."""
    similar = Similar(threshold=threshold)
    found = until_stopped(
        lambda tell: describe(files or None, column=column, similar=similar, near=near, by=by, on_progress=tell)
    )
    show_stats(found, json=json)


@personas.command()
def dedup(
    files: Files = None,
    *,
    output: Output,
    column: Column = None,
    threshold: Threshold = 0.9,
    ngrams: Ngrams = 1,
    permutations: Permutations = 128,
    removed: Annotated[
        Path | None, typer.Option("--removed", metavar="FILE", help="List what is left out, and why.")
    ] = None,
    overwrite: Overwrite = False,
    json: AsJson = False,
) -> None:
    """Write the personas without their near-duplicates; the first of several is kept.

    By MinHash with Persona Hub's settings. The output appears whole or not at all.
    """
    similar = Similar(threshold, ngrams, permutations)
    report = until_stopped(
        lambda tell: deduplicate(
            files or None,
            output,
            column=column,
            similar=similar,
            removed=removed,
            overwrite=overwrite,
            on_progress=tell,
        )
    )
    show_dedup(report, json=json)


@personas.command()
def sample(
    files: Files = None,
    *,
    n: Annotated[int, typer.Option("-n", min=1, help="How many personas.")],
    output: Output,
    column: Column = None,
    seed: Annotated[int, typer.Option("--seed", help="Another seed draws others.")] = 0,
    balance_by: Annotated[
        str | None,
        typer.Option(
            "--balance-by",
            metavar="FIELD",
            help="As many of each domain: `domain` (Persona Hub's fields), another field, or `auto` by the first words.",
        ),
    ] = None,
    dedup: Annotated[
        bool, typer.Option("--dedup", help="Leave near-duplicates out, as `personas dedup` does.")
    ] = False,
    threshold: Threshold = 0.9,
    overwrite: Overwrite = False,
    json: AsJson = False,
) -> None:
    """Draw personas at random, the same for the same seed, balanced over their domains if so wanted.

    Exits with 1 if there are fewer than asked for; these are written.
    """
    check_output(output, files, overwrite=overwrite)
    similar = Similar(threshold=threshold) if dedup else None
    drawn = until_stopped(
        lambda tell: draw(
            files or None, n, column=column, seed=seed, balance_by=balance_by, similar=similar, on_progress=tell
        )
    )
    write_records(drawn.records, output, overwrite=overwrite)
    show_sample(drawn, output, n, json=json)
    if len(drawn.records) < n:
        raise typer.Exit(ExitCode.FELL_SHORT)
