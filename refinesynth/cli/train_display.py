"""Display of a running training, and preview of its data."""

import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Final

from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text

from refinesynth.cli.screen import Screen, bar
from refinesynth.cli.terminal import styled
from refinesynth.cli.train_plan import as_lines, laid_out
from refinesynth.text.figures import compact, counted, duration
from refinesynth.text.printable import one_line, printable
from refinesynth.train import events
from refinesynth.train.plan import Plan
from refinesynth.train.preview import Preview
from refinesynth.train.tokens import Label

_HELD_OUT = {
    events.LOSS: "held-out loss",
    events.LOSS_CORRECT: "correct",
    events.LOSS_REFINEMENT: "refinement",
    events.LOSS_MISTAKE: "mistakes (not trained on)",
}


class StepPace:
    """Optimizer steps per second, of this process: what an earlier one did before a resume took time of its own."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._first: tuple[int, float] | None = None
        self._last: tuple[int, float] | None = None

    def observe(self, step: int) -> None:
        """Note that so many steps are done now."""
        self._last = (step, self._clock())
        self._first = self._first or self._last

    def remaining(self, steps: int) -> float | None:
        """Seconds until `steps` are done; None until two moments are known."""
        if self._first is None or self._last is None or self._last[0] <= self._first[0]:
            return None
        per_step = (self._last[1] - self._first[1]) / (self._last[0] - self._first[0])
        return max(0.0, (steps - self._last[0]) * per_step - (self._clock() - self._last[1]))


class TrainDisplay:
    """Shows a training's events: on a terminal that can redraw with the latest figures below them, else a line for
    each.
    """

    def __init__(self, console: Console) -> None:
        self._pace = StepPace()
        self._step = self._steps = 0
        self._metrics: Mapping[str, float] = {}
        self._screen = Screen(console, self._draw)

    def planned(self, plan: Plan) -> None:
        self._steps = plan.steps
        if self._screen.redraws:
            self._screen.console.print(laid_out(plan), "")
            self._screen.open()
        else:
            self._screen.say(as_lines(plan))

    def logged(self, step: int, metrics: Mapping[str, float]) -> None:
        self._pace.observe(step)
        self._step, self._metrics = step, metrics
        if not self._screen.redraws:
            self._screen.say(f"step {step:,}/{self._steps:,}  {in_a_line(metrics)}{self._left()}")

    def evaluated(self, step: int, metrics: Mapping[str, float]) -> None:
        self._step = max(self._step, step)
        self._screen.say(f"step {step:,}: {held_out(metrics)}")

    def saved(self, path: Path) -> None:
        self._screen.say(one_line(f"saved {path}"), "dim")

    def note(self, text: str) -> None:
        self._screen.say(one_line(text), "yellow")

    def close(self) -> None:
        """The last figures stay visible."""
        self._screen.close()

    def _draw(self) -> RenderableType:
        line = styled(in_a_line(self._metrics) if self._metrics else "first steps")
        return Group(bar("steps", self._step, self._steps, Text(f"{self._step:,}/{self._steps:,}{self._left()}")), line)

    def _left(self) -> str:
        remaining = self._pace.remaining(self._steps)
        return f"  about {duration(remaining)} left" if remaining else ""


def in_a_line(metrics: Mapping[str, float]) -> str:
    """Training metrics as people read them; what is not there is left out."""
    shown = (
        (events.LOSS, "loss {:.4f}"),
        (events.LEARNING_RATE, "lr {:.2e}"),
        (events.GRAD_NORM, "grad norm {:.3g}"),
        (events.EPOCH, "epoch {:.2f}"),
        (events.MEMORY, "{:.1f} GiB"),
    )
    parts = [form.format(metrics[name]) for name, form in shown if name in metrics]
    speeds = [
        f"{compact(metrics[name])} {what}/s"
        for name, what in ((events.TOKENS_PER_SECOND, "tokens"), (events.TRAINED_TOKENS_PER_SECOND, "trained"))
        if name in metrics
    ]
    return "  ".join(parts + speeds)


def held_out(metrics: Mapping[str, float]) -> str:
    """An evaluation as people read it."""
    of_sources = {
        name: name.removeprefix(events.LOSS_OF_SOURCE) for name in metrics if name.startswith(events.LOSS_OF_SOURCE)
    }
    shown = {**_HELD_OUT, **of_sources}
    return one_line("  ".join(f"{what} {metrics[name]:.4f}" for name, what in shown.items() if name in metrics))


_SIGNS: Final = {
    Label.CONTEXT: ("|", "dim"),
    Label.TRAINED: ("+", "green"),
    Label.MISTAKE: ("✗", "red"),
}
_CONTINUED: Final = "⏎"
"""A line feed that is itself a token of the piece before it."""

LEGEND: Final = "+ trained   | context   ✗ mistake: read, and kept out of the loss"


def preview_laid_out(preview: Preview) -> RenderableType:
    """One example: its counts, then its text, each line with a sign of what it is to the loss.

    A line of several kinds is broken where the kind changes.
    """
    head = (
        f"{one_line(preview.id)}: {counted(preview.tokens, 'token')}, {preview.trained:,} trained ({preview.trained_share:.0%}), "
        f"{preview.mistakes:,} in mistakes"
    )
    table = Table.grid(padding=(0, 1))
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    for label, line in _preview_lines(preview):
        sign, style = _SIGNS[label]
        table.add_row(Text(sign, style=style), styled(line, style))
    return Group(styled(head, "bold"), table)


def _preview_lines(preview: Preview) -> Iterator[tuple[Label, str]]:
    """Each line of each piece; a line feed is shown where a piece ends with one, or begins with it."""
    for segment in preview.segments:
        pieces = printable(segment.text).split("\n")
        for at, piece in enumerate(pieces):
            last = at == len(pieces) - 1
            if piece or not last:
                yield segment.label, piece if last else f"{piece}{_CONTINUED}"
