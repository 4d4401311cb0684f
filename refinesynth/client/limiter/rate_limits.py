"""Limits of requests and tokens per minute: the user's, and the remainder that a server's headers report.

Pure arithmetic: no clock, no waiting. Headers: Retry-After, OpenAI's (`x-ratelimit-remaining-requests: 99`,
`x-ratelimit-reset-requests: 6m0s`), Anthropic's (`anthropic-ratelimit-requests-remaining`, with a reset time in RFC
3339), and litellm's copies of either.

No library: a limiter with its own queue, such as aiolimiter, lets small requests overtake large ones forever and
ignores the priorities of the rate limiter's queue.
"""

import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from functools import partial
from typing import cast

from refinesynth.client.http.reply import Reply

_LITELLM_PREFIX = "llm_provider-"
"""litellm's prefix of a provider's headers."""
_AMOUNT = r"(?:\d{1,9}(?:\.\d{1,9})?|\.\d{1,9})"
_UNIT = r"(?:milliseconds?|[muµn]s|seconds?|secs?|s|minutes?|mins?|m|hours?|h|days?|d)(?![a-z])"
_PART = re.compile(rf"({_AMOUNT}) ?({_UNIT})", re.IGNORECASE)
_SECONDS = {"mil": 1e-3, "ms": 1e-3, "us": 1e-6, "µs": 1e-6, "ns": 1e-9, "d": 86_400, "h": 3_600, "m": 60, "s": 1}
"""Beginning of a unit to its seconds; the first match counts."""
_WAIT = re.compile(
    rf"(?:again|retry|wait)(?:ing)?(?: (?:in|after|for|about)){{0,2}} (?P<words>(?:{_AMOUNT} ?{_UNIT} ?){{1,4}})"
    rf"|retry[_-]?(?:after|delay)(?P<ms>[_-]?ms)?\W{{1,5}}(?P<number>{_AMOUNT})(?P<unit>{_UNIT})?(?![\d.a-z])",
    re.IGNORECASE,
)
_MIN_TIMESTAMP = 1e9
"""Number of seconds, 30 years, from which a value is a point in time."""
_MAX_CHARS = 100
"""Maximum characters of a header value that are read."""


@dataclass(frozen=True)
class Quota:
    """Remainder of a limit."""

    remaining: float
    """Remaining requests or tokens."""
    reset: float
    """Seconds until the limit is restored."""


@dataclass(frozen=True)
class RateHeaders:
    """Rate limits in a response's headers; None for a missing or unreadable value."""

    retry_after: float | None = None
    """Seconds for which the server asks to send no request."""
    requests: Quota | None = None
    tokens: Quota | None = None
    """Quota with the lowest rate (remaining per second until reset), among several kinds of tokens."""


_REQUESTS = (
    ("x-ratelimit-remaining-requests", "x-ratelimit-reset-requests"),
    ("anthropic-ratelimit-requests-remaining", "anthropic-ratelimit-requests-reset"),
    ("x-ratelimit-remaining", "x-ratelimit-reset"),
    ("ratelimit-remaining", "ratelimit-reset"),
)
_TOKENS = (
    ("x-ratelimit-remaining-tokens", "x-ratelimit-reset-tokens"),
    ("anthropic-ratelimit-tokens-remaining", "anthropic-ratelimit-tokens-reset"),
    ("anthropic-ratelimit-input-tokens-remaining", "anthropic-ratelimit-input-tokens-reset"),
    ("anthropic-ratelimit-output-tokens-remaining", "anthropic-ratelimit-output-tokens-reset"),
)
_wall_clock = partial(datetime.now, UTC)


