"""Packs as tensors, and the LM head on predicting positions only, in chunks where all logits would fill the memory.

`position_ids` restart at 0 in each conversation. They and the boundaries keep attention within each conversation.
There is no attention mask: an all-ones mask would silently join the conversations. The head is called inside the
model's `forward`: wrappers (ZeRO-3, FSDP, adapters) see an ordinary call.
"""

import inspect
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, Final, NamedTuple, Self, cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn.functional import cross_entropy
from torch.utils import checkpoint as recomputing

from refinesynth.train.labelled_conversation import TurnLabel
from refinesynth.train.tokens import Label, Rendered


class Targets(NamedTuple):
    """Tokens of one conversation that get a loss."""

    positions: NDArray[np.int64]
    """(targets,) Positions of the tokens. Never 0: the first token has no context to be predicted from."""
    kind: NDArray[np.int64]
    """(targets,) Kind of each token, for sums by kind; all 0 in training."""


def trained_targets(example: Rendered) -> Targets:
    positions = np.flatnonzero(example.labels[1:] == Label.TRAINED) + 1
    return Targets(positions, np.zeros_like(positions))


TURN_LABELS: Final = (TurnLabel.CORRECT, TurnLabel.REFINEMENT, TurnLabel.MISTAKE)
"""Labels with separate losses in evaluation."""
KINDS: Final = 2 * (len(TURN_LABELS) + 1)
"""Number of kinds. A kind is 2 x index in `TURN_LABELS` (or its length, for other tokens), plus 1 if trained."""


def labelled_targets(example: Rendered, source: int = 0) -> Targets:
    """The tokens of turns with a label in `TURN_LABELS` and all that give loss; kinds start at `KINDS * source`."""
    turn_label = np.full(len(example), len(TURN_LABELS), np.int64)
    for span in example.spans:
        if span.label in TURN_LABELS:
            turn_label[span.start : span.stop] = TURN_LABELS.index(span.label)
    is_labelled = turn_label < len(TURN_LABELS)
    turn_label[is_labelled & (example.labels == Label.MISTAKE)] = TURN_LABELS.index(TurnLabel.MISTAKE)
    trained = example.labels == Label.TRAINED
    positions = np.flatnonzero((trained | is_labelled)[1:]) + 1
    return Targets(positions, KINDS * source + 2 * turn_label[positions] + trained[positions])


@dataclass(frozen=True, slots=True, eq=False)
class Batch:
    """One forward pass of one row with T tokens, of which K are predicted."""

    inputs: dict[str, Tensor | int]
    """Arguments of the model's `forward`, (1, T): `input_ids`, `position_ids` and the number of each token's conversation
    `seq_idx`; boundaries `cu_seq_lens_*` (conversations + 1,) and the length of the longest conversation, `max_length_*`."""
    column: Tensor
    """(K,) Predicting position: the position before the predicted token."""
    target: Tensor
    """(K,) Id of the predicted token."""
    kind: Tensor
    """(K,) Kind of the predicted token."""
    weight: float
    """1; 0 without predicted tokens, where K is 1 because every rank must call the head."""
    lengths: Tensor
    """(1, T) Length of each token's conversation."""

    def to(self, device: torch.device | str) -> Self:
        inputs = {
            name: value.to(device, non_blocking=True) if isinstance(value, Tensor) else value
            for name, value in self.inputs.items()
        }
        names = ("column", "target", "kind", "lengths")
        parts = {name: cast("Tensor", getattr(self, name)).to(device, non_blocking=True) for name in names}
        return replace(self, inputs=inputs, **parts)


def pack_batch(examples: Sequence[Rendered], targets: Callable[[Rendered], Targets] = trained_targets) -> Batch:
    """Put all examples into one row; without examples, the row is one token with weight 0."""
    lengths = [len(example) for example in examples] or [1]
    ids = np.concatenate([example.input_ids for example in examples]) if examples else np.zeros(1, np.int32)
    starts = np.concatenate([[0], np.cumsum(lengths)])
    positions = np.concatenate([np.arange(length) for length in lengths])
    ends = torch.from_numpy(starts.astype(np.int32))
    inputs: dict[str, Tensor | int] = {
        "input_ids": _long(ids)[None],
        "position_ids": _long(positions)[None],
        "seq_idx": torch.from_numpy(np.repeat(np.arange(len(lengths), dtype=np.int32), lengths))[None],
        "cu_seq_lens_q": ends,
        "cu_seq_lens_k": ends,
        "max_length_q": max(lengths),
        "max_length_k": max(lengths),
    }
    repeated = torch.from_numpy(np.repeat(lengths, lengths))[None]
    parts: list[tuple[NDArray[np.integer], ...]] = []
    for example, start in zip(examples, starts, strict=False):
        predicted, kind = targets(example)
        parts.append((predicted - 1 + start, example.input_ids[predicted], kind))
    if not any(len(part[0]) for part in parts):
        empty = torch.zeros(1, dtype=torch.long)
        return Batch(inputs, empty, empty, empty, 0.0, repeated)
    column, target, kind = (_long(np.concatenate(values)) for values in zip(*parts, strict=True))
    return Batch(inputs, column, target, kind, 1.0, repeated)


