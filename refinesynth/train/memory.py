"""Estimate of a device's memory, before anything is loaded. Imports no torch."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, Literal

Precision = Literal["bf16", "fp32", "fp64", "bf16-pure"]
Parallel = Literal["none", "ddp", "zero2", "zero3", "fsdp"]

_FLOAT: Final = 4
_BYTES: Final[Mapping[Precision, int]] = {"bf16": 2, "bf16-pure": 2, "fp32": _FLOAT, "fp64": 8}


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
