"""Servers in virtual time, and callers that ask them through a limiter."""

from dataclasses import dataclass, field
from random import Random

import anyio

from refinesynth.client.classify_error import ClassifiedError, ErrorCategory, FailureAction
from refinesynth.client.limiter.limits import ConcurrencyLimit
from refinesynth.client.limiter.rate_limiter import RateLimiter

BUSY = ClassifiedError(
    FailureAction.RETRY, ErrorCategory.RATE_LIMIT, "m says that there are too many requests", status=429
)
DOWN = ClassifiedError(FailureAction.RETRY, ErrorCategory.UNREACHED, "m cannot be reached")
BROKEN = ClassifiedError(FailureAction.RETRY, ErrorCategory.SERVER, "m failed with HTTP 500", status=500)
LATE = ClassifiedError(FailureAction.RETRY, ErrorCategory.TIMEOUT, "m gave no answer within 300 s")
REJECTED = ClassifiedError(FailureAction.ABANDON, ErrorCategory.REJECTED, "m rejects the request", status=400)

KINDS = (("script", 1_500, 0.1), ("master", 80, 0.45), ("player", 60, 0.45))
"""Roles, the output tokens of their answers, and their shares of the requests."""
FIRST = 0.2
"""Seconds until an answer begins."""
TOKEN = 0.02
"""Seconds for each of its tokens, on an idle server."""


class Unmoved(ConcurrencyLimit):
    """Never changes, whatever happens."""

    def __init__(self, most: int) -> None:
        self._most = most
        super().__init__(start=most)

    @property
    def current(self) -> int:
        return self._most


@dataclass
class Server:
    """Works on `capacity` requests at once and lets the others wait, as vLLM does; or refuses those beyond `most`."""

    capacity: int | None = None
    most: int | None = None
    random: Random = field(default_factory=lambda: Random(7))
    up: bool = True
    in_flight: int = 0
    arrivals: list[float] = field(default_factory=list[float])
    answers: list[tuple[float, float]] = field(default_factory=list[tuple[float, float]])
    """When, and how long it was worked on."""

    def __post_init__(self) -> None:
        self._places = anyio.Semaphore(self.capacity or 10**9)

    async def answer(self, tokens: int) -> ClassifiedError | None:
        """A fault, or None for an answer."""
        self.arrivals.append(anyio.current_time())
        self.in_flight += 1
        try:
            if not self.up:
                return DOWN
            if self.most is not None and self.in_flight > self.most:
                await anyio.sleep(0.01)
                return BUSY
            work = FIRST + TOKEN * tokens * self.random.uniform(0.8, 1.25)
            async with self._places:
                await anyio.sleep(work)
            self.answers.append((anyio.current_time(), work))
            return None
        finally:
            self.in_flight -= 1


async def ask(limiter: RateLimiter, server: Server, *, priority: float = 0.0, patience: float = 1.0) -> None:
    """One request with its retries."""
    kind, mean, _ = server.random.choices(KINDS, [share for *_, share in KINDS])[0]
    tokens = max(5, int(mean * server.random.lognormvariate(-0.18, 0.6)))
    while True:
        async with limiter.permit(priority=priority, kind=kind) as permit:
            fault = await server.answer(tokens)
            if fault is None:
                permit.answered(output_tokens=tokens)
                return
            permit.failed(fault)
        if not limiter.is_outage_fault(fault):
            await anyio.sleep(max(server.random.uniform(0, patience), fault.retry_after or 0.0))
