"""The tokens of a completion: read in OpenAI's shape, and estimated where a server reports none."""

import logging
from pathlib import Path
from typing import Any

import pytest
from backend_doubles import Scripted, Waits
from chat_server import completion
from hypothesis import given
from hypothesis import strategies as st
from pydantic_ai.messages import ModelRequest
from pydantic_ai.models import ModelRequestParameters
from pydantic_ai.usage import RequestUsage

from refinesynth import Backend, SynthesisResult, synthesize
from refinesynth.backends.backend import Role
from refinesynth.cli import run_records as shares
from refinesynth.client.budget.budget import Budget
from refinesynth.client.budget.tracker import BudgetTracker
from refinesynth.client.completion_parsing import read_completion
from refinesynth.client.model import BackendModel
from refinesynth.client.session import Session
from refinesynth.client.token_usage import ESTIMATED, with_estimates
from refinesynth.errors import BudgetSpent
from refinesynth.journal.journal_values import model_of
from refinesynth.rehearsal import Faults, Rehearsal

USAGES: tuple[tuple[object, tuple[int, int, int, int]], ...] = (
    # Of the prompt, of that from a cache and into it, of the answer.
    ({"prompt_tokens": 12, "completion_tokens": 5}, (12, 0, 0, 5)),
    ({"prompt_tokens": "12", "completion_tokens": "5.0"}, (12, 0, 0, 5)),
    ({"prompt_tokens": 12.0, "completion_tokens": 4.5}, (12, 0, 0, 5)),
    ({"prompt_tokens": 12, "completion_tokens": 5, "prompt_tokens_details": {"cached_tokens": 7}}, (12, 7, 0, 5)),
    ({"prompt_tokens": 12, "completion_tokens": 5, "prompt_tokens_details": None}, (12, 0, 0, 5)),
    ({"prompt_tokens": 12, "completion_tokens": 5, "cached_tokens": 7}, (12, 7, 0, 5)),
    ({"prompt_tokens": 12, "completion_tokens": 5, "prompt_cache_hit_tokens": 7}, (12, 7, 0, 5)),
    ({"prompt_tokens": 12, "completion_tokens": 5, "cache_read_input_tokens": 7}, (12, 7, 0, 5)),
    ({"prompt_tokens": 12, "completion_tokens": 5, "cache_creation_input_tokens": 3}, (12, 0, 3, 5)),
    # Gateways whose prompt leaves out cached tokens; the total of some has them.
    ({"prompt_tokens": 12, "completion_tokens": 5, "cached_tokens": 99}, (111, 99, 0, 5)),
    (
        {"prompt_tokens": 12, "completion_tokens": 5, "cache_read_input_tokens": 8, "cache_creation_input_tokens": 7},
        (27, 8, 7, 5),
    ),
    ({"prompt_tokens": 12, "completion_tokens": 5, "total_tokens": 24, "cache_read_input_tokens": 7}, (19, 7, 0, 5)),
    ({"prompt_tokens": 12, "completion_tokens": 5, "total_tokens": 17, "cache_read_input_tokens": 7}, (12, 7, 0, 5)),
    ({"completion_tokens": 5, "cached_tokens": 7}, (0, 0, 0, 5)),
    ({"prompt_tokens": 12, "completion_tokens": 0, "total_tokens": 17}, (12, 0, 0, 5)),
    ({"prompt_tokens": 12, "completion_tokens": 1, "total_tokens": 17}, (12, 0, 0, 5)),
    ({"input_tokens": 12, "output_tokens": 5}, (0, 0, 0, 0)),
    ({"prompt_tokens": [12], "completion_tokens": None}, (0, 0, 0, 0)),
    ("12", (0, 0, 0, 0)),
    (None, (0, 0, 0, 0)),
)


def reported(usage: object) -> RequestUsage:
    return read_completion(completion(usage=usage)).usage


def test_usage_is_read_in_openais_shape() -> None:
    for given_usage, expected in USAGES:
        usage = reported(given_usage)
        counts = (usage.input_tokens, usage.cache_read_tokens, usage.cache_write_tokens, usage.output_tokens)
        assert counts == expected, given_usage


PROMPT = "A player stands in a kitchen with a lamp, a drawer and a locked cupboard. " * 40
ANSWER = "I take the key from the drawer and open the cupboard with it. " * 4
REQUEST = {"messages": [{"role": "user", "content": PROMPT}]}


