"""Tracker of a run's budget, with a reservation for every request, and shares of the budget for other processes."""

from collections.abc import Callable, Generator, Iterable, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from heapq import heappop, heappush
from itertools import count
from math import inf
from typing import Literal, NamedTuple, TypeAlias

import anyio
from pydantic_ai.usage import RequestUsage

from refinesynth.client.budget.budget import Average, Budget, BudgetLimit
from refinesynth.errors import BudgetSpent
from refinesynth.outcome import Cost
from refinesynth.trajectory import Usage

Price: TypeAlias = Callable[[RequestUsage], float | None]
"""Function that returns the price of a completion in US dollars; None if unknown."""

_FIRST_EPISODE_USAGE = RequestUsage(input_tokens=60_000, output_tokens=8_000)
_SAMPLE_USAGE = RequestUsage(output_tokens=1_000)

_FRAME_TOKENS = 200
"""Tokens of a prompt in addition to its estimate, such as marks of the chat template."""
_FIRST_ANSWER_TOKENS = 1_000
_UNBOUNDED_TOKENS = 8_192
"""Minimum worst case of a completion without `max_tokens`, in tokens."""
_FIRST_FACTOR = 2.0
"""Factor by which a prompt may exceed its estimate before the first reported count."""
_NEXT_PROMPT_FACTOR = 1.25
"""Factor by which the next prompt may exceed the longest so far."""


@dataclass(slots=True)
class UsageCounter:
    """Usage and cost, updated in place for every completion."""

    requests: int = 0
    input: int = 0
    cached: int = 0
    output: int = 0
    cost_usd: float = 0.0
    unpriced: int = 0

    def enter(self, usage: RequestUsage, cost_usd: float | None) -> None:
        self.requests += 1
        self.input += usage.input_tokens
        self.cached += usage.cache_read_tokens
        self.output += usage.output_tokens
        if cost_usd is None:
            self.unpriced += 1
        else:
            self.cost_usd += cost_usd

    def spent(self) -> Cost:
        usage = Usage(
            requests=self.requests, input_tokens=self.input, cached_tokens=self.cached, output_tokens=self.output
        )
        return Cost(usage=usage, cost_usd=None if self.unpriced else self.cost_usd)


class Forecast(NamedTuple):
    worst_prompt: float
    worst_answer: float
    prompt: float
    cached: float
    answer: float

    def tokens(self) -> tuple[float, float]:
        """Return the worst and the expected number of tokens."""
        return self.worst_prompt + self.worst_answer, self.prompt + self.answer

    def dollars(self, price: Price) -> tuple[float, float]:
        """Return the worst and the expected price."""
        prompt, answer = int(self.worst_prompt) + 1, int(self.worst_answer)
        # Thoughts may have a higher price of their own.
        worst = [
            RequestUsage(input_tokens=prompt, output_tokens=answer, output_reasoning_tokens=n) for n in (0, answer)
        ]
        expected = RequestUsage(
            input_tokens=int(self.prompt), cache_read_tokens=int(self.cached), output_tokens=int(self.answer)
        )
        return max(price(usage) or 0.0 for usage in worst), price(expected) or 0.0


@dataclass(slots=True)
class Estimates:
    """Averages over one backend's requests, with the error of its prompt estimates."""

    answers: Average = field(default_factory=Average)
    prompts: Average = field(default_factory=Average)
    """Billed tokens per estimated token."""
    cached: Average = field(default_factory=Average)
    """Share of a prompt that the provider read from its cache."""
    longest_answer: float = 0.0
    max_prompt_ratio: float = 0.0

    def forecast(self, prompt_tokens: float, max_tokens: int | None) -> Forecast:
        """Forecast a request of about `prompt_tokens`; the expected completion is the mean plus one deviation."""
        estimate = prompt_tokens + _FRAME_TOKENS
        if not self.answers.count:
            bound = max_tokens or _UNBOUNDED_TOKENS
            return Forecast(_FIRST_FACTOR * estimate, bound, estimate, 0.0, min(_FIRST_ANSWER_TOKENS, bound))
        bound = max_tokens or max(_UNBOUNDED_TOKENS, 2 * self.longest_answer)
        prompt = estimate * self.prompts.mean
        return Forecast(
            worst_prompt=estimate * max(1.0, self.max_prompt_ratio) * _NEXT_PROMPT_FACTOR,
            worst_answer=bound,
            prompt=prompt,
            cached=prompt * self.cached.mean,
            answer=min(bound, self.answers.mean + self.answers.deviation),
        )

    def learn(self, prompt_tokens: float, usage: RequestUsage) -> None:
        ratio = usage.input_tokens / (prompt_tokens + _FRAME_TOKENS)
        self.prompts.add(ratio)
        self.max_prompt_ratio = max(self.max_prompt_ratio, ratio)
        self.answers.add(usage.output_tokens)
        self.longest_answer = max(self.longest_answer, usage.output_tokens)
        self.cached.add(usage.cache_read_tokens / (usage.input_tokens or 1))


