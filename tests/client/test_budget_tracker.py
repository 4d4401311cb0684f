"""Money is put aside before a request and settled after it: whatever is in flight, the budget holds."""

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

import anyio
import pytest
from anyio.lowlevel import checkpoint
from chat_server import completion
from hypothesis import given
from hypothesis import strategies as st
from pydantic_ai.messages import ModelMessage, ModelRequest, UserPromptPart
from pydantic_ai.models import ModelRequestParameters
from pydantic_ai.tools import ToolDefinition
from pydantic_ai.usage import RequestUsage

from refinesynth.backends import Backend, Role
from refinesynth.client.budget.budget import Budget, BudgetLimit
from refinesynth.client.budget.price_table import Rates
from refinesynth.client.budget.tracker import BudgetTracker, Estimates
from refinesynth.client.limiter.limits import ConcurrencyLimit
from refinesynth.client.limiter.rate_limiter import RateLimiter
from refinesynth.client.model import BackendModel
from refinesynth.client.session import Session
from refinesynth.errors import BudgetSpent, EpisodeAbandoned
from refinesynth.outcome import Cost
from refinesynth.trajectory import Usage

MOST = 500
"""`max_tokens` of every request here."""


def price(usage: RequestUsage) -> float:
    return (usage.input_tokens + 4 * usage.output_tokens) / 1e6


@dataclass(frozen=True)
class Call:
    """One request: its prompt, how long its answer becomes, how long that takes; None: it is never answered."""

    prompt: int
    answer: int | None
    steps: int = 0

    def usage(self) -> RequestUsage:
        return RequestUsage(input_tokens=self.prompt, output_tokens=self.answer or 0)

    def worst(self) -> RequestUsage:
        # What a tracker must fear before it knows how servers count: twice the prompt and what frames it.
        return RequestUsage(input_tokens=2 * (self.prompt + 200) + 1, output_tokens=MOST)


calls = st.builds(
    Call, prompt=st.integers(0, 2_000), answer=st.none() | st.integers(0, MOST) | st.just(MOST), steps=st.integers(0, 6)
)
episodes = st.lists(st.lists(calls, min_size=1, max_size=6), min_size=1, max_size=10)


async def play(tracker: BudgetTracker, episodes: Sequence[Sequence[Call]]) -> list[int]:
    """All episodes at once; the indices of those that were paid to their end."""
    done: list[int] = []

    async def episode(index: int, script: Sequence[Call]) -> None:
        with tracker.episode(index) as its:
            try:
                for call in script:
                    reservation = await its.reserve(prompt_tokens=call.prompt, max_tokens=MOST, price=price)
                    for _ in range(call.steps):
                        await checkpoint()
                    if call.answer is None:
                        reservation.release()
                    else:
                        reservation.settle(call.usage(), price(call.usage()))
            except BudgetSpent:
                return
            done.append(index)

    async with anyio.create_task_group() as group:
        for index, script in enumerate(episodes):
            group.start_soon(episode, index, script)
    return done


TOOL = ToolDefinition(name="open", description="Opens the thing. " * 60, parameters_json_schema={"type": "object"})
PROMPTS: dict[str, tuple[str, int, list[ToolDefinition], dict[str, Any]]] = {
    # The text and its number, tools, settings of the backend.
    "tools": ("Go on.", 1, [replace(TOOL, name=f"open_{number}") for number in range(30)], {"max_tokens": MOST}),
    "Chinese": ("把蓝色的瓶子放到架子上然后关门", 500, [], {"max_tokens": MOST}),
    "extra": ("Go on.", 500, [], {"extra": {"max_completion_tokens": 30_000}}),
    "extra_body": ("Go on.", 500, [], {"extra": {"extra_body": {"max_tokens": 30_000}}}),
}