def _long(values: NDArray[np.integer]) -> Tensor:
    return torch.from_numpy(values.astype(np.int64))


CHUNK_ELEMENTS: Final = 2**27
"""Logits in memory at once: 0.5 GiB in fp32, about three times as much with the gradient."""


def token_losses(
    model: Callable[..., Any],
    inner: nn.Module,
    inputs: Mapping[str, Tensor | int],
    batch: Batch,
    *,
    chunk_elements: int | None = None,
) -> Tensor:
    """(K,) Negative log probability of each predicted token, in nats; fp32, or fp64 for an fp64 model.

    `model` is called with `inputs`; `inner` is the unwrapped model. `chunk_elements` limits the logits in memory, for
    models whose logits are the head's output (`Layout.plain_head`).
    """
    keep = {"logits_to_keep": batch.column} if takes(base_model(inner), "logits_to_keep") else {}
    column = torch.arange(len(batch.column), device=batch.column.device) if keep else batch.column
    head = output_head(inner)
    if chunk_elements is not None and head is not None:
        rows = max(1, chunk_elements // vocabulary(inner))
        # No chunks if the library keeps only the predicting positions and they fit one chunk.
        if len(batch.target) > rows or not keep:
            with _in_chunks(head, batch, column, rows):
                return _logits(model, inputs, **keep)[0, :, 0]
    logits = _logits(model, inputs, **keep)
    return negative_log_probability(logits[0] if keep else logits[0, column], batch.target)


def negative_log_probability(logits: Tensor, target: Tensor) -> Tensor:
    """(K,) Cross entropy of logits (K, vocabulary), in nats; computed in fp32 or fp64."""
    exact = logits if logits.dtype == torch.float64 else logits.float()
    return cross_entropy(exact, target, reduction="none")


def _logits(model: Callable[..., Any], inputs: Mapping[str, Tensor | int], **keep: Tensor) -> Tensor:
    # A cache costs memory, and some models treat a call with a cache as generation and join the conversations.
    return model(**inputs, **keep, use_cache=False).logits


@contextmanager
def _in_chunks(head: nn.Module, batch: Batch, column: Tensor, rows: int) -> Generator[None]:
    """Context in which the head returns (1, K, 1) losses instead of (1, columns, vocabulary) logits.

    Only the instance's `forward` is replaced, and hooks still run. The backward pass recomputes each chunk's logits.
    """
    head_forward = head.forward

    def chunk_loss(hidden: Tensor, tokens: Tensor) -> Tensor:
        return negative_log_probability(head_forward(hidden), tokens)

    def chunked(hidden: Tensor) -> Tensor:
        predicting = hidden[0, column]
        pieces: list[Tensor] = []
        for k in range(0, len(predicting), rows):
            chunk = predicting[k : k + rows], batch.target[k : k + rows]
            pieces.append(cast("Tensor", recomputing.checkpoint(chunk_loss, *chunk, use_reentrant=False)))
        # FSDP warns about outputs that are views: return a copy.
        return torch.cat(pieces)[None, :, None].clone()

    previous = vars(head).get("forward")
    head.forward = chunked
    try:
        yield
    finally:
        if previous is None:
            del head.forward  # restores the method of the class
        else:
            head.forward = previous


def base_model(inner: nn.Module) -> nn.Module:
    """The transformers model under adapters."""
    return cast("nn.Module", cast("Any", inner).get_base_model()) if hasattr(inner, "get_base_model") else inner


def output_head(inner: nn.Module) -> nn.Module | None:
    """The module that turns hidden states into logits."""
    return cast("nn.Module | None", cast("Any", base_model(inner)).get_output_embeddings())


def vocabulary(inner: nn.Module) -> int:
    """Number of logits per position."""
    return int(cast("Any", base_model(inner)).config.get_text_config().vocab_size)


def takes(model: nn.Module, argument: str) -> bool:
    """Return True if the model's `forward` has the parameter `argument`, or (`**`) accepts any keyword.

    The signature of the class is used: accelerate wraps the instance's `forward` with another signature.
    """
    parameters = inspect.signature(type(model).forward).parameters
    if argument == "**":
        return any(parameter.kind is inspect.Parameter.VAR_KEYWORD for parameter in parameters.values())
    return argument in parameters
