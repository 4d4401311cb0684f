"""Packs as tensors: inputs of a forward pass and the tokens to predict.

`position_ids` restart at 0 in each conversation. They and the boundaries keep attention within each conversation.
There is no attention mask: an all-ones mask would silently join the conversations.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Final, NamedTuple, Self, cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

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