@pytest.mark.parametrize("kind", PROMPTS)
async def test_any_prompt_and_any_bound_of_requests_at_once_is_within_the_budget(kind: str) -> None:
    text, number, tools, settings = PROMPTS[kind]
    answer = MOST if "max_tokens" in settings else 30_000
    schemas = [[tool.description, tool.parameters_json_schema] for tool in tools]
    prompt = len((text * number).encode()) // (3 if text.isascii() else 4) + len(str(schemas)) // 4
    most_in_flight = 0

    async def call(**_request: object) -> dict[str, Any]:
        nonlocal most_in_flight
        most_in_flight = max(most_in_flight, model.limiter.in_flight)
        await checkpoint()
        return completion(usage={"prompt_tokens": prompt, "completion_tokens": answer})

    limiter = RateLimiter("mine", limit=ConcurrencyLimit(start=64))
    model = BackendModel(Backend(model="mine/m", **settings), call=call, limiter=limiter)
    budget = 8 * (prompt + answer)
    tracker = BudgetTracker(Budget(tokens=budget))

    async def one(index: int) -> None:
        with tracker.episode(index) as its, suppress(EpisodeAbandoned, BudgetSpent):
            request: list[ModelMessage] = [ModelRequest(parts=[UserPromptPart(text * number)])]
            session = Session(id=str(index), index=index, tracker=its, bounded=frozenset(Role))
            parameters = ModelRequestParameters(function_tools=tools)
            await session.model(Role.PLAYER, model).request(request, None, parameters)

    async with anyio.create_task_group() as group:
        for index in range(60):
            group.start_soon(one, index)
    assert budget / 2 < tracker.spent.tokens <= budget + prompt + answer
    assert most_in_flight > 1


def nothing_is_held(tracker: BudgetTracker) -> bool:
    return all((limit.worst_case, limit.expected) == (0.0, 0.0) for limit in tracker.limits)


@given(episodes, st.integers(1, 30_000), st.floats(1e-6, 0.02))
async def test_the_total_never_passes_the_budget_by_more_than_one_requests_worst_case(
    scripts: list[list[Call]], tokens: int, usd: float
) -> None:
    tracker = BudgetTracker(Budget(tokens=tokens, usd=usd))
    await play(tracker, scripts)
    worst = [call.worst() for script in scripts for call in script]
    spent = tracker.spent
    assert spent.tokens <= tokens + max(usage.total_tokens for usage in worst)
    assert spent.cost_usd is not None
    assert spent.cost_usd <= usd + max(price(usage) for usage in worst) + 1e-12
    assert nothing_is_held(tracker)


@given(episodes)
async def test_nobody_is_refused_while_there_is_enough(scripts: list[list[Call]]) -> None:
    tracker = BudgetTracker(Budget(tokens=10**9, usd=10**6))
    assert sorted(await play(tracker, scripts)) == list(range(len(scripts)))
    assert not tracker.has_refused


@given(episodes, st.integers(1, 20_000))
async def test_a_raised_budget_pays_for_the_rest(scripts: list[list[Call]], tokens: int) -> None:
    first = BudgetTracker(Budget(tokens=tokens))
    done = await play(first, scripts)
    rest = [script for index, script in enumerate(scripts) if index not in done]
    again = BudgetTracker(Budget(tokens=tokens + 10**9), spent=first.spent)
    assert len(await play(again, rest)) == len(rest)
    assert again.spent.tokens >= first.spent.tokens


@given(episodes, st.integers(1, 20_000), st.integers(0, 20))
async def test_what_is_cancelled_gives_its_money_back(scripts: list[list[Call]], tokens: int, steps: int) -> None:
    tracker = BudgetTracker(Budget(tokens=tokens))
    with anyio.CancelScope() as scope:
        async with anyio.create_task_group() as group:
            group.start_soon(play_for_ever, tracker, scripts)
            for _ in range(steps):
                await checkpoint()
            scope.cancel()
    assert nothing_is_held(tracker)
    with suppress(BudgetSpent):
        (await tracker.reserve(prompt_tokens=1, max_tokens=1, price=price)).release()


async def play_for_ever(tracker: BudgetTracker, scripts: Sequence[Sequence[Call]]) -> None:
    async def ask(index: int, call: Call) -> None:
        with tracker.episode(index) as its:
            try:
                reservation = await its.reserve(prompt_tokens=call.prompt, max_tokens=MOST, price=price)
            except BudgetSpent:
                return
            try:
                await anyio.sleep_forever()
            finally:
                reservation.release()

    async with anyio.create_task_group() as group:
        for index, script in enumerate(scripts):
            group.start_soon(ask, index, script[0])


