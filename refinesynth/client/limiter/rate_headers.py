"""The rate limits in a server's headers: Retry-After, and what is left until when.

OpenAI and those that follow it (`x-ratelimit-remaining-requests: 99`, `x-ratelimit-reset-requests: 6m0s`), Anthropic
(`anthropic-ratelimit-requests-remaining`, with the time of the reset in RFC 3339), and litellm's copies of either.
"""

import math
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import cast

_COPY = "llm_provider-"
"""What litellm puts before a provider's headers."""
_PART = re.compile(r"(\d+(?:\.\d+)?|\.\d+)(ms|us|µs|ns|d|h|m|s)")
_SECONDS = {"d": 86_400.0, "h": 3_600.0, "m": 60.0, "s": 1.0, "ms": 1e-3, "us": 1e-6, "µs": 1e-6, "ns": 1e-9}
_EPOCH = 1e9
"""A wait of so many seconds, 30 years, is no wait."""
_LONGEST = 100
"""Characters of a header that are looked at."""


@dataclass(frozen=True)
class Quota:
    """What is left of a limit."""

    remaining: float
    """Requests, or tokens."""
    reset: float
    """Seconds until all of it is there again."""


@dataclass(frozen=True)
class RateHeaders:
    """What one answer's headers said of rate limits; None where they said nothing that can be read."""

    retry_after: float | None = None
    """Seconds in which the server wants no further request."""
    requests: Quota | None = None
    tokens: Quota | None = None
    """Where there are several kinds of tokens, the one that runs out first if each is spent evenly."""


NOTHING = RateHeaders()

_REQUESTS = (
    ("x-ratelimit-remaining-requests", "x-ratelimit-reset-requests"),
    ("anthropic-ratelimit-requests-remaining", "anthropic-ratelimit-requests-reset"),
    ("x-ratelimit-remaining", "x-ratelimit-reset"),
    ("ratelimit-remaining", "ratelimit-reset"),
)
_TOKENS = (
    ("x-ratelimit-remaining-tokens", "x-ratelimit-reset-tokens"),
    *(
        (f"anthropic-ratelimit-{kind}-remaining", f"anthropic-ratelimit-{kind}-reset")
        for kind in ("tokens", "input-tokens", "output-tokens")
    ),
)


def _wall_clock() -> datetime:
    return datetime.now(UTC)


def read_rate_headers(headers: Mapping[str, str] | None, *, clock: Callable[[], datetime] = _wall_clock) -> RateHeaders:
    """What `headers` say; header names in lower case, or in a mapping that ignores case. Never raises over a value.

    `clock` gives the present time, for headers that name a time of day.
    """
    if not headers:
        return NOTHING
    requests = min(_quotas(headers, _REQUESTS, clock), key=_rate, default=None)
    tokens = min(_quotas(headers, _TOKENS, clock), key=_rate, default=None)
    after = _retry_after(headers, clock)
    if after is None and requests is None and tokens is None:
        return NOTHING
    return RateHeaders(retry_after=after, requests=requests, tokens=tokens)


def headers_of(source: object) -> Mapping[str, str]:
    """The HTTP headers that an answer or an error carries, with names in lower case; empty if there are none."""
    response = getattr(source, "response", None)
    hidden = getattr(source, "_hidden_params", None)
    carried = (
        getattr(source, "headers", None),
        getattr(source, "litellm_response_headers", None),
        getattr(response, "headers", None),
        cast("Mapping[str, object]", hidden).get("additional_headers") if isinstance(hidden, Mapping) else None,
    )
    headers: dict[str, str] = {}
    for found in carried:
        if isinstance(found, Mapping):
            for name, value in cast("Mapping[object, object]", found).items():
                headers.setdefault(str(name).lower().removeprefix(_COPY), str(value)[:_LONGEST])
    return headers


def seconds(text: str, *, clock: Callable[[], datetime] = _wall_clock) -> float | None:
    """A wait as servers write it: `20`, `0.5`, `20ms`, `6m0s`, `2024-05-01T12:00:00Z`, `Wed, 01 May 2024 12:00:00 GMT`,
    `1714564800`.

    Returns:
        Seconds from now, 0 for a time that has passed, None for anything else.
    """
    text = text.strip()[:_LONGEST]
    try:
        plain = float(text)
    except ValueError:
        return _duration(text) if _PART.match(text) and "-" not in text else _until(text, clock())
    if not (math.isfinite(plain) and plain >= 0):
        return None
    if plain < _EPOCH:
        return plain
    # A time of day, in seconds or milliseconds since 1970.
    return max(plain / (1 if plain < 100 * _EPOCH else 1000) - clock().timestamp(), 0.0)


def _duration(text: str) -> float | None:
    parts = _PART.findall(text)
    if "".join(number + unit for number, unit in parts) != text:
        return None
    return sum(float(number) * _SECONDS[unit] for number, unit in parts)


def _until(text: str, now: datetime) -> float | None:
    try:
        then = datetime.fromisoformat(text) if text[:4].isdecimal() else parsedate_to_datetime(text)
        then = then.replace(tzinfo=UTC) if then.tzinfo is None else then
        return max((then - now).total_seconds(), 0.0)
    except (ValueError, TypeError, OverflowError, IndexError):
        return None


def _quotas(
    headers: Mapping[str, str], names: tuple[tuple[str, str], ...], clock: Callable[[], datetime]
) -> Iterator[Quota]:
    for left, reset in names:
        if (text := headers.get(left)) is None:
            continue
        try:
            remaining = float(text)
        except ValueError:
            continue
        until = seconds(headers.get(reset) or "", clock=clock)
        if until is not None and math.isfinite(remaining) and remaining >= 0:
            yield Quota(remaining, until)


def _rate(quota: Quota) -> float:
    return quota.remaining / max(quota.reset, 1e-9)


def _retry_after(headers: Mapping[str, str], clock: Callable[[], datetime]) -> float | None:
    if (text := headers.get("retry-after-ms")) is not None and (wait := seconds(text)) is not None:
        return wait / 1000
    text = headers.get("retry-after")
    return None if text is None else seconds(text, clock=clock)
