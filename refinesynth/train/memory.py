"""How much memory one device will need, by parts: sizes only, so that it is known before anything is loaded."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, Literal

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
