"""The two consoles that everything is printed on, and what happens when their reader has gone."""

import contextlib
import os
from collections.abc import Iterable
from typing import IO

from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment
from rich.table import Table
from rich.text import Text

from refinesynth.text.jsontext import write_json
from refinesynth.text.printable import printable

_NARROWEST = 20
"""Columns that are needed to show anything at all."""
_USUAL = 80
"""Columns where their number is unknown."""


class SafeConsole(Console):
    """A console that interprets nothing in what it is given: no markup, no emoji names, no control characters.

    Whatever renderable a text comes in, each piece of it passes through `printable` on its way out; only control codes
    that rich itself makes get through.
    """

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        for segment in super().render(renderable, options):
            if segment.control is None:
                yield Segment(printable(segment.text), segment.style)
            else:
                yield segment

    def on_broken_pipe(self) -> None:
        """Stop writing: raises on standard output, whose reader wanted no more; is quiet on standard error.

        A run goes on without its display, because its files are what was paid for.
        """
        silence(self.file)
        if not self.stderr:
            raise BrokenPipeError
        self.quiet = True


def output() -> SafeConsole:
    """Standard output: results."""
    return _wide_enough(SafeConsole(markup=False, emoji=False, highlight=False))


def notes() -> SafeConsole:
    """Standard error: errors, progress, remarks."""
    return _wide_enough(SafeConsole(stderr=True, markup=False, emoji=False, highlight=False))


def _wide_enough(console: SafeConsole) -> SafeConsole:
    # COLUMNS is 0 where the number is unknown, and on no columns nothing is shown.
    if console.width < _NARROWEST:
        console.width = _NARROWEST if console.width else _USUAL
    return console


def styled(text: str, style: str = "") -> Text:
    """Untrusted text in a style; its width on the screen is right, because it is made printable first."""
    return Text(printable(text), style=style)


def labelled(rows: Iterable[tuple[str, RenderableType]] = (), *, width: int | None = None, apart: int = 1) -> Table:
    """Two columns: labels, as wide as the longest if no `width` is given, and texts, folded; so many columns lie
    between.
    """
    table = Table.grid(padding=(0, apart))
    table.add_column(width=width, style="dim", no_wrap=width is None)
    table.add_column(overflow="fold")
    for row in rows:
        table.add_row(*row)
    return table


def print_json(value: object) -> None:
    """A report for programs: one JSON object on standard output."""
    output().print(printable(write_json(value).decode()), soft_wrap=True)


def silence(stream: IO[str]) -> None:
    """Send what is still written to `stream` nowhere, so that the interpreter's last flush finds no closed pipe."""
    with contextlib.suppress(OSError, ValueError):
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, stream.fileno())
        os.close(nowhere)
