"""Requests and tokens per minute, smoothly: evenly spaced, no bursts. Pure arithmetic: no clock, no waiting.

The buckets are ours because of who waits: a limiter with a queue of its own, such as aiolimiter's, lets small requests
overtake large ones for ever, and knows nothing of the priorities that the limiter's queue keeps.
"""

from refinesynth.client.limiter.rate_headers import Quota, RateHeaders

_MINUTE = 60.0
_WINDOW = 6.0
"""Seconds of tokens that may be spent at once."""
_FIRST_GUESS = 500.0
"""Tokens that the first answer is taken to have."""
_UNNOTICED = 1e-3
"""Seconds between requests that are not worth a wait."""


class TokenBucket:
    """Fills at a steady rate up to its size; what is taken beyond that is owed, and has to fill up first."""

    def __init__(self, *, rate: float, size: float) -> None:
        """Full at first. `rate` is per second."""
        self._rate = rate
        self._size = size
        self._full_at = float("-inf")

    def ready_at(self, amount: float) -> float:
        """When this much may be taken; an amount larger than the bucket, once it is full."""
        return self._full_at - (self._size - min(amount, self._size)) / self._rate

    def take(self, now: float, amount: float) -> None:
        """Take it, there or not; a negative amount is given back."""
        self._full_at = max(self._full_at, now) + amount / self._rate


class Allowance:
    """What a server says is left of a limit, spread evenly over the time until it is whole again."""

    def __init__(self) -> None:
        self._remaining = float("inf")
        self._until = float("-inf")
        self.ready_at = float("-inf")
        """When the next request may go."""

    def learn(self, now: float, quota: Quota, *, longest: float) -> None:
        """The server's word on what is left; it is asked again after `longest` seconds in any case."""
        self._remaining = quota.remaining
        self._until = now + quota.reset
        limit = now + min(quota.reset, longest)
        self.ready_at = limit if quota.remaining < 1 else min(self.ready_at, limit)

    def take(self, now: float, amount: float) -> None:
        """One request of this many."""
        if now >= self._until:
            self._remaining = float("inf")
            return
        gap = amount * (self._until - now) / max(self._remaining, 1.0)
        self._remaining = max(self._remaining - amount, 0.0)
        self.ready_at = min(now + gap, self._until) if gap > _UNNOTICED else float("-inf")


class TokenBuckets:
    """The rate limits of one model: those that the user set, and those that the server reports.

    Tokens are charged before a request by an estimate, and the difference to what was billed is charged to (or given
    back with) the next one, so that the limit holds on average over a few requests. A request that waits asks
    `ready_at`, waits until then, and calls `charge`; whose turn it is, is decided elsewhere.
    """

    def __init__(
        self,
        *,
        requests_per_minute: float | None = None,
        tokens_per_minute: float | None = None,
        longest_wait: float = _MINUTE,
    ) -> None:
        self._requests = (
            None if requests_per_minute is None else TokenBucket(rate=requests_per_minute / _MINUTE, size=1.0)
        )
        self._tokens = None
        if tokens_per_minute is not None:
            rate = tokens_per_minute / _MINUTE
            self._tokens = TokenBucket(rate=rate, size=rate * _WINDOW)
        self._left_requests, self._left_tokens = Allowance(), Allowance()
        self._longest_wait = longest_wait
        self._answer = _FIRST_GUESS

    def ready_at(self, prompt_tokens: float) -> float:
        """When a request with such a prompt may go; in the past if it may go now."""
        ready = max(self._left_requests.ready_at, self._left_tokens.ready_at)
        if self._requests is not None:
            ready = max(ready, self._requests.ready_at(1.0))
        if self._tokens is not None:
            ready = max(ready, self._tokens.ready_at(prompt_tokens + self._answer))
        return ready

    def charge(self, now: float, prompt_tokens: float) -> float:
        """A request goes.

        Returns:
            What was charged for it, in tokens; give it to `settle`.
        """
        charged = prompt_tokens + self._answer
        for limit in (self._requests, self._left_requests):
            if limit is not None:
                limit.take(now, 1.0)
        for limit in (self._tokens, self._left_tokens):
            if limit is not None:
                limit.take(now, charged)
        return charged

    def settle(self, now: float, charged: float, *, billed: float, answer: float | None = None) -> None:
        """Correct what `charge` charged once it is known, in tokens; `answer` is None where there was none."""
        if self._tokens is not None:
            self._tokens.take(now, billed - charged)
        if answer is not None:
            self._answer += (answer - self._answer) / 8

    def learn(self, now: float, rate_headers: RateHeaders) -> None:
        """What the server said of its limits along with an answer."""
        if rate_headers.requests is not None:
            self._left_requests.learn(now, rate_headers.requests, longest=self._longest_wait)
        if rate_headers.tokens is not None:
            self._left_tokens.learn(now, rate_headers.tokens, longest=self._longest_wait)
