"""Drawing from strategies that are made once: to make one takes longer than to draw from it."""

from collections.abc import Sequence
from functools import lru_cache
from typing import TypeVar

from hypothesis import strategies as st

T = TypeVar("T")

_WHETHER = st.booleans()


@lru_cache(maxsize=4096)
def _between(least: int, most: int) -> st.SearchStrategy[int]:
    return st.integers(least, most)


@lru_cache(maxsize=4096)
def _some_below(number: int, least: int, most: int, *, unique: bool) -> st.SearchStrategy[list[int]]:
    return st.lists(_between(0, number - 1), min_size=least, max_size=most, unique=unique)


def whether(draw: st.DrawFn) -> bool:
    """Yes or no; the simplest is no."""
    return draw(_WHETHER)


def whole(draw: st.DrawFn, least: int, most: int) -> int:
    """A whole number, both ends included; the simplest is the one nearest to 0."""
    return draw(_between(least, most))


def pick(draw: st.DrawFn, values: Sequence[T]) -> T:
    """One of the values; the simplest is the first."""
    return values[draw(_between(0, len(values) - 1))]


def pick_some(draw: st.DrawFn, values: Sequence[T], *, least: int = 0, most: int, unique: bool = True) -> list[T]:
    """`least` to `most` of the values in any order; if `unique`, each at most once."""
    return [values[at] for at in draw(_some_below(len(values), least, most, unique=unique))]
