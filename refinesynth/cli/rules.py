"""`refinesynth rules`: the rules that verify drafts and scripts; chains of rules given as text."""

from typing import Annotated

import typer
from rich.table import Table

from refinesynth import rules as library
from refinesynth.cli.terminal import output, say, styled
from refinesynth.errors import ConfigurationError, InputError


def rules(
    chain: Annotated[str | None, typer.Argument(metavar="CHAIN")] = None,
) -> None:
    """List the rules that can be named: the built-in ones, and those that installed packages register.

    Options:
        chain: Instead of the list, spell out this chain: `strict()`.
    """
    console = output()
    if chain is not None:
        say(repr(read_chain("CHAIN", chain)))
        return
    table = Table.grid(padding=(0, 2))
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    for name, summary in library.available().items():
        table.add_row(styled(name, "bold"), styled(summary))
    console.print(table)
    console.print("\nCombine them: a & b (all), a | b (either), ~a (not), warn(a), first_failure(a, b).", style="dim")


def read_chain(option: str, text: str) -> library.Rule:
    """Parse a rule chain; raises ConfigurationError with a message that begins with the option."""
    try:
        return library.parse(text)
    except InputError as error:
        raise ConfigurationError(f"{option}: {error}") from error
