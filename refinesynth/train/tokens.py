"""Token ids of a conversation with a loss label for each, made together by `render.Renderer`."""

import hashlib
from array import array
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import IntEnum
from functools import cached_property
from typing import NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from refinesynth.train.conversation import TurnLabel


class Label(IntEnum):
    """Role of a token in the loss."""

    CONTEXT = 0
    """Not trained: prompts, observations, headers, and right turns that give no loss."""
    TRAINED = 1
    MISTAKE = 2
    """Part of a turn that was flagged as wrong: context, kept out of the loss."""


class Span(NamedTuple):
    """Tokens of one assistant turn, `input_ids[start:stop]`, with its end-of-turn token."""

    start: int
    stop: int
    label: TurnLabel


@dataclass(frozen=True, slots=True, eq=False)
class Rendered:
    """One training example, not padded."""

    id: str
    """Id of its conversation; an expanded conversation gives `id@1`, `id@2`, ..."""
    input_ids: NDArray[np.int32]
    """(tokens,)"""
    labels: NDArray[np.int8]
    """(tokens,) `Label` of each token itself: `labels[k]` belongs to the prediction of `input_ids[k]`."""
    spans: tuple[Span, ...]
    """Assistant turns, in order, not overlapping."""
    source: str = ""
    """Label of its conversation's source."""

    @property
    def trained(self) -> int:
        """Number of tokens that give loss."""
        return int(np.count_nonzero(self.labels == Label.TRAINED))

    def __len__(self) -> int:
        return len(self.input_ids)

    def first(self, tokens: int) -> Self:
        """The first `tokens` tokens; a turn that is cut through loses its span but not its labels."""
        return type(self)(
            self.id,
            self.input_ids[:tokens],
            self.labels[:tokens],
            tuple(span for span in self.spans if span.stop <= tokens),
            self.source,
        )


_TURN_LABELS = tuple(TurnLabel)
_NUMBER = {turn_label: number for number, turn_label in enumerate(_TURN_LABELS)}


@dataclass(frozen=True, eq=False)
class TokenStore:
    """Many examples in a few flat arrays: 5 bytes per token, cheap to pickle and to share between forked workers."""

    ids: tuple[str, ...]
    input_ids: NDArray[np.int32]
    """(all tokens,)"""
    labels: NDArray[np.int8]
    """(all tokens,)"""
    spans: NDArray[np.int32]
    """(all spans, 3) Start and stop within the example, and the position of its `TurnLabel`."""
    offsets: NDArray[np.int64]
    """(examples + 1,) Example k has the tokens `offsets[k]:offsets[k + 1]`."""
    span_offsets: NDArray[np.int64]
    """(examples + 1,) Likewise for `spans`."""
    sources: tuple[str, ...]
    """(examples,) Labels; not part of the digest."""

    @classmethod
    def of(cls, examples: Iterable[Rendered]) -> Self:
        """Store examples in their order; an iterator is consumed one at a time."""
        ids: list[str] = []
        sources: list[str] = []
        input_ids, labels, spans = array("i"), array("b"), array("i")
        offsets, span_offsets = array("q", [0]), array("q", [0])
        for one in examples:
            ids.append(one.id)
            sources.append(one.source)
            input_ids.frombytes(one.input_ids.astype(np.intc, copy=False).tobytes())
            labels.frombytes(one.labels.tobytes())
            for span in one.spans:
                spans.extend((span.start, span.stop, _NUMBER[span.label]))
            offsets.append(len(input_ids))
            span_offsets.append(len(spans) // 3)
        return cls(
            tuple(ids),
            np.frombuffer(input_ids.tobytes(), np.int32),
            np.frombuffer(labels.tobytes(), np.int8),
            np.frombuffer(spans.tobytes(), np.int32).reshape(-1, 3),
            np.frombuffer(offsets.tobytes(), np.int64),
            np.frombuffer(span_offsets.tobytes(), np.int64),
            tuple(sources),
        )

    def __len__(self) -> int:
        return len(self.ids)

    def __getitem__(self, at: int) -> Rendered:
        """Example `at`, as views of the store's arrays; negative numbers count from the end."""
        k = at + len(self) if at < 0 else at
        if not 0 <= k < len(self):
            raise IndexError(f"example {at} of {len(self)}")
        tokens = slice(self.offsets[k], self.offsets[k + 1])
        spans = self.spans[self.span_offsets[k] : self.span_offsets[k + 1]].tolist()
        return Rendered(
            self.ids[k],
            self.input_ids[tokens],
            self.labels[tokens],
            tuple(Span(start, stop, _TURN_LABELS[turn_label]) for start, stop, turn_label in spans),
            self.sources[k],
        )

    def __iter__(self) -> Iterator[Rendered]:
        return (self[k] for k in range(len(self)))

    @property
    def lengths(self) -> NDArray[np.int64]:
        """(examples,) Tokens of each."""
        return np.diff(self.offsets)

    @cached_property
    def digest(self) -> str:
        """SHA-256 of tokens, labels and spans in order, independent of where the data was read."""
        total = hashlib.sha256()
        for part in (self.offsets, self.input_ids, self.labels, self.span_offsets, self.spans):
            total.update(part.astype(part.dtype.newbyteorder("<"), copy=False).tobytes())
        return total.hexdigest()
