"""Cache by weak reference: a result is dropped with its argument, so no cache keeps objects of a finished episode."""

from collections.abc import Callable
from functools import partial, update_wrapper
from typing import Generic, TypeVar
from weakref import ref

K = TypeVar("K")
T = TypeVar("T")

MAX_ENTRIES = 1_024
"""Maximum number of results; the oldest are dropped first."""


class weakly_cached(Generic[K, T]):  # noqa: N801 - a decorator
    """Decorator that computes a result once per object and drops it with the object.

    Objects are compared by identity, so they need not be hashable. A result must not refer to its object; both would
    stay until they are the oldest.
    """

    def __init__(self, make: Callable[[K], T]) -> None:
        self._make = make
        self._known: dict[int, tuple[ref[K], T]] = {}
        update_wrapper(self, make)

    def __call__(self, of: K) -> T:
        """Return the result for this object."""
        key = id(of)
        known = self._known.get(key)
        if known is not None and known[0]() is of:
            return known[1]
        made = self._make(of)
        if len(self._known) >= MAX_ENTRIES:
            self._known.pop(next(iter(self._known)), None)
        # The weak reference is alive, so no other object has this id.
        self._known[key] = ref(of, partial(self._known.pop, key)), made
        return made

    def __len__(self) -> int:
        """Return the number of cached results."""
        return len(self._known)