@dataclass(slots=True, eq=False)
class BudgetReservation:
    tracker: "BudgetTracker"
    episode: "EpisodeTracker | None" = None
    amounts: tuple[tuple[float, float], ...] = ()
    """Worst and expected case for every limit."""
    estimates: Estimates | None = None
    prompt_tokens: float = 0.0
    decided: anyio.Event | None = None
    """Event of the decision; None for a reservation that did not have to wait."""
    is_granted: bool = False
    is_cancelled: bool = False

    def settle(self, usage: RequestUsage, cost_usd: float | None) -> None:
        """Count the cost of the request, and release its reservation."""
        self.tracker.paid.enter(usage, cost_usd)
        if self.estimates is not None:
            self.estimates.learn(self.prompt_tokens, usage)
            # A completion without a price counts with its expected cost.
            self.tracker.enter(usage, cost_usd, [expected for _, expected in self.amounts], self.episode)
            self.release()

    def release(self) -> None:
        """Release the reservation; call this alone, without `settle`, for an unanswered request."""
        if self.estimates is not None:
            self.tracker.change_reserved(self.amounts, -1)
            self.tracker.decide()


class BudgetTracker:
    """Admission of requests until the budget is spent, and count of all costs, with or without a budget.

    Guarantees: (1) The expected total stays within the budget, and the total exceeds the budget by less than the worst
    case of one request. The worst case assumes a completion of `max_tokens`, or else the larger of 8,192 tokens and
    twice the longest completion so far. (2) A request waits while a settlement in flight may still free enough of the
    budget; earlier episodes go first. (3) After a refusal, later episodes than the refused one get no requests.

    Not guaranteed: anything about requests that a provider bills without an answer.

    Belongs to one event loop; other processes of the run get shares of the remainder.
    """

    def __init__(
        self,
        budget: Budget | None = None,
        *,
        spent: Cost | None = None,
        ended: Cost | None = None,
        episodes: int = 0,
        prices: Iterable[Price] = (),
    ) -> None:
        """Create a tracker for a run; a `budget` of None sets no limit.

        Earlier processes have `spent` an amount; `ended` is the part for their `episodes` ended episodes. `prices` of
        the backends give the first guess of an episode's cost.
        """
        self.budget = budget or Budget()
        self._earlier = spent or Cost()
        self.paid = UsageCounter()
        self.limits: list[BudgetLimit] = []
        """Limits, US dollars first."""
        self._estimates: dict[object, Estimates] = {}
        self._waiting: list[tuple[float, int, BudgetReservation]] = []
        self._order = count()
        self._reservations = 0
        """Number of admitted reservations not yet released."""
        self._refused_priority = inf
        """Lowest priority number of a refused request; higher numbers are refused too."""
        self._unlimited = BudgetReservation(self)
        if self.budget.usd is not None:
            guess = max((price(_FIRST_EPISODE_USAGE) or 0.0 for price in prices), default=0.0)
            self.limits.append(BudgetLimit(self.budget.usd, guess))
        if self.budget.tokens is not None:
            self.limits.append(BudgetLimit(self.budget.tokens, _FIRST_EPISODE_USAGE.total_tokens, is_tokens=True))
        for limit in self.limits:
            limit.spent = limit.amount_of(self._earlier)
            limit.episode.start_from(limit.amount_of(ended or Cost()), episodes)

    @property
    def spent(self) -> Cost:
        """Cost of this process and earlier ones, episodes in flight included."""
        return self._earlier + self.paid.spent()

    @property
    def has_refused(self) -> bool:
        return self._refused_priority < inf

    def may_start(self, in_flight: int) -> bool:
        """Return True if the budget is expected to pay for one more episode with `in_flight` episodes running."""
        return not self.has_refused and all(limit.covers_another(in_flight) for limit in self.limits)

    @contextmanager
    def episode(self, index: int) -> Generator["EpisodeTracker"]:
        """Yield this tracker for one episode; episodes with a smaller index go first."""
        episode = EpisodeTracker(self, index, [0.0] * len(self.limits))
        try:
            yield episode
        finally:
            for limit, spent in zip(self.limits, episode.spent, strict=True):
                limit.in_flight -= spent

    def ended(self, spent: Cost) -> None:
        """Add the whole cost of an ended episode to the estimate for later episodes."""
        for limit in self.limits:
            limit.episode.add(limit.amount_of(spent))

    async def reserve(
        self,
        *,
        prompt_tokens: float,
        max_tokens: int | None,
        price: Price,
        episode: "EpisodeTracker | None" = None,
    ) -> BudgetReservation:
        """Wait until every limit admits a request, and reserve its worst-case and its expected cost.

        A limit admits a request while the worst case of all others in flight stays below the limit and the expected
        total, with this request, does not exceed it (`BudgetLimit.admits`). Requests of earlier episodes go first.

        Raises:
            BudgetSpent: The remainder does not pay for the request, and no reservation in flight could free more.
        """
        if not self.limits:
            return self._unlimited
        priority = 0 if episode is None else episode.index
        reservation = self._priced(prompt_tokens, max_tokens, price, episode)
        if not self._waiting and priority <= self._refused_priority and self._admits(reservation):
            self.change_reserved(reservation.amounts, 1)
            return reservation
        reservation.decided = anyio.Event()
        heappush(self._waiting, (priority, next(self._order), reservation))
        self.decide()
        try:
            await reservation.decided.wait()
        except BaseException:
            if reservation.is_granted:
                reservation.release()
            reservation.is_cancelled = True
            self.decide()
            raise
        if not reservation.is_granted:
            raise BudgetSpent(
                f"the budget of {self.budget} is spent: what is left of it does not pay for this request."
            )
        return reservation

    def count(self, usage: RequestUsage, cost_usd: float | None, *, episode: "EpisodeTracker | None" = None) -> None:
        """Count a completion that another process paid for from its share of the budget."""
        self.enter(usage, cost_usd, [self._estimated_cost(usage, limit) for limit in self.limits], episode)
        self.paid.enter(usage, cost_usd)

    def enter(
        self, usage: RequestUsage, cost_usd: float | None, guesses: Sequence[float], episode: "EpisodeTracker | None"
    ) -> None:
        """Count a cost against the limits; `guesses` holds the amount for each limit if the price is unknown."""
        for index, (limit, guess) in enumerate(zip(self.limits, guesses, strict=True)):
            amount = usage.total_tokens if limit.is_tokens else guess if cost_usd is None else cost_usd
            limit.spent += amount
            if episode is not None:
                episode.spent[index] += amount
                limit.in_flight += amount

    def _estimated_cost(self, usage: RequestUsage, limit: BudgetLimit) -> float:
        """Return a completion's estimated US dollars: at the mean price per token so far, else an episode's mean."""
        paid = self.paid
        return usage.total_tokens * paid.cost_usd / max(1, paid.input + paid.output) if paid.cost_usd else limit.mean

    def refuse(self) -> None:
        """Start no more episodes: the remainder pays for no request of another process."""
        self._refused_priority = min(self._refused_priority, 0.0)

    def change_reserved(self, amounts: Iterable[tuple[float, float]], count: Literal[1, -1]) -> None:
        """Add or release the amounts of one reservation: the worst and the expected case for every limit."""
        self._reservations += count
        for limit, (worst, expected) in zip(self.limits, amounts, strict=True):
            # Exactly 0 without reservations, despite rounding errors.
            limit.worst_case = limit.worst_case + count * worst if self._reservations else 0.0
            limit.expected = limit.expected + count * expected if self._reservations else 0.0

    def _admits(self, reservation: BudgetReservation) -> bool:
        return all(limit.admits(case[1]) for limit, case in zip(self.limits, reservation.amounts, strict=True))

    def decide(self) -> None:
        """Admit the first in line while the limits allow; refuse it if no reservation in flight can free more."""
        while self._waiting:
            priority, _, first = self._waiting[0]
            if not first.is_cancelled and priority <= self._refused_priority:
                if self._admits(first):
                    first.is_granted = True
                    self.change_reserved(first.amounts, 1)
                elif self._reservations:
                    return
                else:
                    self._refused_priority = priority
            heappop(self._waiting)
            if first.decided is not None:
                first.decided.set()

    def _priced(
        self, prompt_tokens: float, max_tokens: int | None, price: Price, episode: "EpisodeTracker | None"
    ) -> BudgetReservation:
        # `max_tokens` and a sample price identify a backend: a price may be a new object for every request.
        key = max_tokens, price(_SAMPLE_USAGE)
        if (estimates := self._estimates.get(key)) is None:
            estimates = self._estimates[key] = Estimates()
        forecast = estimates.forecast(prompt_tokens, max_tokens)
        amounts = tuple(forecast.tokens() if limit.is_tokens else forecast.dollars(price) for limit in self.limits)
        return BudgetReservation(self, episode, amounts, estimates, prompt_tokens)


@dataclass(slots=True, eq=False)
class EpisodeTracker:
    tracker: BudgetTracker
    index: int
    spent: list[float]
    """Cost of the episode in this process for every limit."""

    async def reserve(self, *, prompt_tokens: float, max_tokens: int | None, price: Price) -> BudgetReservation:
        return await self.tracker.reserve(prompt_tokens=prompt_tokens, max_tokens=max_tokens, price=price, episode=self)
