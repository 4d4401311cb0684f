"""One example as the model sees it, in pieces to colour: what is trained on, what is context, what is a masked mistake."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np

from refinesynth.train.tokens import Label, Rendered


class Segment(NamedTuple):
    """Tokens of one label that follow each other."""

    text: str
    """Decoded from the tokens themselves, control tokens written out; may hold untrusted control characters."""
    label: Label
    tokens: int


@dataclass(frozen=True, slots=True)
class Preview:
    """One example, whole."""

    id: str
    segments: tuple[Segment, ...]
    """In order; two that follow each other have different labels. Their texts together are the example's text."""
    tokens: int
    trained: int
    """Tokens that give loss."""
    mistakes: int
    """Tokens of mistakes that are kept out of the loss."""

    @property
    def trained_share(self) -> float:
        """Trained tokens of all tokens, 0 to 1."""
        return self.trained / self.tokens if self.tokens else 0.0


def preview(rendered: Rendered, tokenizer: Any) -> Preview:
    """What `rendered` looks like to the model. Takes a decoding for each change of label, so it is for a few examples."""
    labels = rendered.labels
    edges = [0, *(np.flatnonzero(np.diff(labels)) + 1).tolist(), len(rendered)] if len(rendered) else [0]
    texts = _decoded(tokenizer, rendered.input_ids.tolist(), edges)
    segments = tuple(
        Segment(text, Label(int(labels[start])), stop - start)
        for text, (start, stop) in zip(texts, pairwise(edges), strict=True)
    )
    return Preview(
        rendered.id, segments, len(rendered), rendered.trained, int(np.count_nonzero(labels == Label.MISTAKE))
    )


def _decoded(tokenizer: Any, ids: Sequence[int], edges: Sequence[int]) -> list[str]:
    """The text between each two edges: what the later adds to the text up to the earlier one.

    Not each piece by itself, or a tokenizer that makes blanks part of words would lose the blank before every piece.
    """
    texts: list[str] = []
    before = ""
    for start, stop in pairwise(edges):
        whole = str(tokenizer.decode(ids[:stop], skip_special_tokens=False, clean_up_tokenization_spaces=False))
        if whole.startswith(before):
            texts.append(whole[len(before) :])
        else:  # A character's bytes lie on both sides of the edge.
            texts.append(str(tokenizer.decode(ids[start:stop], skip_special_tokens=False)))
        before = whole
    return texts
