"""What an exception holds, whatever library raised it: its causes, an HTTP status, headers, words."""

import math
import re
from collections.abc import Iterator, Mapping
from typing import cast

from refinesynth.client.redaction import redact

_READ = 20_000
"""Characters of a message that are looked at: what decides may stand behind a long echo."""
_STATUS_ALONE = re.compile(r"\bError code: \d{3}\W*$")
_REPR = re.compile(r" ?(\b\w{1,20}[:=])?<[^<>]{1,200} at 0x[0-9a-f]+>| ssl:(default|None|True|False)\b", re.IGNORECASE)
"""Python objects in a message, which say nothing to a reader."""


def causes_of(error: BaseException) -> Iterator[BaseException]:
    """It and what led to it, each once."""
    seen: set[int] = set()
    current: BaseException | None = error
    while current is not None and id(current) not in seen:
        seen.add(id(current))
        yield current
        current = current.__cause__ or current.__context__


def status_of(error: Exception) -> int | None:
    """The HTTP status that it names, as far as there is one."""
    response = getattr(error, "response", None)
    for value in (getattr(error, "status_code", None), getattr(response, "status_code", None)):
        if isinstance(value, int) and not isinstance(value, bool):
            return value
        if isinstance(value, str) and value.isdecimal():
            return int(value)
    return None


def header_of(error: Exception, wanted: str) -> str:
    """A header of the answer, wherever litellm, the direct client or another client keeps them; empty if it has none of
    that name.
    """
    response = getattr(error, "response", None)
    kept = (getattr(error, name, None) for name in ("litellm_response_headers", "headers"))
    for headers in (*kept, getattr(response, "headers", None)):
        if not isinstance(headers, Mapping):
            continue
        for name, value in cast("Mapping[object, object]", headers).items():
            if str(name).casefold() == wanted:
                return str(value)
    return ""


def seconds_in(value: str) -> float | None:
    """What a `Retry-After` says in seconds; None if it says something else."""
    try:
        seconds = float(value)
    except ValueError:
        # The header may be a date as well; providers of models do not send one, and our own backoff will do.
        return None
    return seconds if math.isfinite(seconds) and seconds >= 0 else None


def words_of(error: Exception, key: str | None) -> str:
    """Its message without keys, class names and tracebacks, in one line; its class if it has none."""
    text = " ".join(redact(_said(error)[: 2 * _READ], key=key).split())
    # litellm repeats class names and appends tracebacks; neither helps to fix this.
    text = re.sub(r"^((litellm\.)?\w+(Error|Exception): ?|\w+Exception - )+", "", text).partition(" Traceback (")[0]
    return _REPR.sub("", text[:_READ]) or type(error).__name__


def _said(error: Exception) -> str:
    """Its message; of one that only names the status, as openai's client makes of a page, what the server wrote."""
    text = str(error)
    if _STATUS_ALONE.search(text) is None:
        return text
    try:
        body: object = getattr(getattr(error, "response", None), "text", None)
    except Exception:  # noqa: BLE001 - of an answer that was never read
        return text
    return body if isinstance(body, str) and body.strip() else text
