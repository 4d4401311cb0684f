"""From the bytes of an answer, which anyone may have written, to a completion of the shape that litellm would have made
of it.
"""

import json
from collections.abc import Mapping
from typing import Any, cast

import orjson

from refinesynth.backends.completion import NO_REASON
from refinesynth.client.http.errors import HttpError, said

_SUCCESS = 200
_SHOWN = 300
"""Bytes of what could not be read that are repeated; enough for a page's title."""
_UNPROCESSABLE = 422
_ERRORS = range(400, 600)


class Reply(dict[str, Any]):
    """A chat completion as a dict."""

    __slots__ = ("headers",)

    def __init__(self, completion: Mapping[str, Any], headers: Mapping[str, str]) -> None:
        super().__init__(completion)
        self.headers = headers
        """Of the HTTP answer, their names in lower case."""


def read_reply(body: bytes, headers: Mapping[str, str], *, prefix: str = "") -> Reply:
    """The completion in the body of an answer that says it is a success.

    Cached tokens are under `prompt_tokens_details`, a reason why the answer ended is always there, and `prefix` stands
    before the model's name.

    Raises:
        HttpError: It is no JSON object, or it says that there was an error.
    """
    completion = _object(body, headers)
    if completion.get("error"):
        _raise_error_within(completion, headers)
    choices = completion.get("choices")
    if isinstance(choices, list):
        for choice in cast("list[object]", choices):
            if isinstance(choice, dict):
                known = cast("dict[str, Any]", choice)
                reason = known.get("finish_reason")
                known["finish_reason"] = reason if isinstance(reason, str) and reason else NO_REASON
    usage = completion.get("usage")
    if isinstance(usage, dict):
        _settle_cached(cast("dict[str, Any]", usage))
    if prefix and isinstance(completion.get("model"), str):
        completion["model"] = f"{prefix}{completion['model']}"
    return Reply(completion, headers)


def _object(body: bytes, headers: Mapping[str, str]) -> dict[str, Any]:
    try:
        value: object = orjson.loads(body)
    except orjson.JSONDecodeError:
        value = _laxly(body, headers)
    if not isinstance(value, dict):
        raise HttpError(_SUCCESS, f"its body is no JSON object but {type(value).__name__}", headers)
    return cast("dict[str, Any]", value)


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


def _raise_error_within(completion: Mapping[str, Any], headers: Mapping[str, str]) -> None:
    """Some gateways say 200 and put what went wrong into the body; some put an empty error there when nothing did."""
    error = completion["error"]
    code = cast("Mapping[str, Any]", error).get("code") if isinstance(error, Mapping) else None
    message = said(completion)
    if message is None and code is None and isinstance(error, Mapping):
        return
    status = code if isinstance(code, int) and code in _ERRORS else _UNPROCESSABLE
    raise HttpError(status, message or "it says that there was an error, and not which", headers)


def _settle_cached(usage: dict[str, Any]) -> None:
    hits, written = usage.get("prompt_cache_hit_tokens"), usage.get("cache_creation_input_tokens")
    read = usage.get("cache_read_input_tokens")
    if hits is None and written is None and read is None:
        return
    given = usage.get("prompt_tokens_details")
    details = dict(cast("Mapping[str, Any]", given)) if isinstance(given, Mapping) else {}
    if (cached := read if isinstance(read, int) else hits) is not None:
        details["cached_tokens"] = cached
    if written is not None:
        details["cache_creation_tokens"] = written
    usage["prompt_tokens_details"] = details
