"""Parsing of untrusted responses: a completion in litellm's shape, an error for `classify_error`, a Retry-After."""

import json
import math
import re
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from functools import partial
from typing import Any, cast

import orjson

from refinesynth.backends.backend import NO_REASON
from refinesynth.text.formatting import scrub

_MAX_CHARS = 20_000
"""Maximum characters of an error message, the number that `classify_error` examines."""
_QUOTED_BYTES = 300
"""Bytes of an unreadable body that the message quotes; enough for a page's title."""
_SUCCESS = 200
_ERRORS = range(400, 600)
_MAX_DEPTH = 4
"""Levels of an error object that are searched for a message."""
_MESSAGE_KEYS = (
    "error", "errors", "message", "msg", "detail", "error_msg", "error_message", "errorMessage", "status_msg", "Message",
)  # fmt: skip
"""Servers' names for an error's message, the most common first."""
_CODE_KEYS = (
    "code", "status_code", "statusCode", "status", "error_code", "errorCode", "http_status", "type", "error_type", "__type",
    "reason", "error",
)  # fmt: skip
"""Servers' names for an error's number or code, the most specific first."""
_ERROR_KEYS = (
    "error", "code", "error_code", "status_code", "promptFeedback", "prompt_filter_results", "content_filter_results",
    "contentFilter",
)  # fmt: skip
"""Keys of error codes and moderation results in a response that has neither choices nor a message."""
_COMPLETION_KEYS = frozenset({"choices", "created", "id", "model", "system_fingerprint", "usage", "request_id"})
"""Keys that do not describe an error."""
_STATUS_PATTERNS: Mapping[int, str] = {
    402: r"insufficient.?(quota|balance|credit|fund)|billing|payment|arrear",
    429: r"rate.?limit|too.?many.?requests|throttl|exhausted|limit.?(burst|requests)",
    401: r"authenticat|unauthori|invalid.?(api.?)?key",
    403: r"permission|forbidden|access.?denied",
    404: r"not.?found",
    413: r"too.?large",
    504: r"time.?out|timed.?out|deadline",
    503: r"overload|unavailable|busy|capacity",
    400: r"invalid|bad.?request|unsupported|validation|malformed|unprocessable",
    500: r"server|internal|api.?error|upstream|provider",
}
"""HTTP status to a pattern of error codes in words; the first match counts."""
_MINIMAX_STATUSES = {1001: 504, 1002: 429, 1004: 401, 1008: 402, 1039: 429, 1041: 429, 2045: 429, 2049: 401, 2056: 429}
"""MiniMax's codes in `base_resp` to an HTTP status; they are more precise than the messages."""


class HttpError(Exception):
    """Response of a server that is not a completion."""

    def __init__(
        self, status_code: int, message: str, headers: Mapping[str, str] | None = None, *, in_body: bool = False
    ) -> None:
        super().__init__(message)
        self.status_code = status_code
        """HTTP status; 200 for an unreadable response."""
        self.headers: Mapping[str, str] = {} if headers is None else headers
        """Headers of the response, names in lower case."""
        self.in_body = in_body
        """True if the body of a successful response reports an error; `status_code` is then derived from the error's
        code, or 0."""


class UnsupportedParamsError(Exception):
    """Setting that the provider does not accept; the class has litellm's name."""


class Reply(dict[str, Any]):
    """Chat completion as a dict, with the headers of the HTTP response, names in lower case."""

    __slots__ = ("headers",)

    def __init__(self, completion: Mapping[str, Any], headers: Mapping[str, str]) -> None:
        super().__init__(completion)
        self.headers = headers


def read_reply(body: bytes, headers: Mapping[str, str]) -> Reply:
    """Read the completion in the body of a successful response; a missing finish reason becomes `NO_REASON`.

    Raises:
        HttpError: The body is no JSON object, or reports an error.
    """
    completion = _load_object(body, headers)
    if (error := error_in_body(completion, headers)) is not None:
        raise error
    choices = completion.get("choices")
    if isinstance(choices, list):
        for choice in cast("list[object]", choices):
            if isinstance(choice, dict):
                fields = cast("dict[str, Any]", choice)
                reason = fields.get("finish_reason")
                fields["finish_reason"] = reason if isinstance(reason, str) and reason else NO_REASON
    return Reply(completion, headers)


def status_error(status: int, body: bytes, headers: Mapping[str, str]) -> HttpError:
    """Return the error for an unsuccessful status.

    The message contains all fields of the server's error: often only a code distinguishes an exhausted quota from a
    rate limit.
    """
    text = body.decode(errors="replace")
    try:
        page: object = orjson.loads(body)
    except orjson.JSONDecodeError:
        page = None
    reason = _message_in(page)
    location = headers.get("location")
    if location is not None:
        text = f"it redirects to {location}, which is not followed; name that server in base_url. {text}"
    return HttpError(status, ((reason and _text(*reason)) or text.strip() or "no reason given")[:_MAX_CHARS], headers)


def error_in_body(page: Mapping[str, Any], headers: Mapping[str, str] | None = None) -> HttpError | None:
    """Return the error in the body of a successful response; None without one.

    Gateways put the error next to the choices, into the first choice, or in place of the choices. Some add an empty
    error to good responses.
    """
    choices, base, error = page.get("choices"), page.get("base_resp"), page.get("error")
    first: object = cast("list[object]", choices)[0] if isinstance(choices, list) and choices else None
    if isinstance(first, Mapping):
        error = cast("Mapping[str, Any]", first).get("error") or error
    is_minimax = isinstance(base, Mapping) and str(cast("Mapping[str, Any]", base).get("status_code") or 0) != "0"
    if is_minimax:
        page = cast("Mapping[str, Any]", base)
    elif first is not None:
        page = {"error": error}
    reason = _message_in(page)
    if reason is None:
        codes = {name: page.get(name) for name in _ERROR_KEYS}
        reason = (
            "it says that there was an error, and not which",
            cast("Mapping[str, Any]", error if isinstance(error, Mapping) else codes),
        )
        if not any(reason[1].values()):
            return None
    message, rest = reason
    status = next((number for name in _CODE_KEYS if (number := _status_of(rest.get(name)))), 0)
    if is_minimax:
        status = _MINIMAX_STATUSES.get(rest.get("status_code", 0), status)
    return HttpError(status, _text(message, rest)[:_MAX_CHARS], headers, in_body=True)


