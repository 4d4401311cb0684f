"""Completions twisted inside: the form of an answer is kept, what stands in it is hostile.

Where a completion's content is JSON itself, that is twisted in the same way, so that the twist reaches whoever reads it.
"""

import json
import re
from collections.abc import Callable, Iterator
from random import Random
from typing import Any, cast

from pydantic import JsonValue

from refinesynth.serve.hostile import CHARACTERS, NUMBERS, VALUES

Place = tuple[dict[str, JsonValue] | list[JsonValue], str | int]
"""A container, and the key or index of one value in it."""

_NUMBER = "a number goes here"
_MARKED = re.compile(rf'"{_NUMBER}"')
_SHARE = 0.3


def garbled(completion: dict[str, Any], random: Random) -> bytes:
    """Hostile characters in the content; in its strings where it is JSON, and now and then across its syntax."""

    def twist(text: str) -> str:
        at = random.randrange(len(text) + 1)
        return f"{text[:at]}{''.join(random.sample(CHARACTERS, k=2))}{text[at:]}"

    def twisted(value: JsonValue) -> str:
        for container, key in _chosen(_places(value), random):
            if isinstance(text := _at(container, key), str):
                _put(container, key, twist(text))
        return json.dumps(value, ensure_ascii=random.random() < _SHARE)

    return _with_content(completion, random, inside=twisted, text=twist)


def with_odd_numbers(completion: dict[str, Any], random: Random) -> bytes:
    """Numbers that are none, in the usage, and in the content: instead of some value, and at the end of a text."""
    usage = completion.get("usage")
    for container, key in _chosen(_places(usage), random):
        _put(container, key, _NUMBER)

    def number() -> str:
        return random.choice(NUMBERS)

    def twisted(value: JsonValue) -> str:
        for container, key in _chosen(_places(value), random):
            _put(container, key, _NUMBER)
        return _MARKED.sub(lambda _: number(), json.dumps(value))

    written = _with_content(completion, random, inside=twisted, text=lambda text: f"{text} {number()}")
    return _MARKED.sub(lambda _: number(), written.decode()).encode()


def with_duplicates(completion: dict[str, Any], random: Random) -> bytes:
    """Keys that come twice: a value of another type stands before or after the true one."""

    def doubled(value: JsonValue) -> str:
        if isinstance(value, list):
            return f"[{', '.join(map(doubled, value))}]"
        if not isinstance(value, dict):
            return json.dumps(value)
        items: list[str] = []
        for key, below in value.items():
            true, other = (f"{json.dumps(key)}: {text}" for text in (doubled(below), json.dumps(random.choice(VALUES))))
            twice = random.random() < _SHARE
            items += random.choice(((other, true), (other, true), (true, other))) if twice else (true,)
        return f"{{{', '.join(items)}}}"

    _with_content(completion, random, inside=doubled, text=str)
    return doubled(completion).encode()


def mistyped(completion: dict[str, Any], random: Random) -> bytes:
    """One to three values anywhere in the completion, or in its content, or all of it, become values of any type."""

    def twist(value: JsonValue) -> None:
        if places := list(_places(value, whole=True)):
            for container, key in random.sample(places, k=min(len(places), random.randint(1, 3))):
                _put(container, key, random.choice(VALUES))

    def twisted(value: JsonValue) -> str:
        twist(value)
        return json.dumps(value)

    if random.random() < _SHARE:
        return _with_content(completion, random, inside=twisted, text=str)
    whole: list[JsonValue] = [completion]
    twist(whole)
    return json.dumps(whole[0]).encode()


def _with_content(
    completion: dict[str, Any], random: Random, *, inside: Callable[[JsonValue], str], text: Callable[[str], str]
) -> bytes:
    """The completion, changed in place, with its content twisted: by `inside` where it is JSON, else by `text`."""
    message = completion["choices"][0]["message"]
    content = message.get("content")
    if isinstance(content, str):
        value = _structure(content)
        keep_form = value is not None and random.random() > _SHARE / 2
        message["content"] = inside(value) if keep_form else text(content)
    return json.dumps(completion).encode()


def _structure(content: str) -> JsonValue:
    """The object or array that the content is; None if it is anything else."""
    try:
        value: Any = json.loads(content)
    except ValueError:
        return None
    return cast("JsonValue", value) if isinstance(value, dict | list) else None


def _places(value: JsonValue, *, whole: bool = False) -> Iterator[Place]:
    """Where the scalars in a value stand; with `whole`, where its objects and arrays stand too."""
    if isinstance(value, dict):
        inside: list[Place] = [(value, key) for key in value]
    else:
        inside = [(value, at) for at in range(len(value))] if isinstance(value, list) else []
    for container, key in inside:
        below = _at(container, key)
        if whole or not isinstance(below, dict | list):
            yield container, key
        yield from _places(below, whole=whole)


def _chosen(places: Iterator[Place], random: Random) -> list[Place]:
    """Some of the places, at least one if there are any."""
    every = list(places)
    return random.sample(every, k=min(len(every), random.randint(1, 3)))


def _at(container: dict[str, JsonValue] | list[JsonValue], key: str | int) -> JsonValue:
    return cast("Any", container)[key]


def _put(container: dict[str, JsonValue] | list[JsonValue], key: str | int, value: JsonValue) -> None:
    cast("Any", container)[key] = value
