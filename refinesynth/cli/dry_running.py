"""`refinesynth run --dry-run`: what a run will take, from a handful of personas that are played for it."""

from collections.abc import Mapping
from contextlib import suppress
from functools import partial
from typing import Any

from rich.console import Console
from rich.table import Table

from refinesynth.cli.display import Display
from refinesynth.cli.exits import ExitCode
from refinesynth.cli.running import displayed, import_backends
from refinesynth.cli.terminal import notes, output, print_json, styled
from refinesynth.synthesis.dry_run import CONFIDENCE, SAMPLE, Estimate, estimate
from refinesynth.text.figures import counted, dollars, duration
from refinesynth.text.printable import one_line


def estimate_and_report(asked: Mapping[str, Any], *, sample: int | None, json: bool) -> ExitCode:
    """Estimate a run, print the estimate and return the exit code; raises what `estimate` raises."""
    count = sample or SAMPLE
    display = Display(notes())
    display.say(f"dry run: plays {counted(count, 'persona')} for real, and pays for that; nothing is kept")
    import_backends(asked)
    found, code = displayed(partial(estimate, **asked, sample=count), display)
    if found is None:
        display.say("interrupted before there was anything to report")
        return code
    # It has been paid for, read or not.
    with suppress(BrokenPipeError):
        _print(output(), found, json=json)
    return ExitCode.OK


def _print(console: Console, found: Estimate, *, json: bool) -> None:
    if json:
        print_json(found.as_json())
        return
    cost = "" if found.paid.cost_usd is None else f", cost {dollars(found.paid.cost_usd)}"
    console.print(
        f"\n{counted(found.episodes, 'persona')} of {one_line(found.source)} played, {_accepted(found)}, in "
        f"{duration(found.elapsed)}{cost}.\n",
        soft_wrap=True,
    )
    console.print(table(found))
    if (short := _too_few(found)) is not None:
        console.print(f"\n{short}", style="yellow", soft_wrap=True)
    console.print(
        f"\nYield, and what an episode takes, lie in their ranges {CONFIDENCE:.0%} of the time, if other personas are like "
        f"these; the time, if the backend keeps up. A larger --sample narrows them.",
        style="dim",
        soft_wrap=True,
    )


def _too_few(found: Estimate) -> str | None:
    if found.available is None or found.available >= found.personas.low:
        return None
    return (
        f"{one_line(found.source)} {'are' if found.source.startswith('the ') else 'holds'} {counted(found.available, 'persona')}, too few for n = "
        f"{found.n:,}: a run would end with about {found.available * found.per_persona.likely:,.0f}. Give a file with more"
    )


def _accepted(found: Estimate) -> str:
    if found.most == 1:
        return f"{found.accepted:,} accepted"
    return f"{found.fruitful:,} accepted with {counted(found.accepted, 'trajectory', 'trajectories')}"


def table(found: Estimate) -> Table:
    head, *rows = found.rows()
    lines = Table(box=None, padding=(0, 2), header_style="dim")
    lines.add_column(head[0])
    for name in head[1:]:
        lines.add_column(name, justify="right", no_wrap=True)
    for name, *ends in rows:
        lines.add_row(name, *map(styled, ends))
    return lines
