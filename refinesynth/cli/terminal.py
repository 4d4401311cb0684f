"""The two consoles, and the end of their readers."""

import contextlib
import os
from collections.abc import Iterable
from typing import IO

from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment
from rich.table import Table
from rich.text import Text

from refinesynth.text.json_reader import write_json
from refinesynth.text.printable import printable

_NARROWEST = 20
_USUAL = 80


class SafeConsole(Console):
    """Console without markup, emoji names and control characters: every segment passes through `printable`."""

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        for segment in super().render(renderable, options):
            if segment.control is None:
                yield Segment(printable(segment.text), segment.style)
            else:
                yield segment

    def on_broken_pipe(self) -> None:
        """Raise on standard output; be quiet on standard error, as a run goes on without its display."""
        silence(self.file)
        if not self.stderr:
            raise BrokenPipeError
        self.quiet = True


def output() -> SafeConsole:
    return _wide_enough(SafeConsole(markup=False, emoji=False, highlight=False))


def notes() -> SafeConsole:
    return _wide_enough(SafeConsole(stderr=True, markup=False, emoji=False, highlight=False))


def _wide_enough(console: SafeConsole) -> SafeConsole:
    # COLUMNS is 0 where the number is unknown, and on no columns nothing is shown.
    if console.width < _NARROWEST:
        console.width = _NARROWEST if console.width else _USUAL
    return console


def styled(text: str, style: str = "") -> Text:
    """Untrusted text in a style, made printable first so that its width is right."""
    return Text(printable(text), style=style)


def labelled(rows: Iterable[tuple[str, RenderableType]] = (), *, width: int | None = None, apart: int = 1) -> Table:
    """Two columns, labels and folded texts, `apart` columns apart; `width` is that of the labels."""
    table = Table.grid(padding=(0, apart))
    table.add_column(width=width, style="dim", no_wrap=width is None)
    table.add_column(overflow="fold")
    for row in rows:
        table.add_row(*row)
    return table


def print_json(value: object) -> None:
    output().print(printable(write_json(value).decode()), soft_wrap=True)


def silence(stream: IO[str]) -> None:
    """Redirect `stream` to nowhere, so the interpreter's last flush finds no closed pipe."""
    with contextlib.suppress(OSError, ValueError):
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, stream.fileno())
        os.close(nowhere)
