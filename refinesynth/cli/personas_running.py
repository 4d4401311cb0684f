"""Work on personas that reports its progress, and leaves nothing half done behind at Ctrl-C."""

from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import NoReturn, TypeVar

import typer

from refinesynth.cli.interrupt import interruptible
from refinesynth.cli.terminal import notes

_Result = TypeVar("_Result")


class _Stopped(BaseException):
    """A signal came. Not an `Exception`, so that nothing on its way up takes it for its own."""


def until_stopped(work: Callable[[Callable[[int], None]], _Result]) -> _Result:
    """What `work(report)` gives, called in this thread; `report(rows)` shows how many rows were read.

    Raises:
        typer.Exit: A signal came, with its exit code; `work` was left in the middle.
    """
    with interruptible() as interrupt, progress_line() as report:
        try:
            interrupt.stops(_stop)
            return work(lambda rows: report(f"{rows:,} rows"))
        except _Stopped:
            raise typer.Exit(interrupt.exit_code or 0) from None


def _stop() -> NoReturn:
    raise _Stopped


@contextmanager
def progress_line() -> Generator[Callable[[str], None]]:
    """A line that is written over on a terminal; nothing elsewhere."""
    console = notes()
    if not console.is_terminal:
        yield lambda _text: None
        return
    with console.status("reading") as status:
        yield status.update
