"""How many calls a commit waits for."""

LONGEST_S = 0.005
"""How long a commit waits at most for others to join it, in seconds. It adds to a completion that took a hundred times
longer."""

_TRY_EVERY_S = 0.1
"""How often it is found out how many would join, in seconds."""

_WORTH_IT = 4
"""Fewer than these are not waited for."""

ALL = 1 << 62
"""More than will ever come."""


class Gathering:
    """Finds out how many calls come together within `LONGEST_S`, by waiting that long now and then.

    A commit costs the same for one call and for ten. Where many come, waiting for them saves most of that. Where one
    comes after the other, or as many as there are callers, waiting any longer gives nothing: those who would call are
    waiting too.
    """

    def __init__(self) -> None:
        self._usual = 1
        self._next_try = float("-inf")
        self._trying = False

    def begin(self, now: float) -> int:
        """How many calls to wait for, `LONGEST_S` at most, once the first is there at `now` (seconds of any clock)."""
        self._trying = now >= self._next_try
        return ALL if self._trying else self._usual

    def end(self, came: int, now: float) -> None:
        """What came by `now`, when the wait was over."""
        if self._trying:
            self._usual = came if came >= _WORTH_IT else 1
            self._next_try = now + _TRY_EVERY_S
