"""One episode's view of its models: session, seeds, cost."""

from decimal import Decimal

import pytest
from backend_doubles import answering
from hypothesis import given
from hypothesis import strategies as st
from pydantic_ai import Agent
from pydantic_ai.messages import ModelMessage, ModelResponse, TextPart
from pydantic_ai.models.function import AgentInfo, FunctionModel
from pydantic_ai.settings import ModelSettings
from pydantic_ai.usage import RequestUsage

from refinesynth.backends import Role
from refinesynth.client.session import Session
from refinesynth.trajectory import Usage


async def test_every_request_carries_its_session_beside_other_headers_and_settings() -> None:
    model, call = answering()
    settings = ModelSettings(extra_headers={"a": "b"}, temperature=0.5)
    await Agent(Session("e1", seed=7).model(Role.PLAYER, model), model_settings=settings).run("hi")
    assert call.requests[0]["extra_headers"] == {"a": "b", "x-session-id": "e1"}
    assert call.requests[0]["temperature"] == 0.5


async def test_seeds_follow_from_session_role_and_count_alone() -> None:
    async def seeds(session: Session, *roles: Role) -> list[tuple[Role, int]]:
        model, call = answering()
        for role in roles:
            await Agent(session.model(role, model)).run("hi")
        return list(zip(roles, (request["seed"] for request in call.requests), strict=True))

    player, master = Role.PLAYER, Role.DUNGEON_MASTER
    one = await seeds(Session("a", seed=7), player, master, player)
    other = await seeds(Session("b", seed=7), master, player, player)
    assert sorted(one) == sorted(other)
    assert len({seed for _, seed in one}) == 3
    assert sorted(await seeds(Session("a", seed=8), player, master, player)) != sorted(one)


@given(st.integers(), st.sampled_from(Role), st.integers(0, 5))
def test_seeds_fit_every_provider(seed: int, role: Role, skipped: int) -> None:
    session = Session("e", seed=seed)
    seeds = [session.next_seed(role) for _ in range(skipped + 1)]
    assert all(0 <= one < 2**31 for one in seeds)
    assert seeds == [Session("e", seed=seed).next_seed(role), *seeds[1:]]


@pytest.mark.parametrize(("cost", "expected"), [(None, None), (Decimal("0.25"), 0.25)])
async def test_a_model_that_is_not_ours_is_taken_at_its_word(cost: Decimal | None, expected: float | None) -> None:
    async def answer(_messages: list[ModelMessage], _info: AgentInfo) -> ModelResponse:
        return ModelResponse(parts=[TextPart("hi")], usage=RequestUsage(input_tokens=3, output_tokens=1, cost=cost))

    session = Session("e1", seed=7)
    await Agent(session.model(Role.PLAYER, FunctionModel(answer))).run("hi")
    assert session.spent.usage == Usage(requests=1, input_tokens=3, output_tokens=1)
    assert session.spent.cost_usd == expected
