"""A second model for the time in which the first cannot be asked."""

import logging

import anyio
import pytest
from backend_doubles import Refused, Scripted
from chat_server import completion
from pydantic_ai.direct import model_request
from pydantic_ai.messages import ModelRequest, ModelResponse
from pydantic_ai.settings import ModelSettings
from virtual_time import in_virtual_time

from refinesynth.backends import Backend, Role
from refinesynth.client import open_models
from refinesynth.client.limiter.rate_limiter import limiter_of
from refinesynth.client.model import BackendModel
from refinesynth.client.routing import FallbackModel, limiters_in
from refinesynth.client.session import Session
from refinesynth.errors import BudgetSpent, EpisodeAbandoned, RunStopped

FIRST = Backend(name="first", model="openai/first", base_url="http://first/v1", temperature=0.2, max_tokens=50)
SECOND = Backend(name="second", model="openai/second", base_url="http://second/v1")


def pair(first: Scripted, second: Scripted) -> FallbackModel:
    return FallbackModel(
        BackendModel(FIRST, call=first, limiter=limiter_of(FIRST, waits=False)), BackendModel(SECOND, call=second)
    )


def named(model: str) -> dict[str, object]:
    return completion(model=model)


async def ask(model: FallbackModel, settings: ModelSettings | None = None) -> ModelResponse:
    return await model_request(model, [ModelRequest.user_text_prompt("hi")], model_settings=settings)


@pytest.mark.parametrize("error", [Refused(401), Refused(402), Refused(404), Refused(429, "insufficient_quota")])
def test_one_that_will_not_be_asked_is_left_alone_for_a_while(error: Refused, caplog: pytest.LogCaptureFixture) -> None:
    first, second = Scripted(*[error] * 2), Scripted(*[named("second")] * 9)

    async def run() -> list[str | None]:
        model = pair(first, second)
        names = [(await ask(model)).model_name for _ in range(4)]
        await anyio.sleep(301)
        names += [(await ask(model)).model_name for _ in range(2)]
        await anyio.sleep(301)
        return names + [(await ask(model)).model_name for _ in range(2)]

    with caplog.at_level(logging.WARNING, "refinesynth.backends"):
        assert in_virtual_time(run) == [*["second"] * 6, *["served"] * 2]
    assert len(first.requests) == 4
    went, returned = (record.getMessage() for record in caplog.records)
    assert went.endswith("Requests go to openai/second meanwhile")
    assert returned == "openai/first answers again; requests return to it from openai/second"


def test_an_outage_sends_requests_over_at_once_and_they_return_by_themselves() -> None:
    down = [ConnectionRefusedError("x")]
    first, second = Scripted(completion(), *down * 12), Scripted(*[named("second")] * 999)

    async def run() -> tuple[list[str | None], float]:
        model = pair(first, second)
        await ask(model)
        names, longest = list[str | None](), 0.0
        for _ in range(200):
            began = anyio.current_time()
            names.append((await ask(model)).model_name)
            longest = max(longest, anyio.current_time() - began) if len(names) > 1 else longest
            await anyio.sleep(2)
        return names, longest

    names, longest = in_virtual_time(run)
    back = names.index("served")
    assert set(names[:back]) == {"second"}
    assert set(names[back:]) == {"served"}
    # Only the request that saw it go down has waited.
    assert longest == 0


@pytest.mark.parametrize(
    ("answer", "error"),
    [
        (completion("x", finish_reason="content_filter"), EpisodeAbandoned),
        (Refused(400, "bad prompt"), EpisodeAbandoned),
        (BudgetSpent("spent."), BudgetSpent),
    ],
)
async def test_what_is_refused_for_its_content_or_not_paid_for_is_not_asked_elsewhere(
    answer: object, error: type[Exception]
) -> None:
    second = Scripted()
    with pytest.raises(error):
        await ask(pair(Scripted(answer), second))
    assert not second.requests


def test_where_both_cannot_be_asked_the_run_stops() -> None:
    async def run() -> None:
        with pytest.raises(RunStopped, match="second does not accept the key"):
            await ask(pair(Scripted(Refused(401)), Scripted(Refused(401))))

    in_virtual_time(run)


async def test_each_is_asked_with_its_own_settings() -> None:
    first, second = Scripted(Refused(401)), Scripted()
    model = pair(first, second)
    settings = ModelSettings(**(model.settings or {}))
    settings["seed"] = 3
    await ask(model, settings)
    (to_first,), (to_second,) = first.requests, second.requests
    assert (to_first["temperature"], to_first["max_tokens"], to_first["seed"]) == (0.2, 50, 3)
    assert "temperature" not in to_second
    assert "max_tokens" not in to_second
    assert (to_second["seed"], to_second["model"], to_second["api_base"]) == (3, "openai/second", "http://second/v1")


async def test_the_model_that_answered_is_the_one_that_is_recorded() -> None:
    session = Session("e1", seed=7)
    model = session.model(Role.PLAYER, pair(Scripted(completion(), Refused(401)), Scripted()))
    for _ in range(3):
        await model_request(model, [ModelRequest.user_text_prompt("hi")])
    assert session.answered_by == {"player": "openai/first, openai/second"}


def test_all_roles_share_one_fallback_and_those_on_one_endpoint_a_limiter() -> None:
    other = FIRST.model_copy(update={"model": "openai/other", "max_in_flight": 5})
    roles = {Role.PLAYER: FIRST, Role.DUNGEON_MASTER: other, Role.JUDGE: SECOND}
    models = open_models(roles, call=Scripted(), fallback=SECOND)
    player, master = models[Role.PLAYER], models[Role.DUNGEON_MASTER]
    assert isinstance(player, FallbackModel)
    assert isinstance(master, FallbackModel)
    assert player.fallback is master.fallback is models[Role.JUDGE]
    limiters = limiters_in(models.values())
    assert len(limiters) == 2
    assert limiters[0].max_in_flight == 5
    assert [limiter.name for limiter in limiters] == ["first", "second"]
