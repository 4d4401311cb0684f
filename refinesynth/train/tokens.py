"""Token ids of a conversation with a loss label for each, made together by `render.Renderer`."""

import hashlib
from dataclasses import dataclass, replace
from enum import IntEnum
from functools import cached_property
from itertools import accumulate
from typing import NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from refinesynth.train.labelled_conversation import TurnLabel


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
    calls: int = 0
    """Turns of which only the calls that are mistakes are kept out of the loss."""
    whole: int = 0
    """Turns with right calls that are kept out of the loss whole, since a mistake is among them."""

    @property
    def trained(self) -> int:
        """Number of tokens that give loss."""
        return int(np.count_nonzero(self.labels == Label.TRAINED))

    def __len__(self) -> int:
        return len(self.input_ids)

    def first(self, tokens: int) -> Self:
        """The first `tokens` tokens; a turn that is cut through loses its span but not its labels."""
        spans = tuple(span for span in self.spans if span.stop <= tokens)
        return replace(self, input_ids=self.input_ids[:tokens], labels=self.labels[:tokens], spans=spans)


_NUMBER = {turn_label: number for number, turn_label in enumerate(TurnLabel)}


class TokenStore(tuple[Rendered, ...]):  # noqa: SLOT001 - it caches its digest
    """Examples of a training, about 5 bytes per token."""

    @property
    def lengths(self) -> NDArray[np.int64]:
        """(examples,) Tokens of each."""
        return np.array([len(one) for one in self], np.int64)

    @property
    def largest_id(self) -> int:
        """Largest token id; 0 without examples."""
        return max((int(one.input_ids.max(initial=0)) for one in self), default=0)

    @property
    def sources(self) -> tuple[str, ...]:
        """Labels of all sources, sorted."""
        return tuple(sorted({one.source for one in self}))

    @cached_property
    def digest(self) -> str:
        """SHA-256 of tokens, labels and spans in order, independent of where the data was read."""
        spans = [[(span.start, span.stop, _NUMBER[span.label]) for span in one.spans] for one in self]
        offsets = [0, *accumulate(map(len, self))], [0, *accumulate(map(len, spans))]
        total = hashlib.sha256(np.array(offsets[0], "<i8").tobytes())
        for one in self:
            total.update(one.input_ids.astype("<i4", copy=False).tobytes())
        for one in self:
            total.update(one.labels.tobytes())
        total.update(np.array(offsets[1], "<i8").tobytes())
        total.update(np.array([span for each in spans for span in each], "<i4").tobytes())
        return total.hexdigest()
