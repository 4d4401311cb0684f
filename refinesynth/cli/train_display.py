"""Display of a training: its plan, its events while it runs, and a preview of its data."""

import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Final

from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text

from refinesynth.cli.terminal import styled
from refinesynth.text.formatting import compact, counted, duration, in_bytes, one_line, printable
from refinesynth.train import events
from refinesynth.train.data.conversation_reader import SourceSizes
from refinesynth.train.labelled_conversation import LossOn
from refinesynth.train.plan import MemoryEstimate, Plan
from refinesynth.train.prepare import Counts
from refinesynth.train.tokens import Label
from refinesynth.train.trainer import Preview
from refinesynth.train.training_folder import mistakes_title

_HELD_OUT = {
    events.LOSS: "held-out loss",
    events.LOSS_CORRECT: "correct",
    events.LOSS_REFINEMENT: "refinement",
}


class TrainDisplay:
    """Display of a training's events, a line each."""

    def __init__(
        self, console: Console, clock: Callable[[], float] = time.monotonic, *, loss_on: LossOn = LossOn.REFINEMENT
    ) -> None:
        self._console, self._clock, self._loss_on, self._total = console, clock, loss_on, 0
        self._first: tuple[int, float] | None = None
        """First logged step of this process and its time: an earlier process may have had another pace."""

    def planned(self, plan: Plan) -> None:
        self._total = plan.steps
        self._say(plan_lines(plan))

    def logged(self, step: int, metrics: Mapping[str, float]) -> None:
        now = self._clock()
        first_step, first_time = self._first = self._first or (step, now)
        seconds = (self._total - step) * (now - first_time) / (step - first_step) if step > first_step else 0
        remaining = f"  about {duration(seconds)} left" if seconds else ""
        self._say(f"step {step:,}/{self._total:,}  {metrics_line(metrics)}{remaining}")

    def evaluated(self, step: int, metrics: Mapping[str, float]) -> None:
        self._say(f"step {step:,}: {held_out_line(metrics, self._loss_on)}")

    def saved(self, path: Path) -> None:
        self._say(one_line(f"saved {path}"), "dim")

    def note(self, text: str) -> None:
        self._say(one_line(text), "yellow")

    def _say(self, text: str, style: str = "") -> None:
        self._console.print(styled(text, style), soft_wrap=True)


def metrics_line(metrics: Mapping[str, float]) -> str:
    """Training metrics on one line; absent ones are left out."""
    shown = (
        (events.LOSS, "loss {:.4f}"),
        (events.LEARNING_RATE, "lr {:.2e}"),
        (events.GRAD_NORM, "grad norm {:.3g}"),
        (events.EPOCH, "epoch {:.2f}"),
        (events.MEMORY, "{:.1f} GiB"),
    )
    parts = [form.format(metrics[name]) for name, form in shown if name in metrics]
    speeds = [
        f"{compact(metrics[name])} {unit}/s"
        for name, unit in ((events.TOKENS_PER_SECOND, "tokens"), (events.TRAINED_TOKENS_PER_SECOND, "trained"))
        if name in metrics
    ]
    return "  ".join(parts + speeds)


def held_out_line(metrics: Mapping[str, float], loss_on: LossOn) -> str:
    """Held-out losses on one line."""
    source_labels = {
        name: name.removeprefix(events.SOURCE_LOSS) for name in metrics if name.startswith(events.SOURCE_LOSS)
    }
    shown = {**_HELD_OUT, events.LOSS_MISTAKE: mistakes_title(loss_on), **source_labels}
    return one_line("  ".join(f"{label} {metrics[name]:.4f}" for name, label in shown.items() if name in metrics))


_SIGNS: Final = {
    Label.CONTEXT: ("|", "dim"),
    Label.TRAINED: ("+", "green"),
    Label.MISTAKE: ("✗", "red"),
}
_LINE_FEED: Final = "⏎"
"""Sign of a line feed."""

LEGEND: Final = "+ trained   | context   ✗ mistake: read, and kept out of the loss"


