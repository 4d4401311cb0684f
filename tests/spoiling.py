"""Whole answers with status 200 that no server should send and some do: what a client must survive.

`spoils` makes an application of `refinesynth.serve` send them. Where a completion's content is JSON itself, that is
twisted in the same way, so that the twist reaches its reader.
"""

import json
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator, Mapping
from copy import deepcopy
from dataclasses import dataclass
from functools import partial
from itertools import count
from random import Random
from typing import Any, cast

from aiohttp import web
from pydantic import JsonValue

from refinesynth.text.json_reader import write_json

CHARACTERS = (
    "\ud800", "\udc00\ud800", "\x00", "\x07\x08", "\x1b[2J\x1b[31m", "\x1b]0;title\x07", "\x1b]8;;http://example.org\x07",
    "\x9b31m", "\x7f", "\u202e", "\u2066\u200f", "\u2028", "\u2029", "\x85", "\r", "\r\n", "\x0b\x0c\x1c\x1e", "\ufeff",
    "\uffff", "\U000e0041", "\u200b", "e\u0301" * 20, "\U0001f9ea",
)  # fmt: skip
"""Lone surrogates, control characters, escape sequences, bidirectional marks, everything that some reader takes for the
end of a line, characters without a glyph."""

VALUES: tuple[JsonValue, ...] = (None, True, 0, -1, 1.5, "", "text", [], {}, [[]], ["text"], {"text": {}}, "\x00")
"""Of every type, so that most are of the wrong one wherever they stand."""

PAGE = b"<!doctype html><html><head><title>502 Bad Gateway</title></head><body>Bad Gateway</body></html>"


@dataclass(frozen=True)
class Body:
    """The body of an answer."""

    content: bytes | Iterator[bytes]
    """Whole, or in pieces that are made as they are sent, so that a long body takes no room."""
    media_type: str = "application/json"

    async def send(self, request: web.Request) -> web.StreamResponse:
        if isinstance(self.content, bytes):
            return web.Response(body=self.content, content_type=self.media_type)
        response = web.StreamResponse()
        response.content_type = self.media_type
        await response.prepare(request)
        for piece in self.content:
            await response.write(piece)
        await response.write_eof()
        return response


def spoils(app: web.Application, shares: Mapping[str, float], *, seed: int = 0) -> Counter[str]:
    """Have `app` spoil these shares of its completions, and count them by kind in what is returned."""
    met: Counter[str] = Counter()
    numbers = count()

    @web.middleware
    async def spoiling(
        request: web.Request, handler: Callable[[web.Request], Awaitable[web.StreamResponse]]
    ) -> web.StreamResponse:
        answer = await handler(request)
        if request.method != "POST" or not isinstance(answer, web.Response) or answer.status != web.HTTPOk.status_code:
            return answer
        random = Random(f"{seed}:{next(numbers)}")
        point = random.random()
        for kind, share in shares.items():
            if point < share:
                met[kind] += 1
                return await spoil(kind, json.loads(cast("bytes", answer.body)), random).send(request)
            point -= share
        return answer

    app.middlewares.append(spoiling)
    return met


HUGE_BYTES = 50_000_000
"""What a huge answer's content is lengthened by."""

LEVELS = 10_000
"""Nesting of a deep answer."""

_PIECE = b"x" * 65_536
_NONE: tuple[dict[str, Any], ...] = ({}, {"choices": []}, {"choices": None})
_MARK = "the content goes on here"


Place = tuple[dict[str, JsonValue] | list[JsonValue], str | int]
"""A container, and the key or index of one value in it."""

_SHARE = 0.3


def garbled(completion: dict[str, Any], random: Random) -> Body:
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


def mistyped(completion: dict[str, Any], random: Random) -> Body:
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
    return Body(json.dumps(whole[0]).encode())


def _with_content(
    completion: dict[str, Any], random: Random, *, inside: Callable[[JsonValue], str], text: Callable[[str], str]
) -> Body:
    """The completion, changed in place, with its content twisted: by `inside` where it is JSON, else by `text`."""
    message = completion["choices"][0]["message"]
    content = message.get("content")
    if isinstance(content, str):
        value = _structure(content)
        keep_form = value is not None and random.random() > _SHARE / 2
        message["content"] = inside(value) if keep_form else text(content)
    return Body(json.dumps(completion).encode())


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


def spoil(fault: str, completion: Mapping[str, Any], random: Random) -> Body:
    """The completion as this fault leaves it; what is drawn comes from `random` alone.

    Raises:
        KeyError: No fault of this name spoils an answer.
    """
    return _SPOILERS[fault](deepcopy(dict(completion)), random)


def _wrong_type(completion: dict[str, Any], random: Random) -> Body:
    return Body(random.choice((PAGE, write_json(completion))), media_type="text/html")


def _no_choices(completion: dict[str, Any], random: Random) -> Body:
    del completion["choices"]
    return Body(write_json(completion | random.choice(_NONE)))


def _cut(completion: dict[str, Any], random: Random, reason: str) -> Body:
    choice = completion["choices"][0]
    text = str(choice["message"].get("content") or "")
    choice["message"]["content"] = text[: random.randrange(len(text) + 1)]
    choice["finish_reason"] = reason
    return Body(write_json(completion))


def _huge(completion: dict[str, Any], random: Random) -> Body:
    del random
    message = completion["choices"][0]["message"]
    message["content"] = f"{message.get('content') or ''}{_MARK}"
    start, _, end = write_json(completion).partition(_MARK.encode())

    def pieces() -> Iterator[bytes]:
        yield start
        for at in range(0, HUGE_BYTES, len(_PIECE)):
            yield _PIECE[: HUGE_BYTES - at]
        yield end

    return Body(pieces())


def _deep(completion: dict[str, Any], random: Random) -> Body:
    opening, closing = random.choice((("[", "]"), ('{"turns":', "}")))
    nested = f"{opening * LEVELS}0{closing * LEVELS}"
    if random.choice((True, False)):
        completion["choices"][0]["message"]["content"] = nested
        return Body(write_json(completion))
    return Body(write_json(completion)[:-1] + f',"details":{nested}}}'.encode())


_SPOILERS: Mapping[str, Callable[[dict[str, Any], Random], Body]] = {
    "wrong_type": _wrong_type,
    "no_choices": _no_choices,
    "length": partial(_cut, reason="length"),
    "filter": partial(_cut, reason="content_filter"),
    "huge": _huge,
    "deep": _deep,
    "garble": garbled,
    "mistyped": mistyped,
}

SPOILING = frozenset(_SPOILERS)
"""The faults that `spoil` knows."""
