"""Agreement of two raters who say right or wrong: confusion matrix and Cohen's kappa with its interval."""

import random
from collections.abc import Iterable, Mapping, Sequence
from typing import Final, NamedTuple

_DRAWS: Final = 2_000


class Agreement(NamedTuple):
    """Agreement of two raters over the turns that both rated."""

    turns: int
    agreed: int
    kappa: float | None
    """Cohen's kappa; None if each rater gave one and the same answer throughout."""
    low: float | None
    """Lower bound of the 95 % percentile bootstrap interval, in which whole trajectories are drawn."""
    high: float | None


def agreement(first: Mapping[str, bool], second: Mapping[str, bool], *, seed: int = 0) -> Agreement:
    """Compare verdicts by turn id; turns of one trajectory, the part of an id before `#`, are drawn together."""
    clusters: dict[str, list[int]] = {}
    for turn in sorted(first.keys() & second.keys()):
        cluster = clusters.setdefault(turn.rpartition("#")[0], [0, 0, 0, 0])
        cluster[2 * first[turn] + second[turn]] += 1
    counts = list(clusters.values())
    whole = _summed(counts)
    draw = random.Random(seed)
    draws = (_kappa(_summed(draw.choices(counts, k=len(counts)))) for _ in range(_DRAWS if counts else 0))
    found = sorted(kappa for kappa in draws if kappa is not None)
    low, high = (found[int(0.025 * len(found))], found[int(0.975 * (len(found) - 1))]) if found else (None, None)
    return Agreement(sum(whole), whole[0] + whole[3], _kappa(whole), low, high)


def _summed(counts: Iterable[Sequence[int]]) -> tuple[int, int, int, int]:
    # Both wrong, the second alone right, the first alone right, both right.
    a = b = c = d = 0
    for each in counts:
        a, b, c, d = a + each[0], b + each[1], c + each[2], d + each[3]
    return a, b, c, d


def _kappa(counts: tuple[int, int, int, int]) -> float | None:
    a, b, c, d = counts
    n = a + b + c + d
    by_chance = (a + b) * (a + c) + (c + d) * (b + d)
    return None if n * n == by_chance else (n * (a + d) - by_chance) / (n * n - by_chance)