def read_rate_headers(headers: Mapping[str, str] | None, *, clock: Callable[[], datetime] = _wall_clock) -> RateHeaders:
    """Read rate headers. Names are in lower case, or the mapping ignores case; unreadable values are skipped.

    A point in time is compared with the server's `date`; `clock` returns the present time for headers without one.
    """
    if not headers:
        return RateHeaders()
    if (server_time := _moment(headers.get("date") or "")) is not None:
        clock = partial(datetime.fromtimestamp, server_time.timestamp(), UTC)
    requests = min(_quotas(headers, _REQUESTS, clock), key=_rate, default=None)
    tokens = min(_quotas(headers, _TOKENS, clock), key=_rate, default=None)
    wait = seconds(headers.get("retry-after") or "", clock=clock)
    if (milliseconds := seconds(headers.get("retry-after-ms") or "")) is not None:
        wait = milliseconds / 1000
    return RateHeaders(retry_after=wait, requests=requests, tokens=tokens)


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
                headers.setdefault(str(name).lower().removeprefix(_LITELLM_PREFIX), str(value)[:_MAX_CHARS])
    return headers


def seconds(text: str, *, clock: Callable[[], datetime] = _wall_clock) -> float | None:
    """Return a wait in seconds; 0 for a past time, None for an unreadable value.

    Forms: `20`, `0.5`, `20ms`, `6m0s`, `2024-05-01T12:00:00Z`, `Wed, 01 May 2024 12:00:00 GMT`, `1714564800`.
    """
    text = text.strip()[:_MAX_CHARS]
    try:
        plain = float(text)
    except ValueError:
        if not _PART.match(text) or "-" in text:
            moment = _moment(text)
            return None if moment is None else max((moment - clock()).total_seconds(), 0.0)
        parts = _PART.findall(text)
        return _sum(parts) if "".join(number + unit for number, unit in parts) == text else None
    if not (math.isfinite(plain) and plain >= 0):
        return None
    if plain < _MIN_TIMESTAMP:
        return plain
    # A point in time, in seconds or milliseconds since 1970.
    return max(plain / (1 if plain < 100 * _MIN_TIMESTAMP else 1000) - clock().timestamp(), 0.0)


def wait_in_words(text: str) -> float | None:
    """Return the seconds that a text asks to wait, as `Please try again in 6m0s` or `"retryDelay":"12s"`; else None."""
    match = _WAIT.search(text)
    if match is None:
        return None
    if match["number"] is not None:
        return _sum([(match["number"], "ms" if match["ms"] else match["unit"] or "s")])
    return _sum(_PART.findall(match["words"]))


def _sum(parts: Iterable[tuple[str, str]]) -> float:
    return sum(float(number) * _seconds_of(unit.casefold().replace("\u03bc", "\u00b5")) for number, unit in parts)


def _seconds_of(unit: str) -> float:
    return next(seconds for prefix, seconds in _SECONDS.items() if unit.startswith(prefix))


def _moment(text: str) -> datetime | None:
    try:
        moment = datetime.fromisoformat(text) if text[:4].isdecimal() else parsedate_to_datetime(text)
        return (moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment).astimezone(UTC)
    except (ValueError, TypeError, OverflowError, IndexError):
        return None


def _quotas(
    headers: Mapping[str, str], names: tuple[tuple[str, str], ...], clock: Callable[[], datetime]
) -> Iterator[Quota]:
    for remaining_name, reset_name in names:
        if (text := headers.get(remaining_name)) is None:
            continue
        try:
            remaining = float(text)
        except ValueError:
            continue
        until = seconds(headers.get(reset_name) or "", clock=clock)
        if until is not None and math.isfinite(remaining) and remaining >= 0:
            yield Quota(remaining, until)


def _rate(quota: Quota) -> float:
    return quota.remaining / max(quota.reset, 1e-9)


_MINUTE = 60.0
_WINDOW = 6.0
"""Size of a token bucket: tokens of this many seconds may be spent at once."""
_FIRST_ANSWER_TOKENS = 500.0
"""Expected tokens of the first completion."""
_NEGLIGIBLE_S = 1e-3
"""Longest interval between requests, in seconds, for which no request waits."""