@pytest.mark.parametrize(
    "usage",
    [
        {},
        {"prompt_tokens": 0, "completion_tokens": 0, "total_tokens": 0},
        {"prompt_tokens": 1, "completion_tokens": 1},
        {"prompt_tokens": -700, "completion_tokens": -60},
        {"prompt_tokens": 10**12, "completion_tokens": 10**9},
        {"prompt_tokens": True, "completion_tokens": "many"},
        {"total_tokens": 4},
    ],
)
def test_what_is_missing_or_cannot_be_is_estimated_on_the_safe_side(usage: object) -> None:
    found = with_estimates(reported(usage), REQUEST, [ANSWER])
    assert ESTIMATED in found.details
    assert 1.0 <= found.input_tokens / 681 < 1.5
    assert 1.0 <= found.output_tokens / 57 < 1.5  # as cl100k_base counts


def test_what_is_reported_stays() -> None:
    usage = RequestUsage(input_tokens=700, output_tokens=60)
    assert with_estimates(usage, REQUEST, [ANSWER]) is usage
    only_prompt = with_estimates(RequestUsage(input_tokens=700), REQUEST, [ANSWER])
    assert (only_prompt.input_tokens, only_prompt.output_tokens > 60) == (700, True)
    # An empty answer may have taken nothing.
    assert with_estimates(RequestUsage(input_tokens=700), REQUEST, ["", ""]).details == {}


@pytest.mark.parametrize(
    "unreadable",
    [
        {"choices": []},
        {"choices": [{"finish_reason": "stop", "message": None}]},
        {"choices": [{"message": {"tool_calls": [{"function": {"name": None, "arguments": "{}"}}]}}]},
    ],
)
async def test_an_unreadable_answer_with_a_bill_is_paid_for(unreadable: dict[str, object]) -> None:
    usage = {"prompt_tokens": 8_000, "completion_tokens": 900, "total_tokens": 8_900}
    call = Scripted(*[{**completion(usage=usage), **unreadable}] * 20)
    tracker = BudgetTracker(Budget(tokens=2 * 8_900))
    model = BackendModel(Backend(model="m", max_tokens=1_000, content_retries=19), call=call, sleep=Waits())
    session = Session(id="e", tracker=tracker)
    with pytest.raises(BudgetSpent):
        await session.model(Role.PLAYER, model).request(
            [ModelRequest.user_text_prompt("go")], None, ModelRequestParameters()
        )
    assert len(call.requests) <= 3
    assert tracker.spent.tokens == session.spent.tokens == len(call.requests) * 8_900


_VALUES = st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.lists(st.integers(), max_size=2)


@given(
    st.dictionaries(
        st.sampled_from(
            ["prompt_tokens", "completion_tokens", "total_tokens", "prompt_tokens_details", "reasoning_tokens"]
        ),
        _VALUES,
    )
)
def test_no_bill_does_harm(usage: dict[str, object]) -> None:
    found = with_estimates(reported(usage), REQUEST, [ANSWER])
    assert found.input_tokens > 0
    assert found.output_tokens > 0
    assert found.cache_read_tokens <= found.input_tokens


async def test_without_usage_the_budget_holds_and_the_figures_are_marked(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    inner = Rehearsal(Faults.none())

    async def call(**request: Any) -> dict[str, Any]:
        answer: dict[str, Any] = await inner(**request)
        return {**answer, "usage": None}

    async def played(budget: str) -> SynthesisResult:
        backend = Backend(model="mine/m", max_tokens=2_000, input_price=1, output_price=2)
        return await synthesize(
            n=2, backend=backend, call=call, output=tmp_path / "run", budget=budget, seed=5, concurrency=2
        )

    with caplog.at_level(logging.WARNING, logger="refinesynth.backends"):
        first = await played("40ktok")
    assert sum("reports no usage" in line for line in caplog.messages) == 1
    assert 0 < first.spending.total.tokens <= 40_000
    again = await played("5Mtok")
    assert len(again) == 2
    spending = again.spending
    assert spending.estimated == spending.total
    assert (again.cost_usd or 0) > 0
    assert shares.estimated(spending).startswith(f"tokens of {again.usage.requests} of {again.usage.requests} requests")
    assert spending.as_json()["estimated"]["requests"] == again.usage.requests
    # It goes on where it was, and the model's name is its own.
    assert again.usage.requests > first.usage.requests
    assert set(spending.by_model) == {"mine/m"}
    assert {model_of(row.model) for row in again.spent} == {"mine/m"}
    assert all(model == "mine/m" for one in again for model in one.provenance.models.values())
