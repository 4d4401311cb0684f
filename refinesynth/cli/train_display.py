"""What a training shows while it goes on: a line that is redrawn on a terminal, log lines everywhere else."""

import time
from collections.abc import Callable, Mapping
from pathlib import Path

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from refinesynth.cli.figures import compact, duration
from refinesynth.cli.terminal import styled
from refinesynth.cli.train_plan import as_lines, laid_out
from refinesynth.printable import one_line
from refinesynth.train import events
from refinesynth.train.plan import Plan

_HELD_OUT = {
    events.LOSS: "held-out loss",
    events.LOSS_CORRECT: "correct",
    events.LOSS_REFINEMENT: "refinement",
    events.LOSS_MISTAKE: "mistakes (not trained on)",
}


class Pace:
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


class Lines:
    """One line for everything that is told, without escape codes."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._pace = Pace()
        self._steps = 0

    def planned(self, plan: Plan) -> None:
        self._steps = plan.steps
        self._console.print(as_lines(plan), soft_wrap=True)

    def logged(self, step: int, metrics: Mapping[str, float]) -> None:
        self._pace.observe(step)
        self._say(f"step {step:,}/{self._steps:,}  {in_a_line(metrics)}{left(self._pace, self._steps)}")

    def evaluated(self, step: int, metrics: Mapping[str, float]) -> None:
        self._say(f"step {step:,}: {held_out(metrics)}")

    def saved(self, path: Path) -> None:
        self._say(f"saved {path}")

    def note(self, text: str) -> None:
        self._say(text)

    def close(self) -> None: ...

    def _say(self, text: str) -> None:
        self._console.print(one_line(text), soft_wrap=True)


class Board:
    """A bar with the latest figures below everything that was told before."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._pace = Pace()
        self._plan: Plan | None = None
        self._step = 0
        self._metrics: Mapping[str, float] = {}
        self._live = Live(console=console, get_renderable=self._draw, refresh_per_second=4, redirect_stdout=False)

    def planned(self, plan: Plan) -> None:
        self._plan = plan
        self._console.print(laid_out(plan))
        self._console.print()
        self._live.start()

    def logged(self, step: int, metrics: Mapping[str, float]) -> None:
        self._pace.observe(step)
        self._step, self._metrics = step, metrics

    def evaluated(self, step: int, metrics: Mapping[str, float]) -> None:
        self._step = max(self._step, step)
        self._console.print(styled(f"step {step:,}: {held_out(metrics)}"))

    def saved(self, path: Path) -> None:
        self._console.print(styled(one_line(f"saved {path}"), "dim"))

    def note(self, text: str) -> None:
        self._console.print(styled(one_line(text), "yellow"))

    def close(self) -> None:
        if self._live.is_started:
            self._live.stop()

    def _draw(self) -> RenderableType:
        steps = 0 if self._plan is None else self._plan.steps
        top = Table.grid(padding=(0, 1), expand=True)
        for ratio in (None, 1, None):
            top.add_column(ratio=ratio, no_wrap=True)
        top.add_row(
            Text("steps", style="bold"),
            ProgressBar(total=steps, completed=min(self._step, steps), finished_style="green"),
            Text(f"{self._step:,}/{steps:,}{left(self._pace, steps)}"),
        )
        return Group(top, styled(in_a_line(self._metrics) if self._metrics else "first steps"))


def choose(console: Console) -> Lines | Board:
    """A board on a terminal that can redraw, else lines."""
    return Board(console) if console.is_terminal and not console.is_dumb_terminal else Lines(console)


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


def left(pace: Pace, steps: int) -> str:
    """The time that is left, if it can be told."""
    remaining = pace.remaining(steps)
    return "" if not remaining else f"  about {duration(remaining)} left"
