"""From the bytes of an answer, which anyone may have written, to a completion of the shape that litellm would have made
of it.
"""

import json
from collections.abc import Mapping
from typing import Any, cast

import orjson

from refinesynth.backends.completion import NO_REASON
from refinesynth.client.http.errors import HttpError, error_within

_SUCCESS = 200
_SHOWN = 300
"""Bytes of what could not be read that are repeated; enough for a page's title."""


class Reply(dict[str, Any]):
    """A chat completion as a dict."""

    __slots__ = ("headers",)

    def __init__(self, completion: Mapping[str, Any], headers: Mapping[str, str]) -> None:
        super().__init__(completion)
        self.headers = headers
        """Of the HTTP answer, their names in lower case."""


def read_reply(body: bytes, headers: Mapping[str, str], *, prefix: str = "") -> Reply:
    """The completion in the body of an answer that says it is a success.

    A reason why the answer ended is always there, and `prefix` stands before the model's name.

    Raises:
        HttpError: It is no JSON object, or it says that there was an error.
    """
    completion = _object(body, headers)
    if (error := error_within(completion, headers)) is not None:
        raise error
    choices = completion.get("choices")
    if isinstance(choices, list):
        for choice in cast("list[object]", choices):
            if isinstance(choice, dict):
                known = cast("dict[str, Any]", choice)
                reason = known.get("finish_reason")
                known["finish_reason"] = reason if isinstance(reason, str) and reason else NO_REASON
    if prefix and isinstance(completion.get("model"), str):
        completion["model"] = f"{prefix}{completion['model']}"
    return Reply(completion, headers)


def _object(body: bytes, headers: Mapping[str, str]) -> dict[str, Any]:
    try:
        value: object = orjson.loads(body)
    except orjson.JSONDecodeError:
        value = _laxly(body, headers)
    if isinstance(value, list) and len(found := cast("list[object]", value)) == 1:
        # So Gemini's endpoint for OpenAI's protocol sends an error.
        value = found[0]
    if isinstance(value, dict):
        return cast("dict[str, Any]", value)
    raise HttpError(_SUCCESS, f"its body is no JSON object but {type(cast('object', value)).__name__}", headers)


def _laxly(body: bytes, headers: Mapping[str, str]) -> object:
    """What Python's own reader takes and orjson does not: escaped lone surrogates, NaN, a byte order mark."""
    try:
        # Decoded here: given bytes, it would take surrogates that are in the UTF-8 itself.
        return json.loads(body.decode("utf-8-sig"))
    except (ValueError, RecursionError) as error:
        why = f"{type(error).__name__} in {len(body):,} bytes of {headers.get('content-type', 'no content type')}"
        if body:
            why += f", beginning with {body[:_SHOWN].decode(errors='replace').strip()}"
    raise HttpError(_SUCCESS, f"its body is no JSON: {why}", headers)
