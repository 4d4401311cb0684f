"""A completion spoilt on its way: the faults that reach a client as a whole answer with status 200."""

from collections.abc import Callable, Iterator, Mapping
from copy import deepcopy
from random import Random
from typing import Any

from refinesynth.jsontext import write_json
from refinesynth.serve import twisted
from refinesynth.serve.hostile import PAGE
from refinesynth.serve.sending import Body

HUGE_BYTES = 50_000_000
"""What a huge answer's content is lengthened by."""

LEVELS = 10_000
"""Nesting of a deep answer."""

_PIECE = b"x" * 65_536
_NONE: tuple[dict[str, Any], ...] = ({}, {"choices": []}, {"choices": None})
_MARK = "the content goes on here"


def spoil(fault: str, completion: Mapping[str, Any], random: Random) -> Body:
    """The completion as this fault leaves it; what is drawn comes from `random` alone.

    Raises:
        KeyError: No fault of this name spoils an answer.
    """
    return _SPOILERS[fault](deepcopy(dict(completion)), random)


def _wrong_type(completion: dict[str, Any], random: Random) -> Body:
    return Body.of(random.choice((PAGE, write_json(completion))), media_type="text/html")


def _no_choices(completion: dict[str, Any], random: Random) -> Body:
    del completion["choices"]
    return Body.of(write_json(completion | random.choice(_NONE)))


def _cut(completion: dict[str, Any], random: Random, reason: str) -> Body:
    choice = completion["choices"][0]
    text = str(choice["message"].get("content") or "")
    choice["message"]["content"] = text[: random.randrange(len(text) + 1)]
    choice["finish_reason"] = reason
    return Body.of(write_json(completion))


def _length(completion: dict[str, Any], random: Random) -> Body:
    return _cut(completion, random, "length")


def _filter(completion: dict[str, Any], random: Random) -> Body:
    return _cut(completion, random, "content_filter")


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

    return Body(pieces(), length=len(start) + HUGE_BYTES + len(end))


def _deep(completion: dict[str, Any], random: Random) -> Body:
    opening, closing = random.choice((("[", "]"), ('{"turns":', "}")))
    nested = f"{opening * LEVELS}0{closing * LEVELS}"
    if random.choice((True, False)):
        completion["choices"][0]["message"]["content"] = nested
        return Body.of(write_json(completion))
    return Body.of(write_json(completion)[:-1] + f',"details":{nested}}}'.encode())


def _twist(twist: Callable[[dict[str, Any], Random], bytes]) -> Callable[[dict[str, Any], Random], Body]:
    return lambda completion, random: Body.of(twist(completion, random))


_SPOILERS: Mapping[str, Callable[[dict[str, Any], Random], Body]] = {
    "wrong_type": _wrong_type,
    "no_choices": _no_choices,
    "length": _length,
    "filter": _filter,
    "huge": _huge,
    "deep": _deep,
    "garble": _twist(twisted.garbled),
    "numbers": _twist(twisted.with_odd_numbers),
    "duplicates": _twist(twisted.with_duplicates),
    "mistyped": _twist(twisted.mistyped),
}

SPOILING = frozenset(_SPOILERS)
"""The faults that `spoil` knows."""
