"""Examples as the model sees them, in labelled pieces: trained, context, masked mistake."""

from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass
from itertools import islice, pairwise
from typing import Any, NamedTuple

import numpy as np

from refinesynth.extras import check_installed
from refinesynth.train.config import SCRATCH, TrainConfig
from refinesynth.train.data import read_configured
from refinesynth.train.engine.launcher import choose_accelerator
from refinesynth.train.input_check import check_inputs
from refinesynth.train.prepare import fit
from refinesynth.train.tokens import Label, Rendered


class Segment(NamedTuple):
    """Consecutive tokens of one label."""

    text: str
    """Decoded from the tokens, control tokens included; may hold untrusted control characters."""
    label: Label
    tokens: int


@dataclass(frozen=True, slots=True)
class Preview:
    """One example in pieces."""

    id: str
    segments: tuple[Segment, ...]
    """In order, neighbours with different labels; their texts together are the example's text."""
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
    """Split `rendered` into pieces. Decodes once per change of label: for a few examples."""
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
    """The text between two edges each: what the later edge adds, since tokenizers make blanks part of words."""
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


def preview_data(config: TrainConfig, number: int, *, sources: Sequence[Any] | None = None) -> list[Preview]:
    """The first `number` examples that a training would keep, cut to `max_length`. Loads no weights and writes nothing.

    Raises:
        InputError: Data or tokenizer cannot be read, or the chat template does not say which tokens a turn has.
    """
    check_installed("train", "torch", "transformers")
    check_inputs(config, sources)
    choose_accelerator()
    from refinesynth.train.engine.loading import load_tokenizer, make_renderer
    from refinesynth.train.engine.rank_training import libraries_silenced

    with libraries_silenced(), closing(read_configured(config, sources).open()) as reading:
        conversations = list(reading) if config.model == SCRATCH else reading
        tokenizer = load_tokenizer(config, conversations)
        renderer = make_renderer(config, tokenizer)
        rendered = (one for conversation in conversations for one in renderer.render(conversation) if one.trained)
        kept = (fit(one, config.max_length, config.over_length) for one in rendered)
        return [preview(one, tokenizer) for one in islice(filter(None, kept), number)]
