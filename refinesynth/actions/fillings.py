"""An action's template filled with its allowed values, often enough that every value was tried."""

from collections.abc import Iterator, Sequence
from itertools import product
from math import prod

from refinesynth.trajectory import ActionSpec

SAMPLES = (
    "something", "two words", "7", "3.5", "50%", "notes.txt", "/home/user/notes.txt", "14:30", "2024-05-13", "A1",
    "user@example.org", "https://example.org/", "+44 20 7946 0000", "mode=on", "true", "x",
)  # fmt: skip
"""Values tried for a parameter that takes any."""

EXHAUSTIVE = 64
"""Up to so many combinations of values, all are tried; beyond, a covering set."""


def fillings(action: ActionSpec, *, most: int) -> Iterator[dict[str, str]]:
    """Values by placeholder, at most `most` times.

    All combinations where there are at most `EXHAUSTIVE`, in which a parameter that takes any value counts as one.
    Otherwise a covering set: as many rows as the longest list, so that every allowed value occurs in one at least, and
    then the same lists shifted against each other, so that values meet others than the first time. Parameters that take
    any value get `SAMPLES` in turn, one for each row.
    """
    names = action.placeholders
    lists = [action.parameters.get(name, ()) for name in names]
    rows = _rows([values for values in lists if values], most)
    if all(lists):
        yield from (dict(zip(names, row, strict=True)) for row in rows)
        return
    for number, row in enumerate(rows):
        given = iter(row)
        sample = SAMPLES[number % len(SAMPLES)]
        yield {name: next(given) if values else sample for name, values in zip(names, lists, strict=True)}


def with_samples(action: ActionSpec, values: dict[str, str]) -> Sequence[dict[str, str]]:
    """`values` again, once for each of `SAMPLES` in the parameters that take any value; once, if there are none."""
    free = [name for name in values if not action.parameters.get(name)]
    return [{**values, **dict.fromkeys(free, sample)} for sample in SAMPLES] if free else (values,)


def _rows(lists: list[tuple[str, ...]], most: int) -> Iterator[tuple[str, ...]]:
    if prod(map(len, lists)) <= min(EXHAUSTIVE, most):
        yield from product(*lists)
        return
    longest = max(map(len, lists))
    for row in range(min(most, 2 * longest)):
        shift = row // longest
        yield tuple(values[(row + shift * at) % len(values)] for at, values in enumerate(lists))
