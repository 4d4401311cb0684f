"""A console whose last lines are redrawn on terminals that can do that."""

from collections.abc import Callable, Generator
from contextlib import contextmanager

from rich.console import Console, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from refinesynth.cli.terminal import notes, styled


class Screen:
    """Console with a live part below the printed lines: `draw` is called several times a second while it is open."""

    def __init__(self, console: Console, draw: Callable[[], RenderableType]) -> None:
        self.console = console
        self.redraws = console.is_terminal and not console.is_dumb_terminal
        """False for pipes and logs, where lines are printed without escape codes."""
        self._live = Live(console=console, get_renderable=draw, refresh_per_second=4, redirect_stdout=False)

    def open(self) -> None:
        if self.redraws:
            self._live.start()

    def say(self, text: str, style: str = "") -> None:
        self.console.print(styled(text, style), soft_wrap=not self.redraws)

    def close(self) -> None:
        """Stop drawing; the last state stays visible. Idempotent."""
        if self._live.is_started:
            self._live.stop()


def bar(name: str, done: int, of: int, *beside: Text) -> Table:
    line = Table.grid(padding=(0, 1), expand=True)
    for ratio in (None, 1, *(None for _ in beside)):
        line.add_column(ratio=ratio, no_wrap=True)
    line.add_row(
        Text(name, style="bold"), ProgressBar(total=of, completed=min(done, of), finished_style="green"), *beside
    )
    return line


@contextmanager
def progress_line() -> Generator[Callable[[str], None]]:
    """A line that is overwritten on a terminal; nothing elsewhere."""
    console = notes()
    if not console.is_terminal:
        yield lambda _text: None
        return
    with console.status("reading") as status:
        yield status.update