def preview_layout(preview: Preview) -> RenderableType:
    """One example: its counts, then its text, each line with a sign for its role in the loss."""
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
    """The lines of each segment; a line that ends in a line feed ends with its sign."""
    for segment in preview.segments:
        pieces = printable(segment.text).split("\n")
        for index, piece in enumerate(pieces):
            last = index == len(pieces) - 1
            if piece or not last:
                yield segment.label, piece if last else f"{piece}{_LINE_FEED}"


_NAME_COLUMN = 15
_MAX_NAMES = 3


def plan_lines(plan: Plan) -> str:
    """The plan: model, data, steps, memory and remarks, each row on one line, however long."""
    rows = [f"{name:<{_NAME_COLUMN}}{text}" for name, text in _rows(plan)]
    return "\n".join([*rows, *(f"! {one_line(remark)}" for remark in plan.remarks)])


def _rows(plan: Plan) -> Iterator[tuple[str, str]]:
    model, means, devices = plan.model, plan.means, plan.devices
    share = f", {compact(model.trainable)} of them trained" if model.trainable < model.parameters else ""
    yield "model", f"{one_line(model.name)}: {compact(model.parameters)} parameters{share}"
    times = f" (one of {devices.ranks} for each process)" if devices.ranks > 1 else ""
    yield "on", f"{one_line(devices.name)}{times}, {means.precision}, parallel {means.parallel}"
    yield "data", _data(plan.sizes.counts)
    if lost := lost_conversations(plan.sizes.counts):
        yield "", lost
    sources = plan.sizes.sources
    if len(sources) > 1 or any(source.weight != 1 for source in sources):
        yield from (("", _source(source)) for source in sources)
    yield "tokens", _tokens(plan.sizes.counts)
    yield "held out", _data(plan.sizes.held_out) if plan.sizes.held_out else "nothing"
    if plan.sizes.held_out and (lost := lost_conversations(plan.sizes.held_out)):
        yield "", lost
    steps = (
        f"{plan.steps:,} ({plan.steps_per_epoch:,} an epoch), each of {counted(plan.passes_per_step, 'pass', 'passes')} per device "
        f"or more; {counted(plan.evaluations, 'evaluation')}, {counted(plan.checkpoints, 'checkpoint')}"
    )
    yield "steps", steps
    yield "memory", _memory(plan.memory, devices.memory)


def _data(counts: Counts) -> str:
    records = f", {counted(counts.records, 'record')}" if counts.records != counts.conversations else ""
    return f"{counted(counts.conversations, 'conversation')}{records}"


def _source(source: SourceSizes) -> str:
    weighting = "" if source.weight == 1 else f"{source.taken:,} (weight {source.weight:g}) of "
    return (
        f"{one_line(source.name)}: {weighting}{counted(source.conversations, 'conversation')}, {source.held_out:,} held out; "
        f"{source.tokens:,} tokens, {source.trained_tokens:,} trained"
    )


def lost_conversations(counts: Counts) -> str:
    """Counts of conversations that were cut, or left out; empty if there are none."""
    turns = f", {counted(counts.cut_turns, 'assistant turn')} lost" if counts.cut_turns else ""
    parts = (
        (counts.truncated, f"cut at the end of a turn{turns}"),
        (counts.dropped_long, "left out as too long"),
        (counts.dropped_untrained, "left out without a turn to learn"),
        (counts.dropped_forged, "left out for text that looks like a control token"),
    )
    return "; ".join(f"{number:,} {effect}" for number, effect in parts if number)


def _tokens(counts: Counts) -> str:
    total = max(1, counts.tokens)
    return (
        f"{counts.tokens:,}, of which {counts.trained_tokens:,} trained ({counts.trained_tokens / total:.0%}), "
        f"{counts.mistake_tokens:,} in mistakes ({counts.mistake_tokens / total:.0%})"
    )


def _memory(memory: MemoryEstimate, available: int | None) -> str:
    names = ("weights", "gradients", "optimizer", "activations")
    parts = ", ".join(f"{name} {in_bytes(getattr(memory, name))}" for name in names)
    limit = "" if available is None else f" of {in_bytes(available)}"
    return f"about {in_bytes(memory.total)}{limit} per device: {parts}"
