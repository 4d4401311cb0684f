"""A cache by weak reference: a result goes with the object that it was made of, so no cache keeps what an episode is
done with.
"""

from collections.abc import Callable
from functools import partial, update_wrapper
from typing import Generic, TypeVar
from weakref import ref

K = TypeVar("K")
T = TypeVar("T")

MAX_ENTRIES = 1_024
"""Most results at once; the oldest are dropped first."""


class weakly_cached(Generic[K, T]):  # noqa: N801 - a decorator
    """A decorator: compute once per object, and drop the result with the object.

    An object is known by its identity, so it need not be hashable; two that are equal are two. What is made must not
    hold on to the object, or both stay until they are crowded out.
    """

    def __init__(self, make: Callable[[K], T]) -> None:
        self._make = make
        self._known: dict[int, tuple[ref[K], T]] = {}
        update_wrapper(self, make)

    def __call__(self, of: K) -> T:
        """The result for this object."""
        key = id(of)
        known = self._known.get(key)
        if known is not None and known[0]() is of:
            return known[1]
        made = self._make(of)
        if len(self._known) >= MAX_ENTRIES:
            self._known.pop(next(iter(self._known)), None)
        # As long as it is there, no other object has its id.
        self._known[key] = ref(of, partial(self._known.pop, key)), made
        return made

    def __len__(self) -> int:
        """Return how many results are kept."""
        return len(self._known)
