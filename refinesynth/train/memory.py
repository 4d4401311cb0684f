"""Estimates of a device's memory and of a machine's memory and disk, before anything is loaded. Imports no torch."""

import os
import shutil
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Literal

from refinesynth.files.memory import memory_of_machine
from refinesynth.train.config import ALL, SCRATCH, TrainConfig

Precision = Literal["bf16", "fp32", "fp64", "bf16-pure"]
Parallel = Literal["none", "ddp", "zero2", "zero3", "fsdp"]

_FLOAT: Final = 4
_BYTES: Final[Mapping[str, int]] = {
    **dict.fromkeys(("bf16", "bf16-pure", "fp16", "bfloat16", "float16"), 2),
    **dict.fromkeys(("fp32", "float32"), _FLOAT),
    **dict.fromkeys(("fp64", "float64"), 8),
}


@dataclass(frozen=True, slots=True)
class ModelShape:
    """Sizes of a model, for estimates and checks."""

    name: str
    parameters: int
    """All parameters, adapters included."""
    trainable: int
    """Parameters with a gradient: all, or the adapters."""
    layers: int
    hidden: int
    """Width of the residual stream."""
    intermediate: int
    """Width of the feed-forward part; of all experts of one token together."""
    vocabulary: int
    """Rows of the embedding; token ids are below it."""
    positions: int | None = None
    """Longest sequence by its positions; None: no limit."""
    dtype: str | None = None
    """Type of the checkpoint's weights, by torch's name; None if its settings do not say."""
    frozen_bytes: int | None = None
    """Bytes of frozen weights if quantized; else they have the precision of the computation."""
    read_once: bool = True
    """With FSDP one process per machine can read the weights for all (`loading.can_be_broadcast`)."""
    unused: Mapping[str, int] = field(default_factory=dict[str, int])
    """Parameters that text gives no gradient (a vision tower), by prefix of their names: frozen, without adapters."""

    @property
    def adapted(self) -> bool:
        """True if adapters are trained instead of the weights."""
        return self.trainable + sum(self.unused.values()) < self.parameters

    @property
    def largest_piece(self) -> int:
        """Parameters of the largest layer or embedding, which is gathered at once where weights are split."""
        return max(self.parameters // max(1, self.layers), self.vocabulary * self.hidden)


def describe_unused(unused: Mapping[str, int], most: int = 4) -> str:
    """One sentence on the frozen parameters that text does not reach."""
    shown = [f"{prefix} ({number:,})" for prefix, number in list(unused.items())[:most]]
    more = [f"{len(unused) - most} more"] if len(unused) > most else []
    return f"{sum(unused.values()):,} parameters are frozen and get no adapters, since text gives them no gradient: {', '.join(shown + more)}"


@dataclass(frozen=True, slots=True)
class ComputeSettings:
    """Settings of the computation, with every `auto` decided."""

    precision: Precision
    parallel: Parallel
    gradient_checkpointing: bool
    attention: str

    @property
    def held(self) -> int:
        """Bytes of a trained weight on a rank: fp32 under bf16, but with DeepSpeed the compute type (its fp32 copy is
        apart).
        """
        return _FLOAT if self.precision == "bf16" and not self.deepspeed else _BYTES[self.precision]

    @property
    def deepspeed(self) -> bool:
        """True if DeepSpeed splits the work."""
        return self.parallel in {"zero2", "zero3"}

    @property
    def splits_weights(self) -> bool:
        """True if no rank holds all weights."""
        return self.parallel in {"zero3", "fsdp"}


@dataclass(frozen=True, slots=True)
class MemoryEstimate:
    """Bytes on one device, from sizes alone, without fragmentation and the libraries' own memory."""

    weights: int
    gradients: int
    optimizer: int
    """AdamW's two moments, and DeepSpeed's fp32 copy of the weights."""
    activations: int
    """Of one pack, with the logits of trained tokens and the working copies of weights."""

    @property
    def fixed(self) -> int:
        """The part that does not depend on the data."""
        return self.weights + self.gradients + self.optimizer

    @property
    def total(self) -> int:
        return self.fixed + self.activations


def estimate_memory(
    model: ModelShape, means: ComputeSettings, *, tokens: int, trained: int, ranks: int
) -> MemoryEstimate:
    """Estimate bytes on each of `ranks` devices for a pack of `tokens`, of which `trained` reach the head.

    Activations are estimated high; the other parts are exact up to padding.
    """
    compute, held = _BYTES[means.precision], means.held
    mixed = means.precision == "bf16"
    frozen = (model.parameters - model.trainable) * (compute if model.adapted else held)
    weights = model.trainable * held + (frozen if model.frozen_bytes is None else model.frozen_bytes)
    gradients = model.trainable * held * (2 if means.parallel == "ddp" else 1)  # DDP keeps buckets of them
    moments = 2 * (_FLOAT if mixed else compute) + (_FLOAT if mixed and means.deepspeed else 0)
    # Split weights are put together piece by piece, one ahead of the one in use; autocast keeps the bf16 copy of every
    # trained weight through a forward pass.
    copies = model.trainable * compute if mixed and not means.deepspeed else 0
    working = 2 * model.largest_piece * compute if means.splits_weights else copies
    # Per token and layer: the residual stream before each half and what its norm gives (4 widths), query, key and value
    # before and after their rotation (at most 6), attention's output (1), the gated feed-forward part (4 of its width),
    # and the two fp32 copies that norms make. Attention keeps no square of scores. With checkpointing a layer keeps its
    # input alone, and one layer at a time is computed again.
    layer = tokens * (compute * (11 * model.hidden + 4 * model.intermediate) + 2 * _FLOAT * model.hidden)
    inputs = tokens * model.layers * model.hidden * compute
    layers = inputs + layer if means.gradient_checkpointing else model.layers * layer
    logits = trained * model.vocabulary * (compute + 2 * _FLOAT)  # with their fp32 copy and its gradient
    of_gradients = ranks if means.deepspeed or means.splits_weights else 1
    return MemoryEstimate(
        weights=weights // (ranks if means.splits_weights else 1),
        gradients=gradients // of_gradients,
        optimizer=model.trainable * moments // of_gradients,
        activations=working + layers + logits,
    )


@dataclass(frozen=True, slots=True)
class Host:
    """One machine of the training."""

    ranks: int = 1
    """Its processes of the training."""
    memory: int | None = None
    """Bytes that processes may use; None if unknown."""
    disk: int | None = None
    """Free bytes at the output folder; None if unknown."""
    there: int = 0
    """Bytes of existing checkpoints of this training, which are kept or make room."""

    @classmethod
    def here(cls, output: Path, ranks: int, *, anew: bool) -> "Host":
        """This machine. `anew`: what is in the output folder is set aside and stays."""
        folder = output.absolute()
        there = 0 if anew else sum(_sizes(folder / "checkpoints"))
        with suppress(OSError):
            nearest = next(path for path in (folder, *folder.parents) if path.is_dir())
            return cls(ranks, memory_of_machine(), shutil.disk_usage(nearest).free, there)
        return cls(ranks, memory_of_machine())


@dataclass(frozen=True, slots=True)
class HostUsage:
    """Bytes of a machine's memory and disk that a training takes, without tokenizers, logs and curves."""

    host: int
    """Memory to load the model into or, on CPUs, to train in."""
    checkpoint: int
    """Disk for one checkpoint: weights and optimizer state."""
    checkpoints: int
    """Checkpoints at once: the kept ones, the best, and one that is being written."""
    model: int
    """Disk for the finished model."""

    @property
    def disk(self) -> int:
        """Disk for everything."""
        return self.checkpoints * self.checkpoint + self.model


def estimate_host_usage(
    config: TrainConfig,
    model: ModelShape,
    means: ComputeSettings,
    memory: MemoryEstimate,
    *,
    on_cpu: bool,
    ranks: int,
    saved: int,
    evaluates: bool,
) -> HostUsage:
    """Estimate the use of a machine with `ranks` processes by a training that saves `saved` times.

    On GPUs every process loads the model into the machine's memory first; with FSDP one process, if the model allows
    it. On CPUs weights, gradients and optimizer lie there, and activations come on top.
    """
    held, fsdp = means.held, means.parallel == "fsdp"
    written = model.trainable * max(held, _FLOAT) if model.adapted else model.parameters * held
    if means.deepspeed:
        # DeepSpeed keeps fp32 weights with the moments; the second stage writes the model once more.
        states = model.trainable * 3 * _FLOAT + (written if means.parallel == "zero2" else 0)
    else:
        # With FSDP the ranks' pieces are all that a checkpoint has, unless it is to be loaded by others.
        again = fsdp and (model.adapted or config.keep == ALL)
        states = written * again + model.trainable * 2 * (max(held, _FLOAT) if model.adapted else held)
    stored = _BYTES.get(model.dtype or "", _FLOAT)
    finished = _BYTES.get(config.save_dtype, stored if config.model != SCRATCH else _FLOAT)
    # Frozen weights below adapters are loaded in bf16; ZeRO-3 splits weights up as they come from the file.
    loaded = 2 if config.lora and means.precision == "bf16" else _FLOAT if means.precision == "bf16" else held
    loaded = min(loaded, _BYTES.get(model.dtype or "", loaded)) if means.parallel == "zero3" else loaded
    best = int(evaluates and saved > 0)
    return HostUsage(
        host=ranks * memory.fixed if on_cpu else model.parameters * loaded * (1 if fsdp and model.read_once else ranks),
        checkpoint=written + states,
        checkpoints=saved if config.keep == ALL else min(saved, config.keep + 1 + best),
        model=written if model.adapted else model.parameters * finished,
    )


def _sizes(folder: Path) -> Iterator[int]:
    for parent, _, files in os.walk(folder):
        for name in files:
            with suppress(OSError):
                yield Path(parent, name).lstat().st_size
