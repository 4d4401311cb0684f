"""Consoles for standard output and standard error, and the handling of closed pipes."""

import contextlib
import os
from collections.abc import Callable, Generator, Iterable
from contextlib import contextmanager
from typing import IO

from rich.console import Console, ConsoleOptions, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.segment import Segment
from rich.table import Table
from rich.text import Text

from refinesynth.text.formatting import printable
from refinesynth.text.json_reader import write_json

_MIN_WIDTH = 20
_DEFAULT_WIDTH = 80


class SafeConsole(Console):
    """Console without markup, emoji names and control characters: every segment passes through `printable`."""

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        for segment in super().render(renderable, options):
            if segment.control is None:
                yield Segment(printable(segment.text), segment.style)
            else:
                yield segment

    def on_broken_pipe(self) -> None:
        """Raise on standard output; go quiet on standard error, because a run continues without its display."""
        silence(self.file)
        if not self.stderr:
            raise BrokenPipeError
        self.quiet = True


def output() -> SafeConsole:
    return _with_min_width(SafeConsole(markup=False, emoji=False, highlight=False))


def notes() -> SafeConsole:
    return _with_min_width(SafeConsole(stderr=True, markup=False, emoji=False, highlight=False))


def say(text: RenderableType, style: str = "") -> None:
    """Print a line on standard output, however long."""
    output().print(text, style=style, soft_wrap=True)


def note(text: RenderableType, style: str = "") -> None:
    """Print a line on standard error, however long."""
    notes().print(text, style=style, soft_wrap=True)


def _with_min_width(console: SafeConsole) -> SafeConsole:
    # COLUMNS=0 means an unknown width, and rich shows nothing at width 0.
    if console.width < _MIN_WIDTH:
        console.width = _MIN_WIDTH if console.width else _DEFAULT_WIDTH
    return console


def styled(text: str, style: str = "") -> Text:
    """Untrusted text in a style. It is made printable first, because that changes its width."""
    return Text(printable(text), style=style)


def labelled(rows: Iterable[tuple[str, RenderableType]] = (), *, width: int | None = None, gap: int = 1) -> Table:
    """Table of labels and folded texts, with `gap` spaces between the two columns; `width` is that of the labels."""
    table = Table.grid(padding=(0, gap))
    table.add_column(width=width, style="dim", no_wrap=width is None)
    table.add_column(overflow="fold")
    for row in rows:
        table.add_row(*row)
    return table


def print_json(value: object) -> None:
    say(printable(write_json(value).decode()))


def silence(stream: IO[str]) -> None:
    """Redirect `stream` to the null device; otherwise the interpreter's last flush would fail on the closed pipe."""
    with contextlib.suppress(OSError, ValueError):
        null_fd = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null_fd, stream.fileno())
        os.close(null_fd)


class Screen:
    """Console with a live part below the printed lines: `draw` is called four times a second while it is open."""

    def __init__(self, console: Console, draw: Callable[[], RenderableType]) -> None:
        self.console = console
        self.can_redraw = console.is_terminal and not console.is_dumb_terminal
        """False for pipes and logs, where lines are printed without escape codes."""
        self._live = Live(console=console, get_renderable=draw, refresh_per_second=4, redirect_stdout=False)

    def open(self) -> None:
        if self.can_redraw:
            self._live.start()

    def say(self, text: str, style: str = "") -> None:
        self.console.print(styled(text, style), soft_wrap=not self.can_redraw)

    def close(self) -> None:
        """Stop drawing; the last state stays visible. Idempotent."""
        if self._live.is_started:
            self._live.stop()


def bar(name: str, done: int, total: int, *columns: Text) -> Table:
    line = Table.grid(padding=(0, 1), expand=True)
    for ratio in (None, 1, *(None for _ in columns)):
        line.add_column(ratio=ratio, no_wrap=True)
    line.add_row(
        Text(name, style="bold"), ProgressBar(total=total, completed=min(done, total), finished_style="green"), *columns
    )
    return line


@contextmanager
def progress_line(noun: str) -> Generator[Callable[[int], None]]:
    """Show `reading rows` on a terminal, then the count that is passed to the yielded function; nothing elsewhere."""
    console = notes()
    if not console.is_terminal:
        yield lambda _count: None
        return
    with console.status(f"reading {noun}") as status:
        yield lambda count: status.update(f"{count:,} {noun}")
