"""Cache by weak reference: a result is dropped with its argument, so no cache keeps objects of a finished episode."""

from collections.abc import Callable
from functools import partial, wraps
from typing import TypeVar
from weakref import ref

K = TypeVar("K")
T = TypeVar("T")

MAX_ENTRIES = 1_024
"""Maximum number of results; the oldest are dropped first."""


def weakly_cached(make: Callable[[K], T]) -> Callable[[K], T]:
    """Decorator that computes a result once per object and drops it with the object.

    Objects are compared by identity, so they need not be hashable. A result must not refer to its object; both would
    stay until they are the oldest.
    """
    known: dict[int, tuple[ref[K], T]] = {}

    @wraps(make)
    def cached(of: K) -> T:
        key = id(of)
        found = known.get(key)
        if found is not None and found[0]() is of:
            return found[1]
        made = make(of)
        if len(known) >= MAX_ENTRIES:
            known.pop(next(iter(known)), None)
        # The weak reference is alive, so no other object has this id.
        known[key] = ref(of, partial(known.pop, key)), made
        return made

    return cached
