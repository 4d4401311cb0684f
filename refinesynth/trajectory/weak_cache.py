"""Cache by weak reference: a result is dropped with its argument, so no cache keeps objects of a finished episode."""

from collections.abc import Callable
from functools import partial, wraps
from typing import TypeVar
from weakref import ref

K = TypeVar("K")
T = TypeVar("T")

MAX_ENTRIES = 1_024
"""Maximum number of results; the oldest are dropped first."""


def weakly_cached(compute: Callable[[K], T]) -> Callable[[K], T]:
    """Decorator that computes a result once per object and drops it with the object.

    Objects are compared by identity, so they need not be hashable. A result must not refer to its object; both would
    stay until they are the oldest.
    """
    cache: dict[int, tuple[ref[K], T]] = {}

    @wraps(compute)
    def cached(obj: K) -> T:
        key = id(obj)
        entry = cache.get(key)
        if entry is not None and entry[0]() is obj:
            return entry[1]
        result = compute(obj)
        if len(cache) >= MAX_ENTRIES:
            cache.pop(next(iter(cache)), None)
        # The weak reference is alive, so no other object has this id.
        cache[key] = ref(obj, partial(cache.pop, key)), result
        return result

    return cached
