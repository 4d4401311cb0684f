"""Base class of all values, and a cache by weak reference.

The cache drops a result with its argument, so no cache keeps objects of a finished episode.
"""

from collections.abc import Callable
from functools import partial, wraps
from typing import Self, TypeVar
from weakref import ref

import orjson
from pydantic import AliasChoices, BaseModel, ConfigDict

from refinesynth.text.json_reader import write_json


class Value(BaseModel):
    """A frozen model that forbids unknown fields and is one line of JSON."""

    model_config = ConfigDict(frozen=True, extra="forbid", validate_by_name=True, validate_by_alias=True)

    def to_json(self) -> bytes:
        """Return this value as one line of JSON without a newline; lone surrogates become U+FFFD."""
        return write_json(self.model_dump(mode="json"))

    @classmethod
    def from_json(cls, line: bytes | str) -> Self:
        """Read the result of `to_json`.

        Raises:
            pydantic.ValidationError: The line is not such a value.
            orjson.JSONDecodeError: The line is not JSON.
        """
        return cls.model_validate(orjson.loads(line))


aliases = AliasChoices
"""Accepted names of a field: our own first, then the paper's spellings."""


def is_empty(value: object) -> bool:
    """Return whether a field has an empty value (None, False, or an empty text, tuple or object) and is not written, so
    records of other plays and prompts with their values stay unchanged.
    """
    return value is None or value is False or value in ((), "", {})


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
