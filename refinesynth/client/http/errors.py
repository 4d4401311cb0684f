"""What a server said instead of a completion, as exceptions that `classify_error` understands; none of them holds a
key.
"""

from collections.abc import Mapping
from typing import Any, cast

import orjson

_READ = 20_000
"""Characters of an error page that are kept: as many as are looked at when it is sorted."""


class HttpError(Exception):
    """A server answered, but not with a completion."""

    def __init__(self, status_code: int, message: str, headers: Mapping[str, str] | None = None) -> None:
        super().__init__(message)
        self.status_code = status_code
        """Its HTTP status; 200 for an answer that could not be read."""
        self.headers: Mapping[str, str] = {} if headers is None else headers
        """Of the answer, their names in lower case."""


class UnsupportedParamsError(Exception):
    """The provider does not take a setting; named as in litellm, where it means the same."""


def refused(status: int, body: bytes, headers: Mapping[str, str]) -> HttpError:
    """The error for an answer whose status is no success.

    Its message is what the server says of the error, everything that it says of it included: often only a code tells a
    used-up quota from a rate limit.
    """
    text = body.decode(errors="replace")
    try:
        page: object = orjson.loads(body)
    except orjson.JSONDecodeError:
        page = None
    location = headers.get("location")
    if location is not None:
        text = f"it redirects to {location}, which is not followed; name that server in base_url. {text}"
    return HttpError(status, (said(page) or text.strip() or "no reason given")[:_READ], headers)


def said(page: object) -> str | None:
    """The message in an error page of a shape that OpenAI-compatible servers use; None if there is none."""
    error = cast("Mapping[str, Any]", page).get("error") if isinstance(page, Mapping) else None
    if isinstance(error, str):
        return error or None
    if not isinstance(error, Mapping):
        return None
    details = cast("Mapping[str, Any]", error)
    message = details.get("message")
    if not isinstance(message, str) or not message:
        return None
    rest = {name: value for name, value in details.items() if name != "message" and value is not None}
    return f"{message} {orjson.dumps(rest).decode()}" if rest else message
