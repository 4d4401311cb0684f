"""Servers in virtual time, and callers that ask them through a limiter."""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from random import Random

import anyio

from refinesynth.client.classify_error import ClassifiedError, ErrorCategory, FailureAction
from refinesynth.client.limiter.concurrency_limit import ConcurrencyLimit
from refinesynth.client.limiter.rate_limiter import RateLimiter

BUSY = ClassifiedError(
    FailureAction.RETRY, ErrorCategory.RATE_LIMIT, "m says that there are too many requests", status=429
)
DOWN = ClassifiedError(FailureAction.RETRY, ErrorCategory.UNREACHED, "m cannot be reached")
BROKEN = ClassifiedError(FailureAction.RETRY, ErrorCategory.SERVER, "m failed with HTTP 500", status=500)
LATE = ClassifiedError(FailureAction.RETRY, ErrorCategory.TIMEOUT, "m gave no answer within 300 s")
BUSY_WITH_RETRY_AFTER = replace(BUSY, retry_after=1.0)
RESET = ClassifiedError(FailureAction.RETRY, ErrorCategory.SERVER, "m broke off the connection")
REJECTED = ClassifiedError(FailureAction.ABANDON, ErrorCategory.REJECTED, "m rejects the request", status=400)

KINDS = (("script", 1_500, 0.1), ("master", 80, 0.45), ("player", 60, 0.45))
"""Roles, the output tokens of their answers, and their shares of the requests."""
FIRST = 0.2
"""Seconds until an answer begins."""
TOKEN = 0.02
"""Seconds for each of its tokens, on an idle server."""


@dataclass(frozen=True)
class Luck:
    """A fault that meets a share of the requests, whatever the load."""

    share: float
    fault: ClassifiedError
    seconds: float = 0.01
    """Until it comes."""


MIX = (
    Luck(0.05, BROKEN),
    Luck(0.03, BROKEN, 1.0),
    Luck(0.04, RESET),
    Luck(0.04, BUSY),
    Luck(0.0185, BUSY_WITH_RETRY_AFTER),
    Luck(0.0015, LATE, 20.0),
)
"""18 % of all requests."""


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
    lucks: tuple[Luck, ...] = ()
    up: bool = True
    in_flight: int = 0
    peak: int = 0
    refused: int = 0
    arrivals: list[float] = field(default_factory=list[float])
    answers: list[tuple[float, float]] = field(default_factory=list[tuple[float, float]])
    """When, and how long it was worked on."""

    def __post_init__(self) -> None:
        self._places = anyio.Semaphore(self.capacity or 10**9)

    async def answer(self, tokens: int) -> ClassifiedError | None:
        """A fault, or None for an answer."""
        self.arrivals.append(anyio.current_time())
        self.in_flight += 1
        self.peak = max(self.peak, self.in_flight)
        try:
            if not self.up:
                return DOWN
            if self.most is not None and self.in_flight > self.most:
                self.refused += 1
                await anyio.sleep(0.01)
                return BUSY
            luck = self._luck()
            if luck is not None:
                await anyio.sleep(luck.seconds)
                return luck.fault
            work = FIRST + TOKEN * tokens * self.random.uniform(0.8, 1.25)
            async with self._places:
                await anyio.sleep(work)
            self.answers.append((anyio.current_time(), work))
            return None
        finally:
            self.in_flight -= 1

    def _luck(self) -> Luck | None:
        point = self.random.random() if self.lucks else 1.0
        for luck in self.lucks:
            if point < luck.share:
                return luck
            point -= luck.share
        return None

    def worked(self, since: float, until: float) -> float:
        """Requests that were worked on at once, on average: what the server had to do of what it could do."""
        return sum(work for time, work in self.answers if since <= time < until) / (until - since)


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


async def keep_asking(
    limiter: RateLimiter,
    server: Server,
    *,
    callers: int,
    seconds: float,
    every: Callable[[], None] | None = None,
) -> None:
    """Many callers, each with one request after the other; `every` is called each second."""

    async def caller(index: int) -> None:
        while True:
            await ask(limiter, server, priority=index)

    async with anyio.create_task_group() as group:
        for index in range(callers):
            group.start_soon(caller, index)
        for _ in range(int(seconds)):
            await anyio.sleep(1)
            if every is not None:
                every()
        group.cancel_scope.cancel()
