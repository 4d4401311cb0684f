"""What texts of a rulebook are read as, remembered: many worlds say the same, and each is compiled more than once."""

from collections.abc import Callable
from functools import lru_cache, wraps
from typing import Concatenate, ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")

_SHORT = 256
"""Longest text that is remembered, in characters; so an author can fill little memory."""

_REMEMBERED = 4_096
"""Texts of each kind that are remembered."""


def remembers_short(read: Callable[Concatenate[str, P], T]) -> Callable[Concatenate[str, P], T]:
    """Read each short text once. All further arguments are hashable; what is read is shared, so nobody may change it."""
    remembered = lru_cache(maxsize=_REMEMBERED)(read)

    @wraps(read)
    def asked(text: str, *args: P.args, **kwargs: P.kwargs) -> T:
        return remembered(text, *args, **kwargs) if len(text) <= _SHORT else read(text, *args, **kwargs)

    return asked