async def test_who_cannot_be_paid_yet_waits_and_the_oldest_episode_goes_first() -> None:
    tracker = BudgetTracker(Budget(tokens=3_600))
    order: list[int] = []

    async def ask(index: int) -> None:
        with tracker.episode(index) as its:
            reservation = await its.reserve(prompt_tokens=100, max_tokens=MOST, price=price)
            order.append(index)
            reservation.settle(RequestUsage(input_tokens=100, output_tokens=10), None)

    async with anyio.create_task_group() as group:
        holds = [await tracker.reserve(prompt_tokens=1_000, max_tokens=MOST, price=price) for _ in range(2)]
        for index in (7, 3, 5):
            group.start_soon(ask, index)
        await anyio.wait_all_tasks_blocked()
        assert order == []
        for reservation in holds:
            reservation.release()
    assert order == [3, 5, 7]


async def test_after_a_refusal_later_episodes_get_nothing_and_earlier_ones_still_do() -> None:
    tracker = BudgetTracker(Budget(tokens=2_000))
    with tracker.episode(1) as early, tracker.episode(5) as late:
        with pytest.raises(BudgetSpent, match=r"budget of 2,000 tokens is spent"):
            await tracker.episode(3).__enter__().reserve(prompt_tokens=9_000, max_tokens=MOST, price=price)
        assert tracker.has_refused
        assert not tracker.may_start(0)
        with pytest.raises(BudgetSpent):
            await late.reserve(prompt_tokens=10, max_tokens=MOST, price=price)
        (await early.reserve(prompt_tokens=10, max_tokens=MOST, price=price)).release()


async def test_without_a_budget_everything_is_granted_and_counted() -> None:
    tracker = BudgetTracker(spent=Cost(usage=Usage(requests=1, input_tokens=5), cost_usd=1.0))
    reservation = await tracker.reserve(prompt_tokens=10**9, max_tokens=None, price=price)
    reservation.settle(RequestUsage(input_tokens=3, output_tokens=2, cache_read_tokens=1), 0.5)
    (await tracker.reserve(prompt_tokens=1, max_tokens=None, price=price)).release()
    assert tracker.spent == Cost(
        usage=Usage(requests=2, input_tokens=8, cached_tokens=1, output_tokens=2), cost_usd=1.5
    )
    assert tracker.may_start(10**6)


async def test_an_unknown_price_is_taken_to_be_what_was_expected() -> None:
    tracker = BudgetTracker(Budget(usd=1.0))
    reservation = await tracker.reserve(prompt_tokens=800, max_tokens=MOST, price=price)
    reservation.settle(RequestUsage(input_tokens=900, output_tokens=5), None)
    assert tracker.limits[0].spent > 0
    assert tracker.spent.cost_usd is None


async def test_an_answer_without_a_bound_is_feared_to_be_twice_the_longest() -> None:
    tracker = BudgetTracker(Budget(tokens=10**6))

    async def at_worst() -> float:
        reservation = await tracker.reserve(prompt_tokens=0, max_tokens=None, price=price)
        feared = tracker.limits[0].worst_case
        reservation.settle(RequestUsage(input_tokens=200, output_tokens=20_000), None)
        return feared

    assert await at_worst() == pytest.approx(8_192 + 400)
    assert await at_worst() == pytest.approx(40_000 + 250)


def test_an_episode_is_begun_only_if_all_that_are_begun_can_be_ended() -> None:
    limit = BudgetLimit(100, 10)
    assert limit.covers_another(9)
    assert not limit.covers_another(10)
    limit.episode.start_from(200, 10)
    # Eleven episodes, the guessed one included: 19.1 each.
    assert limit.covers_another(4)
    assert not limit.covers_another(5)
    limit.spent = limit.in_flight = 60
    assert limit.covers_another(4)
    limit.in_flight = 0
    assert not limit.covers_another(2)


async def test_of_what_episodes_took_it_follows_how_many_are_begun() -> None:
    tracker = BudgetTracker(Budget(tokens=1_000_000), prices=[price])
    assert sum(tracker.may_start(k) for k in range(100)) == 14
    for _ in range(50):
        tracker.ended(Cost(usage=Usage(input_tokens=10_000)))
    assert sum(tracker.may_start(k) for k in range(100)) > 80
    assert BudgetTracker(Budget(usd=1), prices=[price], episodes=10, ended=Cost(cost_usd=1.0)).may_start(5)


def test_the_worst_case_has_the_higher_price_of_answer_and_thoughts() -> None:
    plain = Rates(input=0.0, cached=0.0, written=0.0, output=1.0)
    forecast = Estimates().forecast(100.0, 500)
    assert [forecast.dollars(replace(plain, reasoning=price))[0] for price in (None, 0.5, 3.0)] == [
        500.0,
        500.0,
        1500.0,
    ]
