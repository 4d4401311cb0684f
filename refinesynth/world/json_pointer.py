"""JSON Pointers (RFC 6901) into a state, and changes that copy only the path."""

import re
import sys
from collections.abc import Callable
from typing import cast

from pydantic import JsonValue

from refinesynth.errors import Inapplicable


def resolve(state: JsonValue, keys: tuple[str, ...]) -> JsonValue:
    """Return the value at a pointer's keys; raises Inapplicable if there is none."""
    value = state
    for depth, key in enumerate(keys, 1):
        value = _child(value, key, keys[:depth])
    return value


def put(state: JsonValue, keys: tuple[str, ...], value: JsonValue) -> JsonValue:
    """Return the state with `value` at `keys`, whose last key may be new in an object; the same object if nothing
    changed.
    """
    if not keys:
        return value

    def put_key(parent: JsonValue) -> JsonValue:
        key = keys[-1]
        if isinstance(parent, dict) and key not in parent:
            return {**parent, key: value}
        try:
            old = _child(parent, key, keys)
        except Inapplicable:
            raise Inapplicable(f"{pointer_text(keys[:-1])} is no object that could hold {key!r}") from None
        return parent if json_equal(old, value) else _replaced(parent, key, value)

    return change(state, keys[:-1], put_key)


def drop(state: JsonValue, keys: tuple[str, ...]) -> JsonValue:
    """Return the state without the key of the pointer."""
    resolve(state, keys)
    if not keys:
        raise Inapplicable("the whole state cannot be removed")

    def drop_key(parent: JsonValue) -> JsonValue:
        if isinstance(parent, dict):
            return {key: value for key, value in parent.items() if key != keys[-1]}
        items, index = cast("list[JsonValue]", parent), _index(keys[-1])
        return [*items[:index], *items[index + 1 :]]

    return change(state, keys[:-1], drop_key)


def change(state: JsonValue, keys: tuple[str, ...], update: Callable[[JsonValue], JsonValue]) -> JsonValue:
    """Return the state with `update(old)` in the place of the value at `keys`; the same object if `update` returns the
    old object.

    Only objects and lists along the path are copied.

    Raises:
        Inapplicable: There is nothing at `keys`, or `update` raises it.
    """
    parents: list[JsonValue] = []
    old = state
    for depth, key in enumerate(keys, 1):
        parents.append(old)
        old = _child(old, key, keys[:depth])
    new = update(old)
    if new is old:
        return state
    for parent, key in zip(reversed(parents), reversed(keys), strict=True):
        new = _replaced(parent, key, new)
    return new


def json_equal(left: JsonValue, right: JsonValue) -> bool:
    """Return whether two JSON values are equal; unlike in Python, true is not 1 and 1 is not 1.0."""
    if type(left) is not type(right):
        return False
    if isinstance(left, list):
        right_items = cast("list[JsonValue]", right)
        return len(left) == len(right_items) and all(map(json_equal, left, right_items))
    if isinstance(left, dict):
        entries = cast("dict[str, JsonValue]", right)
        return left.keys() == entries.keys() and all(json_equal(value, entries[key]) for key, value in left.items())
    return left == right


def pointer_text(keys: tuple[str, ...]) -> str:
    """Return the pointer as text."""
    return "".join(f"/{key.replace('~', '~0').replace('/', '~1')}" for key in keys) or "the state's root"


def unescape(step: str) -> str:
    """Return the key of a pointer's step; raises ValueError for a tilde that is neither ~0 nor ~1."""
    if "~" in step.replace("~0", "").replace("~1", ""):
        raise ValueError(f"a tilde in the step {step!r} must be written ~0, and a slash inside a key ~1")
    return step.replace("~1", "/").replace("~0", "~")


_INDEX = re.compile(r"0|[1-9][0-9]{0,8}")


def _child(parent: JsonValue, key: str, keys: tuple[str, ...]) -> JsonValue:
    """Return the value of one key; `keys` are those so far, for the message."""
    if isinstance(parent, dict) and key in parent:
        return parent[key]
    if isinstance(parent, list) and (index := _index(key)) < len(parent):
        return parent[index]
    raise Inapplicable(f"there is nothing at {pointer_text(keys)}")


def _replaced(parent: JsonValue, key: str, value: JsonValue) -> JsonValue:
    """Return a copy of `parent` with another value at `key`, which a list must have."""
    if isinstance(parent, dict):
        return {**parent, key: value}
    items, index = cast("list[JsonValue]", parent), _index(key)
    return [*items[:index], value, *items[index + 1 :]]


def _index(key: str) -> int:
    """Return a list's index; a number beyond every list if the key is no index."""
    return int(key) if _INDEX.fullmatch(key) else sys.maxsize
