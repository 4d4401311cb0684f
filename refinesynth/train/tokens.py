"""Token ids of a conversation with a loss label for each token, made together by `render.Renderer`."""

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
    """Untrained: prompts, observations, headers, and correct turns that give no loss."""
    TRAINED = 1
    MISTAKE = 2
    """Part of a turn that is flagged as wrong, or has a wrong call: context without loss."""


class Span(NamedTuple):
    """Tokens of one assistant turn, `input_ids[start:stop]`, including its end-of-turn token."""

    start: int
    stop: int
    label: TurnLabel


@dataclass(frozen=True, slots=True, eq=False)
class Rendered:
    """One training example, without padding."""

    id: str
    """Id of the conversation; several examples of one conversation add `@` and the number of their last turn."""
    input_ids: NDArray[np.int32]
    """(tokens,)"""
    labels: NDArray[np.int8]
    """(tokens,) `Label` of each token: `labels[k]` belongs to the prediction of `input_ids[k]`."""
    spans: tuple[Span, ...]
    """Assistant turns, in order, without overlap."""
    source: str = ""
    """Name of the conversation's source."""

    @property
    def trained(self) -> int:
        """Number of tokens that give loss."""
        return int(np.count_nonzero(self.labels == Label.TRAINED))

    @property
    def mistakes(self) -> int:
        """Number of tokens of mistakes, trained or not."""
        is_mistake = self.labels == Label.MISTAKE
        for span in self.spans:
            is_mistake[span.start : span.stop] |= span.label is TurnLabel.MISTAKE
        return int(np.count_nonzero(is_mistake))

    def __len__(self) -> int:
        return len(self.input_ids)

    def first(self, tokens: int) -> Self:
        """The first `tokens` tokens; a turn that is cut keeps its labels but loses its span."""
        spans = tuple(span for span in self.spans if span.stop <= tokens)
        return replace(self, input_ids=self.input_ids[:tokens], labels=self.labels[:tokens], spans=spans)


_LABEL_NUMBERS = {turn_label: number for number, turn_label in enumerate(TurnLabel)}


class TokenStore(tuple[Rendered, ...]):  # noqa: SLOT001 - it caches its digest
    """Examples of a training, about 5 bytes per token."""

    @property
    def lengths(self) -> NDArray[np.int64]:
        """(examples,) Number of tokens."""
        return np.array([len(example) for example in self], np.int64)

    @property
    def largest_id(self) -> int:
        """Largest token id; 0 without examples."""
        return max((int(example.input_ids.max(initial=0)) for example in self), default=0)

    @property
    def sources(self) -> tuple[str, ...]:
        """Names of all sources, sorted."""
        return tuple(sorted({example.source for example in self}))

    @cached_property
    def digest(self) -> str:
        """SHA-256 of tokens, labels and spans in order, independent of ids and sources."""
        spans = [[(span.start, span.stop, _LABEL_NUMBERS[span.label]) for span in example.spans] for example in self]
        offsets = [0, *accumulate(map(len, self))], [0, *accumulate(map(len, spans))]
        total = hashlib.sha256(np.array(offsets[0], "<i8").tobytes())
        for example in self:
            total.update(example.input_ids.astype("<i4", copy=False).tobytes())
        for example in self:
            total.update(example.labels.tobytes())
        total.update(np.array(offsets[1], "<i8").tobytes())
        total.update(np.array([span for example_spans in spans for span in example_spans], "<i4").tobytes())
        return total.hexdigest()
