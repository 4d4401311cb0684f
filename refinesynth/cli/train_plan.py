"""The plan of a training, laid out for reading."""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from rich.console import Group, RenderableType

from refinesynth.cli.terminal import labelled, styled
from refinesynth.text.figures import compact, counted, in_bytes
from refinesynth.text.printable import one_line
from refinesynth.train.memory import MemoryEstimate
from refinesynth.train.plan import Plan, SourceSizes

if TYPE_CHECKING:
    from refinesynth.train.prepare import Counts

_NAME_COLUMN = 15
_NAMED = 3
"""Ids that are shown of what was cut or left out."""


def as_lines(plan: Plan) -> str:
    """The same as `laid_out`, for what is no terminal: each row on one line, however long."""
    rows = [f"{name:<{_NAME_COLUMN}}{text}" for name, text in _rows(plan)]
    return "\n".join([*rows, *(f"! {one_line(remark)}" for remark in plan.remarks)])


def laid_out(plan: Plan) -> RenderableType:
    """What will be trained, on what, in how many steps, in how much memory, and what to mind."""
    table = labelled(((name, styled(text)) for name, text in _rows(plan)), apart=2)
    return Group(table, *(styled(f"! {one_line(remark)}", "yellow") for remark in plan.remarks))


def _rows(plan: Plan) -> Iterator[tuple[str, str]]:
    model, means, devices = plan.model, plan.means, plan.devices
    share = f", {compact(model.trainable)} of them trained" if model.trainable < model.parameters else ""
    yield "model", f"{one_line(model.name)}: {compact(model.parameters)} parameters{share}"
    times = f" (one of {devices.ranks} for each process)" if devices.ranks > 1 else ""
    yield "on", f"{one_line(devices.name)}{times}, {means.precision}, parallel {means.parallel}"
    yield "data", _data(plan.sizes.counts)
    if lost := lost_of(plan.sizes.counts):
        yield "", lost
    sources = plan.sizes.sources
    if len(sources) > 1 or any(each.weight != 1 for each in sources):
        yield from (("", _source(each)) for each in sources)
    yield "tokens", _tokens(plan.sizes.counts)
    yield "turns found by", one_line(plan.sizes.rendering)
    yield "held out", _data(plan.sizes.held_out) if plan.sizes.held_out else "nothing"
    if plan.sizes.held_out and (lost := lost_of(plan.sizes.held_out)):
        yield "", lost
    steps = (
        f"{plan.steps:,} ({plan.steps_per_epoch:,} an epoch), each of {counted(plan.passes_per_step, 'pass', 'passes')} per device "
        f"or more; {counted(plan.evaluations, 'evaluation')}, {counted(plan.checkpoints, 'checkpoint')}"
    )
    yield "steps", steps
    yield "memory", _memory(plan.memory, devices.memory)
    yield "host memory", _host(plan)
    yield "disk", _disk(plan)


def _data(counts: "Counts") -> str:
    records = f", {counted(counts.records, 'record')}" if counts.records != counts.conversations else ""
    return f"{counted(counts.conversations, 'conversation')}{records}"


def _source(one: SourceSizes) -> str:
    weighed = "" if one.weight == 1 else f"{one.taken:,} (weight {one.weight:g}) of "
    return (
        f"{one_line(one.name)}: {weighed}{counted(one.conversations, 'conversation')}, {one.held_out:,} held out; "
        f"{one.tokens:,} tokens, {one.trained_tokens:,} trained"
    )


def lost_of(counts: "Counts") -> str:
    """What was cut or left out, and which; empty if nothing was."""
    turns = f", {counted(counts.cut_turns, 'assistant turn')} lost" if counts.cut_turns else ""
    parts = (
        ("truncated", counts.truncated, f"cut at the end of a turn{turns}"),
        ("dropped_long", counts.dropped_long, "left out as too long"),
        ("dropped_untrained", counts.dropped_untrained, "left out without a turn to learn"),
        ("repeated", counts.repeated, "the same as an earlier one, kept"),
    )
    return "; ".join(
        f"{number:,} {how} ({_listed(counts.named.get(kind, ()), number)})" for kind, number, how in parts if number
    )


def _listed(names: Sequence[str], number: int) -> str:
    shown = [one_line(name, most=40) for name in names[:_NAMED]]
    return ", ".join([*shown, "..."] if number > len(shown) else shown)


def _tokens(counts: "Counts") -> str:
    whole = max(1, counts.tokens)
    return (
        f"{counts.tokens:,}, of which {counts.trained_tokens:,} trained ({counts.trained_tokens / whole:.0%}), "
        f"{counts.mistake_tokens:,} in mistakes ({counts.mistake_tokens / whole:.0%})"
    )


def _memory(memory: MemoryEstimate, there: int | None) -> str:
    parts = (
        ("weights", memory.weights),
        ("gradients", memory.gradients),
        ("optimizer", memory.optimizer),
        ("activations", memory.activations),
    )
    of = "" if there is None else f" of {in_bytes(there)}"
    return f"about {in_bytes(memory.total)}{of} per device: {', '.join(f'{name} {in_bytes(size)}' for name, size in parts)}"


def _host(plan: Plan) -> str:
    host = plan.host
    alone = plan.means.parallel == "fsdp" and plan.model.read_once and plan.devices.kind != "cpu"
    of = "" if host.memory is None else f" of {in_bytes(host.memory)}"
    what = "to train in" if plan.devices.kind == "cpu" else "to load the model"
    by = "one process" if alone or host.ranks == 1 else f"{host.ranks} processes"
    return f"about {in_bytes(plan.room.host)}{of} {what}, by {by}"


def _disk(plan: Plan) -> str:
    room, host = plan.room, plan.host
    free = "" if host.disk is None else f", {in_bytes(host.disk)} are free"
    there = f", {in_bytes(host.there)} are there already" if host.there else ""
    kept = (
        f"{counted(room.checkpoints, 'checkpoint')} of {in_bytes(room.checkpoint)} at once, "
        if room.checkpoints
        else ""
    )
    return f"about {in_bytes(room.disk)}: {kept}the model {in_bytes(room.model)}{there}{free}"
