"""Causes, HTTP status and words of an exception, whatever library raised it."""

import re
from collections.abc import Iterator

from refinesynth.client.redaction import redact

_READ = 20_000
"""Characters of a message that are looked at: what decides may stand behind a long echo."""
_STATUS_ALONE = re.compile(r"\bError code: \d{3}\W*$")
_AMOUNT = r"\d{1,9}(?:\.\d{1,9})?"
_UNIT = r"(?:milliseconds?|ms|seconds?|secs?|s|minutes?|mins?|m|hours?|h|days?|d)(?![a-z])"
_PART = re.compile(rf"({_AMOUNT}) ?({_UNIT})", re.IGNORECASE)
_WAIT = re.compile(
    rf"(?:again|retry|wait)(?:ing)?(?: (?:in|after|for|about)){{0,2}} (?P<words>(?:{_AMOUNT} ?{_UNIT} ?){{1,4}})"
    rf"|retry[_-]?(?:after|delay)(?P<ms>[_-]?ms)?\W{{1,5}}(?P<number>{_AMOUNT})(?P<unit>{_UNIT})?(?![\d.a-z])",
    re.IGNORECASE,
)
_SECONDS = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86_400.0}
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


def wait_in(text: str) -> float | None:
    """Seconds that words ask to wait, such as `Please try again in 6m0s` or `"retryDelay":"12s"`; None if they do not."""
    found = _WAIT.search(text)
    if found is None:
        return None
    if found["number"] is not None:
        unit = "ms" if found["ms"] else found["unit"] or "s"
        return float(found["number"]) * _seconds(unit)
    return sum(float(number) * _seconds(unit) for number, unit in _PART.findall(found["words"]))


def _seconds(unit: str) -> float:
    unit = unit.casefold()
    return 1e-3 if unit.startswith(("ms", "mil")) else _SECONDS[unit[0]]


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
