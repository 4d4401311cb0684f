"""Which tokens of a conversation a loss is computed on: in training, and kind by kind in evaluation. No torch."""

from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from refinesynth.train.conversation import Speech
from refinesynth.train.tokens import Label, Rendered


class Targets(NamedTuple):
    """Tokens of one conversation that a loss is computed on."""

    at: NDArray[np.int64]
    """(targets,) Positions of the tokens. Never 0: a conversation's first token is predicted from nothing."""
    kind: NDArray[np.int64]
    """(targets,) What each is, for sums by kind; all 0 in training."""


def trained_targets(example: Rendered) -> Targets:
    """The tokens that give loss."""
    at = np.flatnonzero(example.labels[1:] == Label.TRAINED) + 1
    return Targets(at, np.zeros_like(at))


SPEECHES: Final = (Speech.CORRECT, Speech.REFINEMENT, Speech.MISTAKE)
"""What evaluation tells apart; a turn of which nothing is known is left out."""
KINDS: Final = 2 * (len(SPEECHES) + 1)
"""Kinds of `spoken_targets`: twice the number in `SPEECHES` (or one more, for other trained tokens), plus 1 if trained."""


def spoken_targets(example: Rendered, source: int = 0) -> Targets:
    """The tokens of all assistant turns that are correct, refinements or mistakes, and whatever else gives loss.

    Kinds of the source of number `source` are the `KINDS` from `KINDS * source` on.
    """
    speech = np.full(len(example), len(SPEECHES), np.int64)
    for span in example.spans:
        if span.speech in SPEECHES:
            speech[span.start : span.stop] = SPEECHES.index(span.speech)
    trained = example.labels == Label.TRAINED
    at = np.flatnonzero((trained | (speech < len(SPEECHES)))[1:]) + 1
    return Targets(at, KINDS * source + 2 * speech[at] + trained[at])