class TokenBucket:
    """Bucket that fills at a constant rate, which may be infinite, up to its size; its level may become negative."""

    def __init__(self, *, rate: float, size: float) -> None:
        """Begin with a full bucket. `rate` is per second."""
        self._rate = rate
        self._size = size
        self._full_at = float("-inf")

    def ready_at(self, amount: float) -> float:
        """Return the time at which `amount` may be taken: for more than the size, when the bucket is full."""
        return self._full_at - (self._size - min(amount, self._size)) / self._rate

    def take(self, now: float, amount: float) -> None:
        """Take an amount, even beyond the level; a negative amount is returned to the bucket."""
        self._full_at = max(self._full_at, now) + amount / self._rate


class Allowance:
    """Remainder of a limit that a server reports, spread evenly over the time until its reset; the next request waits at
    most `max_wait` seconds.
    """

    def __init__(self, max_wait: float) -> None:
        self._max_wait = max_wait
        self._remaining = float("inf")
        self._until = float("-inf")
        self.ready_at = float("-inf")
        """Time of the next request."""

    def learn(self, now: float, quota: Quota) -> None:
        self._remaining = quota.remaining
        self._until = now + quota.reset
        limit = now + min(quota.reset, self._max_wait)
        self.ready_at = limit if quota.remaining < 1 else min(self.ready_at, limit)

    def take(self, now: float, amount: float) -> None:
        if now >= self._until:
            self._remaining = float("inf")
            return
        gap = amount * (self._until - now) / max(self._remaining, 1.0)
        self._remaining = max(self._remaining - amount, 0.0)
        self.ready_at = min(now + min(gap, self._max_wait), self._until) if gap > _NEGLIGIBLE_S else float("-inf")


class TokenBuckets:
    """Rate limits of one model: the user's, and those that the server reports.

    An estimate of the tokens is charged before a request, and corrected to the billed tokens after it: the limit holds
    on average over a few requests. A request waits until `ready_at` and calls `charge`; the rate limiter decides the
    order of requests.
    """

    def __init__(
        self,
        *,
        requests_per_minute: float | None = None,
        tokens_per_minute: float | None = None,
        longest_wait: float = _MINUTE,
    ) -> None:
        self._requests = TokenBucket(rate=(requests_per_minute or math.inf) / _MINUTE, size=1.0)
        rate = (tokens_per_minute or math.inf) / _MINUTE
        self._tokens = TokenBucket(rate=rate, size=1.0 if tokens_per_minute is None else rate * _WINDOW)
        self._requests_left, self._tokens_left = Allowance(longest_wait), Allowance(longest_wait)
        self._answer_tokens = _FIRST_ANSWER_TOKENS

    def ready_at(self, prompt_tokens: float) -> float:
        """Return the time at which a request with such a prompt may go; a past time means now."""
        user_limit = max(self._requests.ready_at(1.0), self._tokens.ready_at(prompt_tokens + self._answer_tokens))
        return max(user_limit, self._requests_left.ready_at, self._tokens_left.ready_at)

    def charge(self, now: float, prompt_tokens: float) -> float:
        """Charge a request; return the charged tokens, for `settle`."""
        charged = prompt_tokens + self._answer_tokens
        for requests in (self._requests, self._requests_left):
            requests.take(now, 1.0)
        for tokens in (self._tokens, self._tokens_left):
            tokens.take(now, charged)
        return charged

    def settle(self, now: float, charged: float, *, billed: float, answer: float | None = None) -> None:
        """Correct a charge to the `billed` tokens; `answer` is the completion's tokens, None without one."""
        self._tokens.take(now, billed - charged)
        if answer is not None:
            self._answer_tokens += (answer - self._answer_tokens) / 8

    def learn(self, now: float, rate_headers: RateHeaders) -> None:
        if rate_headers.requests is not None:
            self._requests_left.learn(now, rate_headers.requests)
        if rate_headers.tokens is not None:
            self._tokens_left.learn(now, rate_headers.tokens)
