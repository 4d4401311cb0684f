"""Which tokens of a conversation a loss is computed on: in training, and kind by kind in evaluation. No torch."""

from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from refinesynth.train.conversation import TurnLabel
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


TURN_LABELS: Final = (TurnLabel.CORRECT, TurnLabel.REFINEMENT, TurnLabel.MISTAKE)
"""Labels that evaluation keeps apart; a turn of which nothing is known is left out."""
KINDS: Final = 2 * (len(TURN_LABELS) + 1)
"""Kinds of `labelled_targets`: twice the number in `TURN_LABELS` (or one more, for other trained tokens), plus 1 if
trained."""


def labelled_targets(example: Rendered, source: int = 0) -> Targets:
    """The tokens of all assistant turns that are correct, refinements or mistakes, and of everything else that gives
    loss.

    Kinds of the source of number `source` are the `KINDS` from `KINDS * source` on.
    """
    turn_label = np.full(len(example), len(TURN_LABELS), np.int64)
    for span in example.spans:
        if span.label in TURN_LABELS:
            turn_label[span.start : span.stop] = TURN_LABELS.index(span.label)
    trained = example.labels == Label.TRAINED
    at = np.flatnonzero((trained | (turn_label < len(TURN_LABELS)))[1:]) + 1
    return Targets(at, KINDS * source + 2 * turn_label[at] + trained[at])