def status_of_code(code: str) -> int | None:
    """Return the HTTP status of an error code in words, such as `rate_limit_error`; None if unknown."""
    return next((status for status, words in _STATUS_PATTERNS.items() if re.search(words, code, re.IGNORECASE)), None)


def _status_of(code: object) -> int | None:
    if isinstance(code, str) and not code.isdecimal():
        return status_of_code(code[:_MAX_CHARS])
    if isinstance(code, int | str) and len(str(code)) == len("429") and int(code) in _ERRORS:
        return int(code)
    return None


def _message_in(page: object, depth: int = _MAX_DEPTH) -> tuple[str, Mapping[str, Any]] | None:
    """Return the message in an error object, and the error's other fields; None without a message."""
    if isinstance(page, list) and page:
        page, *others = cast("list[object]", page)
        inner = _message_in(page, depth)
        return (inner[0], {**inner[1], "others": others}) if inner and others else inner
    if isinstance(page, str):
        return (page, {}) if page.strip() else None
    if not isinstance(page, Mapping) or not depth:
        return None
    fields = cast("Mapping[str, Any]", page)
    for name in _MESSAGE_KEYS:
        if (inner := _message_in(fields.get(name), depth - 1)) is not None:
            message, inner_rest = inner
            own_rest = {key: value for key, value in fields.items() if key != name and key not in _COMPLETION_KEYS}
            return message, {**inner_rest, **{key: value for key, value in own_rest.items() if key not in inner_rest}}
    return None


def _text(message: str, rest: Mapping[str, Any]) -> str:
    fields = {name: value for name, value in rest.items() if value is not None}
    return scrub(f"{message} {json.dumps(fields, ensure_ascii=False, separators=(',', ':'))}" if fields else message)


def _load_object(body: bytes, headers: Mapping[str, str]) -> dict[str, Any]:
    try:
        value: object = orjson.loads(body)
    except orjson.JSONDecodeError:
        value = _load_lax(body, headers)
    if isinstance(value, list) and len(items := cast("list[object]", value)) == 1:
        # Gemini's OpenAI-compatible endpoint sends an error this way.
        value = items[0]
    if isinstance(value, dict):
        return cast("dict[str, Any]", value)
    raise HttpError(_SUCCESS, f"its body is no JSON object but {type(cast('object', value)).__name__}", headers)


def _load_lax(body: bytes, headers: Mapping[str, str]) -> object:
    """Read JSON that Python accepts and orjson does not: escaped lone surrogates, NaN, a byte order mark."""
    try:
        # Decoded here: `json.loads` of bytes accepts surrogates that are encoded in the UTF-8.
        return json.loads(body.decode("utf-8-sig"))
    except (ValueError, RecursionError) as error:
        reason = f"{type(error).__name__} in {len(body):,} bytes of {headers.get('content-type', 'no content type')}"
        if body:
            reason += f", beginning with {body[:_QUOTED_BYTES].decode(errors='replace').strip()}"
    raise HttpError(_SUCCESS, f"its body is no JSON: {reason}", headers)


_LITELLM_PREFIX = "llm_provider-"
"""litellm's prefix of a provider's headers."""
_MAX_HEADER_CHARS = 100
"""Maximum characters of a header value that are read."""
_wall_clock = partial(datetime.now, UTC)


def retry_after_in(headers: Mapping[str, str], *, clock: Callable[[], datetime] = _wall_clock) -> float | None:
    """Return the seconds for which the header Retry-After, a number or a date, asks to send no request.

    0 for a past date, None for a missing or unreadable value. Names of `headers` are in lower case. A date is compared
    with the server's `date`, or with `clock` if it sends none.
    """
    text = headers.get("retry-after", "")
    try:
        wait = float(text)
    except ValueError:
        moment, now = _moment(text), _moment(headers.get("date", "")) or clock()
        return None if moment is None else max((moment - now).total_seconds(), 0.0)
    return wait if math.isfinite(wait) and wait >= 0 else None


def _moment(text: str) -> datetime | None:
    try:
        moment = parsedate_to_datetime(text)
    except (ValueError, TypeError, OverflowError, IndexError):
        return None
    return moment.replace(tzinfo=moment.tzinfo or UTC)


def headers_of(source: object) -> Mapping[str, str]:
    """Return the HTTP headers of a response or an error, with names in lower case; empty without headers."""
    if isinstance(source, Reply):
        return source.headers
    response = getattr(source, "response", None)
    hidden = getattr(source, "_hidden_params", None)
    sources = (
        getattr(source, "headers", None),
        getattr(source, "litellm_response_headers", None),
        getattr(response, "headers", None),
        cast("Mapping[str, object]", hidden).get("additional_headers") if isinstance(hidden, Mapping) else None,
    )
    headers: dict[str, str] = {}
    for source_headers in sources:
        if isinstance(source_headers, Mapping):
            for name, value in cast("Mapping[object, object]", source_headers).items():
                headers.setdefault(str(name).lower().removeprefix(_LITELLM_PREFIX), str(value)[:_MAX_HEADER_CHARS])
    return headers
