"""JSON Pointers (RFC 6901) into a state, and changes that copy only the path."""

import re
import sys
from collections.abc import Callable
from typing import cast

from pydantic import JsonValue

from refinesynth.world.rulebook_errors import Inapplicable


def resolve(state: JsonValue, keys: tuple[str, ...]) -> JsonValue:
    """Return the value at a pointer's keys.

    Raises:
        Inapplicable: There is none.
    """
    here = state
    for depth, key in enumerate(keys, 1):
        here = _below(here, key, keys[:depth])
    return here


def put(state: JsonValue, keys: tuple[str, ...], value: JsonValue) -> JsonValue:
    """Return the state with `value` at `keys`, whose last key may be new in an object; the same object if nothing
    changed.
    """
    if not keys:
        return value

    def into(parent: JsonValue) -> JsonValue:
        key = keys[-1]
        if isinstance(parent, dict) and key not in parent:
            return {**parent, key: value}
        try:
            old = _below(parent, key, keys)
        except Inapplicable:
            raise Inapplicable(f"{pointer_text(keys[:-1])} is no object that could hold {key!r}") from None
        return parent if same(old, value) else _with(parent, key, value)

    return change(state, keys[:-1], into)


def drop(state: JsonValue, keys: tuple[str, ...]) -> JsonValue:
    """Return the state without the key of the pointer."""
    resolve(state, keys)
    if not keys:
        raise Inapplicable("the whole state cannot be removed")

    def out_of(parent: JsonValue) -> JsonValue:
        if isinstance(parent, dict):
            return {key: value for key, value in parent.items() if key != keys[-1]}
        items, at = cast("list[JsonValue]", parent), _index(keys[-1])
        return [*items[:at], *items[at + 1 :]]

    return change(state, keys[:-1], out_of)


def change(state: JsonValue, keys: tuple[str, ...], make: Callable[[JsonValue], JsonValue]) -> JsonValue:
    """Return the state with `make(old)` in the place of the value at `keys`; the same object if `make` returns the old
    object.

    Only objects and lists along the path are copied.

    Raises:
        Inapplicable: There is nothing at `keys`, or `make` raises it.
    """
    parents: list[JsonValue] = []
    here = state
    for depth, key in enumerate(keys, 1):
        parents.append(here)
        here = _below(here, key, keys[:depth])
    new = make(here)
    if new is here:
        return state
    for parent, key in zip(reversed(parents), reversed(keys), strict=True):
        new = _with(parent, key, new)
    return new


def same(one: JsonValue, other: JsonValue) -> bool:
    """Return whether two JSON values are equal; unlike in Python, true is not 1 and 1 is not 1.0."""
    if type(one) is not type(other):
        return False
    if isinstance(one, list):
        others = cast("list[JsonValue]", other)
        return len(one) == len(others) and all(map(same, one, others))
    if isinstance(one, dict):
        entries = cast("dict[str, JsonValue]", other)
        return one.keys() == entries.keys() and all(same(value, entries[key]) for key, value in one.items())
    return one == other


def pointer_text(keys: tuple[str, ...]) -> str:
    """Return the pointer as text."""
    return "".join(f"/{key.replace('~', '~0').replace('/', '~1')}" for key in keys) or "the state's root"


def unescape(step: str) -> str:
    """Return the key of a pointer's step.

    Raises:
        ValueError: A tilde that is neither ~0 nor ~1.
    """
    if "~" in step.replace("~0", "").replace("~1", ""):
        raise ValueError(f"a tilde in the step {step!r} must be written ~0, and a slash inside a key ~1")
    return step.replace("~1", "/").replace("~0", "~")


_INDEX = re.compile(r"0|[1-9][0-9]{0,8}")


def _below(here: JsonValue, key: str, keys: tuple[str, ...]) -> JsonValue:
    """Return the value of one key; `keys` are those so far, for the message."""
    if isinstance(here, dict) and key in here:
        return here[key]
    if isinstance(here, list) and (at := _index(key)) < len(here):
        return here[at]
    raise Inapplicable(f"there is nothing at {pointer_text(keys)}")


def _with(parent: JsonValue, key: str, value: JsonValue) -> JsonValue:
    """Return a copy of `parent` with another value at `key`, which a list must have."""
    if isinstance(parent, dict):
        return {**parent, key: value}
    items, at = cast("list[JsonValue]", parent), _index(key)
    return [*items[:at], value, *items[at + 1 :]]


def _index(key: str) -> int:
    """Return a list's index; a number beyond every list if the key is no index."""
    return int(key) if _INDEX.fullmatch(key) else sys.maxsize
