"""`refinesynth rules`: what a draft or a script can be checked by."""

from typing import Annotated

import typer
from rich.table import Table

from refinesynth import rules as library
from refinesynth.cli.options import chain as read
from refinesynth.cli.terminal import output, styled


def rules(
    chain: Annotated[
        str | None, typer.Argument(metavar="CHAIN", help="Instead of the list, spell out this chain: `strict()`.")
    ] = None,
) -> None:
    """List the rules that can be named: the built-in ones, and those that installed packages register."""
    console = output()
    if chain is not None:
        console.print(repr(read("CHAIN", chain)), soft_wrap=True)
        return
    table = Table.grid(padding=(0, 2))
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    for name, summary in library.available().items():
        table.add_row(styled(name, "bold"), styled(summary))
    console.print(table)
    console.print("\nCombine them: a & b (all), a | b (either), ~a (not), warn(a), first_failure(a, b).", style="dim")
