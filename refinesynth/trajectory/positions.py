"""Positions of mistakes in a play."""

from collections.abc import Iterable, Sequence
from math import floor

from refinesynth.trajectory.turns import DungeonMasterTurn, MalformedTurn, PlayerTurn, answered_turns

TENTHS = 10

_MIN_MISTAKES = 200
"""Minimum number of mistakes for a lopsided histogram; with fewer, chance alone may make it so."""

_MAX_RATIO = 2.0
"""Largest accepted ratio between the fullest and the emptiest of the middle tenths."""


def mistakes_by_tenth(turns: Sequence[PlayerTurn | DungeonMasterTurn | MalformedTurn]) -> tuple[float, ...]:
    """Return the number of mistakes in each tenth of a play, whose length is counted in answered player turns.

    A turn covers its share of the play: of eight turns, the first covers the first tenth and a quarter of the second,
    and a mistake there counts as 0.8 and 0.2. The sum is the number of mistakes.
    """
    answers = [answer for _, _, answer in answered_turns(turns)]
    counts = [0.0] * TENTHS
    for index, answer in enumerate(answers):
        if answer.mistake_kind is not None:
            begin, end = index * TENTHS / len(answers), (index + 1) * TENTHS / len(answers)
            for tenth in range(floor(begin), TENTHS):
                counts[tenth] += max(0.0, min(end, tenth + 1) - max(begin, tenth)) / (end - begin)
    return tuple(counts)


def summed(histograms: Iterable[Sequence[float]]) -> tuple[float, ...]:
    """Return the sum of several histograms."""
    return tuple(map(sum, zip(*histograms, strict=True))) or (0.0,) * TENTHS


def is_lopsided(tenths: Sequence[float]) -> bool:
    """Return whether the middle eight tenths of enough mistakes differ by more than a factor of two."""
    middle = tenths[1:-1]
    return sum(tenths) >= _MIN_MISTAKES and max(middle) > _MAX_RATIO * min(middle)
