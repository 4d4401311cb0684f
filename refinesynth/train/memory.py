"""Estimates of the memory of a device, and of the memory and the disk of a machine, before anything is loaded. No torch."""

import os
import shutil
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Literal

from refinesynth.errors import InputError
from refinesynth.files.memory import memory_of_machine
from refinesynth.text.figures import counted, in_bytes
from refinesynth.train.config import ALL, SCRATCH, TrainConfig

Precision = Literal["bf16", "fp32", "fp64", "bf16-pure"]
Parallel = Literal["none", "ddp", "zero2", "zero3", "fsdp"]

_FLOAT: Final = 4
_COMPUTED: Final[Mapping[Precision, int]] = {"bf16": 2, "bf16-pure": 2, "fp32": _FLOAT, "fp64": 8}
"""Bytes of a number in the precision that is computed in."""


@dataclass(frozen=True, slots=True)
class ModelShape:
    """What the estimate, and the checks before the first step, need to know of a model."""

    name: str
    parameters: int
    """All of them, adapters included."""
    trainable: int
    """Those that get a gradient: all, or the adapters."""
    layers: int
    hidden: int
    """Width of the residual stream."""
    intermediate: int
    """Width of the feed-forward part; of all experts that one token goes through."""
    vocabulary: int
    """Rows of the embedding; a token id beyond them cannot be read."""
    positions: int | None = None
    """Longest sequence that the model has positions for; None if it has no such limit."""
    dtype: str | None = None
    """What its checkpoint holds weights in, by torch's name; None where its settings do not say."""
    frozen_bytes: int | None = None
    """Of all weights that are not trained, where they are quantized; else they are held in the precision that is
    computed in."""
    read_once: bool = True
    """Whether with FSDP one process of a machine can read the weights for all on it
    (`fsdp_loading.can_be_broadcast`)."""
    unused: Mapping[str, int] = field(default_factory=dict[str, int])
    """Parameters that text gives no gradient, by prefix of their names (a vision tower): frozen, and without
    adapters."""

    @property
    def adapted(self) -> bool:
        """Whether adapters are trained in the place of the weights."""
        return self.trainable + sum(self.unused.values()) < self.parameters

    @property
    def largest_piece(self) -> int:
        """Parameters of a layer or of the embedding, whichever is larger: what is put together at once where weights
        are split.
        """
        return max(self.parameters // max(1, self.layers), self.vocabulary * self.hidden)


def describe_unused(unused: Mapping[str, int], most: int = 4) -> str:
    """What is done about parameters that text does not reach, which they are and how many."""
    shown = [f"{prefix} ({number:,})" for prefix, number in list(unused.items())[:most]]
    more = [f"{len(unused) - most} more"] if len(unused) > most else []
    return f"{sum(unused.values()):,} parameters are frozen and get no adapters, since text gives them no gradient: {', '.join(shown + more)}"


@dataclass(frozen=True, slots=True)
class Load:
    """What goes through the model in one pass on one device."""

    tokens: int
    """Of the fullest pack."""
    trained: int
    """Of these, the ones that reach the head."""


@dataclass(frozen=True, slots=True)
class MemoryEstimate:
    """Bytes on one device, estimated from sizes alone: fragments, and what libraries keep for themselves, come on
    top.
    """

    weights: int
    gradients: int
    optimizer: int
    """AdamW's two moments, and DeepSpeed's fp32 copy of the weights."""
    activations: int
    """Of one pack, with the logits of trained tokens and the working copies of weights."""

    @property
    def fixed(self) -> int:
        """What does not depend on the data: no setting of lengths makes it smaller."""
        return self.weights + self.gradients + self.optimizer

    @property
    def total(self) -> int:
        """All parts together."""
        return self.fixed + self.activations


def estimate_memory(
    model: ModelShape,
    load: Load,
    *,
    precision: Precision,
    parallel: Parallel,
    ranks: int,
    gradient_checkpointing: bool,
) -> MemoryEstimate:
    """Bytes on each of `ranks` devices.

    Frozen weights below adapters are held in the precision that is computed in, others as those that are trained. Where
    the estimate is unsure, in the activations, it is meant to be high; the other parts are exact up to padding.
    """
    compute, held = _COMPUTED[precision], held_bytes(precision, parallel)
    sharded = parallel in {"zero2", "zero3"}
    mixed = precision == "bf16"
    master = _FLOAT if mixed and sharded else 0
    frozen = model.parameters - model.trainable
    at_rest = compute if model.adapted else held
    moments = 2 * (_FLOAT if mixed else compute)
    of_weights = ranks if parallel in {"zero3", "fsdp"} else 1
    of_gradients = ranks if parallel in {"zero2", "zero3", "fsdp"} else 1
    buckets = 2 if parallel == "ddp" else 1
    working = _working_copies(model, compute, parallel=parallel, casts=mixed and not sharded)
    return MemoryEstimate(
        weights=(model.trainable * held + (frozen * at_rest if model.frozen_bytes is None else model.frozen_bytes))
        // of_weights,
        gradients=model.trainable * held * buckets // of_gradients,
        optimizer=model.trainable * (moments + master) // of_gradients,
        activations=working + _activations(model, load, compute, gradient_checkpointing=gradient_checkpointing),
    )


def held_bytes(precision: Precision, parallel: Parallel) -> int:
    """Of a trained weight as a rank holds it: DeepSpeed in what it computes in, beside an fp32 copy; all others in fp32
    over bf16.
    """
    return _FLOAT if precision == "bf16" and parallel not in {"zero2", "zero3"} else _COMPUTED[precision]


def _working_copies(model: ModelShape, compute: int, *, parallel: Parallel, casts: bool) -> int:
    """Weights in the form that is computed with, beside those that are held.

    Autocast keeps the bf16 copy of every trained weight through a forward pass; split weights are put together piece by
    piece, one ahead of the one in use.
    """
    if parallel in {"zero3", "fsdp"}:
        return 2 * model.largest_piece * compute
    return model.trainable * compute if casts else 0


def _activations(model: ModelShape, load: Load, compute: int, *, gradient_checkpointing: bool) -> int:
    """Bytes that the backward pass needs of the forward pass, attention without its square of scores.

    Per token and layer: the residual stream before each half and what its norm gives (4 widths), query, key and value
    before and after their rotation (at most 6), attention's output (1), the gated feed-forward part (4 of its width),
    and the two fp32 copies that norms make. With checkpointing a layer keeps its input alone, and one layer at a time
    is computed again.
    """
    in_a_layer = load.tokens * (compute * (11 * model.hidden + 4 * model.intermediate) + 2 * _FLOAT * model.hidden)
    if gradient_checkpointing:
        layers = load.tokens * model.layers * model.hidden * compute + in_a_layer
    else:
        layers = model.layers * in_a_layer
    # Logits, their fp32 copy and its gradient.
    return layers + load.trained * model.vocabulary * (compute + 2 * _FLOAT)


_BYTES: Final = {"bf16": 2, "fp16": 2, "fp32": 4, "fp64": 8, "bfloat16": 2, "float16": 2, "float32": 4, "float64": 8}


@dataclass(frozen=True, slots=True)
class Host:
    """A machine of the training."""

    ranks: int = 1
    """Processes of the training on it."""
    memory: int | None = None
    """Bytes that processes may use; None if unknown."""
    disk: int | None = None
    """Bytes that are free where the output goes; None if unknown."""
    there: int = 0
    """Bytes of this training's checkpoints that are there already: they are among those that are kept, or make room."""

    @classmethod
    def here(cls, output: Path, ranks: int, *, anew: bool) -> "Host":
        """This one. `anew`: what is in the output folder is set aside and stays."""
        folder = output.absolute()
        there = 0 if anew else sum(_sizes(folder / "checkpoints"))
        with suppress(OSError):
            nearest = next(path for path in (folder, *folder.parents) if path.is_dir())
            return cls(ranks, memory_of_machine(), shutil.disk_usage(nearest).free, there)
        return cls(ranks, memory_of_machine())


@dataclass(frozen=True, slots=True)
class HostUsage:
    """Bytes that a training takes of a machine and its disk, estimated; tokenizers, logs and curves come on top."""

    host: int
    """Of the machine's memory: to load the model into, or, on CPUs, to train in."""
    checkpoint: int
    """Of the disk, for one checkpoint: weights, and what the optimizer goes on from."""
    checkpoints: int
    """Checkpoints that are there at once: those that are kept, the best, and one that is being written."""
    model: int
    """Of the disk, for the finished model."""

    @property
    def disk(self) -> int:
        """Of the disk, all together."""
        return self.checkpoints * self.checkpoint + self.model


def estimate_host_usage(
    config: TrainConfig,
    model: ModelShape,
    memory: MemoryEstimate,
    *,
    kind: Literal["cpu", "gpu"],
    precision: Precision,
    parallel: Parallel,
    ranks: int,
    saved: int,
    evaluates: bool,
) -> HostUsage:
    """What a training takes of a machine with `ranks` processes that saves `saved` times.

    On GPUs every process loads the model into the machine's memory before its device gets it, with FSDP one alone where
    the model allows it; on CPUs weights, gradients and optimizer lie there, and activations come on top.
    """
    held = held_bytes(precision, parallel)
    written = model.trainable * max(held, _FLOAT) if model.adapted else model.parameters * held
    if parallel in {"zero2", "zero3"}:
        # DeepSpeed keeps fp32 weights with the moments; the second stage writes the model once more.
        states = model.trainable * 3 * _FLOAT + (written if parallel == "zero2" else 0)
    else:
        # With FSDP the ranks' pieces are all that a checkpoint has, unless it is to be loaded by others.
        again = parallel == "fsdp" and (model.adapted or config.keep == ALL)
        states = written * again + model.trainable * 2 * (max(held, _FLOAT) if model.adapted else held)
    best = int(evaluates and saved > 0)
    kept = saved if config.keep == "all" else min(saved, config.keep + 1 + best)
    return HostUsage(
        host=ranks * memory.fixed if kind == "cpu" else _loaded(config, model, precision, parallel, ranks),
        checkpoint=written + states,
        checkpoints=kept,
        model=written if model.adapted else model.parameters * _finished(config, model),
    )


def refuse_too_small_host(config: TrainConfig, model: ModelShape, room: HostUsage, host: Host) -> None:
    """Raises: InputError: The machine's memory or its disk cannot hold what the training takes.

    With an optimizer of the user's own, which may keep less than AdamW does, the disk is left to them.
    """
    if host.memory is not None and room.host > host.memory:
        once = "parallel fsdp on GPUs (one process alone loads the model), " if model.read_once else ""
        raise InputError(
            f"the model is too large for this machine's memory: {host.ranks} processes take {in_bytes(room.host)} of it, and it has "
            f"{in_bytes(host.memory)}. Use {'' if config.lora else '--lora, '}{once}fewer processes or a smaller model"
        )
    needed = room.disk - host.there
    if host.disk is not None and needed > host.disk and not config.trainer.get("optim"):
        smaller = "" if config.keep == 1 else "--set keep=1, "
        raise InputError(
            f"what is kept would fill the disk: {counted(room.checkpoints, 'checkpoint')} of {in_bytes(room.checkpoint)} and the model's "
            f"{in_bytes(room.model)} need {in_bytes(needed)} more, and {config.output!r} has {in_bytes(host.disk)} free. Use {smaller}"
            f"{'' if config.lora else '--lora, '}--set save_every=never (only the model is written) or another -o"
        )


def _finished(config: TrainConfig, model: ModelShape) -> int:
    if config.save_dtype != "auto":
        return _BYTES[config.save_dtype]
    return _BYTES.get(model.dtype or "", _FLOAT) if config.model != SCRATCH else _FLOAT


def _loaded(config: TrainConfig, model: ModelShape, precision: Precision, parallel: Parallel, ranks: int) -> int:
    each = (
        2 if precision == "bf16-pure" or (config.lora and precision == "bf16") else 8 if precision == "fp64" else _FLOAT
    )
    if parallel == "zero3":  # split up as it comes from the file
        each = min(each, _BYTES.get(model.dtype or "", each))
    return model.parameters * each * (1 if parallel == "fsdp" and model.read_once else ranks)


def _sizes(folder: Path) -> Iterator[int]:
    for parent, _, files in os.walk(folder):
        for name in files:
            with suppress(OSError):
                yield Path(parent, name).lstat().st_size
