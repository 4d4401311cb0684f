"""Limits of requests and tokens per minute, and a server's Retry-After.

Pure arithmetic: no clock, no waiting.

No library: a limiter with its own queue, such as aiolimiter, lets small requests overtake large ones forever and
ignores the priorities of the rate limiter's queue.
"""

import math
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from functools import partial
from typing import cast

from refinesynth.client.http.reply import Reply

_LITELLM_PREFIX = "llm_provider-"
"""litellm's prefix of a provider's headers."""
_MAX_CHARS = 100
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
                headers.setdefault(str(name).lower().removeprefix(_LITELLM_PREFIX), str(value)[:_MAX_CHARS])
    return headers


_MINUTE = 60.0
_WINDOW = 6.0
"""Size of a token bucket: tokens of this many seconds may be spent at once."""
_FIRST_ANSWER_TOKENS = 500.0
"""Expected tokens of the first completion."""


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


class TokenBuckets:
    """The user's rate limits of one model.

    An estimate of the tokens is charged before a request, and corrected to the billed tokens after it: the limit holds
    on average over a few requests. A request waits until `ready_at` and calls `charge`; the rate limiter decides the
    order of requests.
    """

    def __init__(
        self,
        *,
        requests_per_minute: float | None = None,
        tokens_per_minute: float | None = None,
    ) -> None:
        self._requests = TokenBucket(rate=(requests_per_minute or math.inf) / _MINUTE, size=1.0)
        rate = (tokens_per_minute or math.inf) / _MINUTE
        self._tokens = TokenBucket(rate=rate, size=1.0 if tokens_per_minute is None else rate * _WINDOW)
        self._answer_tokens = _FIRST_ANSWER_TOKENS

    def ready_at(self, prompt_tokens: float) -> float:
        """Return the time at which a request with such a prompt may go; a past time means now."""
        return max(self._requests.ready_at(1.0), self._tokens.ready_at(prompt_tokens + self._answer_tokens))

    def charge(self, now: float, prompt_tokens: float) -> float:
        """Charge a request; return the charged tokens, for `settle`."""
        charged = prompt_tokens + self._answer_tokens
        self._requests.take(now, 1.0)
        self._tokens.take(now, charged)
        return charged

    def settle(self, now: float, charged: float, *, billed: float, answer: float | None = None) -> None:
        """Correct a charge to the `billed` tokens; `answer` is the completion's tokens, None without one."""
        self._tokens.take(now, billed - charged)
        if answer is not None:
            self._answer_tokens += (answer - self._answer_tokens) / 8
