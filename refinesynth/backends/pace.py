"""Requests and tokens per minute, smoothly: evenly spaced, no bursts."""

import asyncio

from aiolimiter import AsyncLimiter

_MINUTE = 60.0
_WINDOW = 6.0
"""Seconds of tokens that may be spent at once."""
_FIRST_GUESS = 500.0
"""Tokens that the first answer is taken to have."""


class Pace:
    """The rate limits of one backend, shared by everyone who asks it.

    Tokens are charged before a request by an estimate, and the difference to what was billed is charged to (or taken
    off) the next one, so that the limit holds on average over a few requests.
    """

    def __init__(self, *, requests_per_minute: float | None, tokens_per_minute: float | None) -> None:
        self._requests_per_minute = requests_per_minute
        self._tokens_per_minute = tokens_per_minute
        self._loop: asyncio.AbstractEventLoop | None = None
        self._requests: AsyncLimiter | None = None
        self._tokens: AsyncLimiter | None = None
        self._answer = _FIRST_GUESS
        self._owed = 0.0

    async def admit(self, prompt_tokens: float) -> float:
        """Wait for a turn.

        Returns:
            What was charged for the request, in tokens; give it to `settle`.
        """
        if self._requests_per_minute is None and self._tokens_per_minute is None:
            return 0.0
        self._bind()
        if self._requests is not None:
            await self._requests.acquire()
        if self._tokens is None:
            return 0.0
        charged = prompt_tokens + self._answer
        due, self._owed = max(charged + self._owed, 0.0), min(charged + self._owed, 0.0)
        while due > 0:
            # A request may be larger than the window; it then waits for several.
            part = min(due, self._tokens.max_rate)
            await self._tokens.acquire(part)
            due -= part
        return charged

    def settle(self, charged: float, *, billed: float, answer: float) -> None:
        """Correct what `admit` charged once the answer's true size is known, in tokens."""
        self._owed += billed - charged
        self._answer += (answer - self._answer) / 8

    def _bind(self) -> None:
        # A limiter belongs to one event loop; a model may be used in several, one after the other.
        loop = asyncio.get_running_loop()
        if loop is self._loop:
            return
        self._loop = loop
        if self._requests_per_minute is not None:
            self._requests = AsyncLimiter(1, _MINUTE / self._requests_per_minute)
        if self._tokens_per_minute is not None:
            self._tokens = AsyncLimiter(self._tokens_per_minute * _WINDOW / _MINUTE, _WINDOW)
