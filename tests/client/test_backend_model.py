"""The model over an injected completion function."""

import gc
import json
from collections import Counter
from dataclasses import replace
from decimal import Decimal
from typing import Any
from weakref import ref

import anyio
import pytest
from backend_doubles import Refused, Scripted, Waits
from chat_server import calls_tool, completion
from pydantic import BaseModel
from pydantic_ai import Agent
from pydantic_ai.direct import model_request
from pydantic_ai.messages import ModelMessage, ModelRequest, TextPart, ToolCallPart
from pydantic_ai.models import ModelRequestParameters
from pydantic_ai.settings import ModelSettings
from pydantic_ai.tools import ToolDefinition
from virtual_time import in_virtual_time

from refinesynth.backends import PRESETS, Backend, OutputMode
from refinesynth.client import open_model
from refinesynth.client.budget.price_table import free
from refinesynth.client.failure_policy import RequestCounts
from refinesynth.client.model import BackendModel
from refinesynth.errors import ConfigurationError, EpisodeAbandoned, EpisodeLost, RunStopped

BACKEND = Backend(name="mine", model="rehearsal")


class Fruit(BaseModel):
    """A fruit."""

    name: str
    seeds: int


def model(call: Scripted, backend: Backend = BACKEND, sleep: Waits | None = None) -> BackendModel:
    return BackendModel(backend, call=call, sleep=Waits() if sleep is None else sleep)


async def ask(answering: BackendModel, settings: ModelSettings | None = None) -> str:
    response = await model_request(answering, [ModelRequest.user_text_prompt("hi")], model_settings=settings)
    (part,) = response.parts
    assert isinstance(part, TextPart)
    return part.content


async def test_requests_and_attempts_after_the_first_are_counted() -> None:
    answering = model(Scripted(OSError(), OSError(), completion(), completion()))
    assert [await ask(answering), await ask(answering)] == [await ask(model(Scripted(completion())))] * 2
    assert answering.counts == RequestCounts(begun=2, retried=2)


GO_TO = ModelRequestParameters(
    function_tools=[ToolDefinition(name="go_to", parameters_json_schema={"properties": {"place": {"type": "string"}}})]
)


async def test_the_tools_of_each_live_episode_are_prepared_once_and_forgotten_with_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    prepared = Counter[int]()
    customize = BackendModel.customize_request_parameters

    def counting(self: BackendModel, parameters: ModelRequestParameters) -> ModelRequestParameters:
        prepared[id(parameters)] += 1
        return customize(self, parameters)

    monkeypatch.setattr(BackendModel, "customize_request_parameters", counting)
    answering = model(Scripted(*(completion() for _ in range(300))))
    tool = GO_TO.function_tools[0]
    messages: list[ModelMessage] = [ModelRequest.user_text_prompt("hi")]

    async def play() -> ref[ToolDefinition]:
        episodes = [ModelRequestParameters(function_tools=[replace(tool, name=f"go_{at}")]) for at in range(100)]
        for at in [*range(100)] * 3:
            await answering.request(messages, None, episodes[at])
        assert [*prepared.values()] == [1] * len(episodes)
        return ref(episodes[0].function_tools[0])

    # In a function: what measures coverage may keep the variables of a frame until it ends.
    schema = await play()
    gc.collect()
    assert schema() is None


async def test_calls_behind_a_tool_parser_are_read() -> None:
    place, names = (
        '{"place":"hall"}',
        ("functions.go_to:0", "go_togo_to", "go_to<|channel|>commentary", "to=functions.go_to"),
    )
    call = Scripted(
        *(calls_tool(name, place) for name in names),
        calls_tool("functions.fly", place),
        completion(f"I go.<tool_call>{json.dumps({'name': 'go_to', 'arguments': place})}</tool_call>"),
        calls_tool("fly", place),
    )
    answering = model(call)
    found = [
        (await model_request(answering, [ModelRequest.user_text_prompt("hi")], model_request_parameters=GO_TO)).parts
        for _ in range(6)
    ]
    calls = [part for parts in found for part in parts if isinstance(part, ToolCallPart)]
    assert [(one.tool_name, one.args) for one in calls] == [*[("go_to", place)] * 5, ("fly", place)]
    assert found[4][-1] == TextPart("I go.")
    assert call.requests[4] == call.requests[5], "functions.fly was asked for again"


async def test_a_request_carries_the_backends_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MY_KEY", "k-00000000")
    call = Scripted()
    backend = Backend(
        model="openai/m",
        base_url="http://h/v1",
        api_key_env="MY_KEY",
        temperature=0.5,
        top_p=0.9,
        max_tokens=100,
        timeout=7,
        extra={"reasoning_effort": "low"},
    )
    assert await ask(model(call, backend)) == "hello"
    (request,) = call.requests
    assert request == {
        "model": "openai/m",
        "messages": [{"role": "user", "content": "hi"}],
        "api_base": "http://h/v1",
        "api_key": "k-00000000",
        "temperature": 0.5,
        "top_p": 0.9,
        "max_tokens": 100,
        "timeout": 7,
        "reasoning_effort": "low",
    }


async def test_a_seed_goes_only_where_seeds_are_taken_and_can_be_switched_off() -> None:
    call = Scripted()
    await ask(BackendModel(BACKEND, call=call, accepts_seed=False), ModelSettings(seed=3))
    await ask(model(call, BACKEND.model_copy(update={"seed": False})), ModelSettings(seed=3))
    assert not any("seed" in request for request in call.requests)


async def test_null_takes_an_argument_out_of_the_request() -> None:
    call = Scripted(calls_tool("final_result", '{"name": "fig", "seeds": 1}'))
    backend = Backend(
        model="openai/m",
        base_url="http://h/v1",
        output_mode=OutputMode.TOOL,
        temperature=0.5,
        extra={"tool_choice": None, "temperature": None, "unheard_of": None, "min_p": 0.1},
    )
    await Agent(model(call, backend), output_type=Fruit).run("hi")
    (request,) = call.requests
    assert not request.keys() & {"tool_choice", "temperature", "unheard_of"}
    assert (request["min_p"], "tools" in request) == (0.1, True)


async def test_a_response_format_of_the_user_is_sent_as_it_stands() -> None:
    call = Scripted(completion('{"name": "fig", "seeds": 900}'))
    backend = BACKEND.model_copy(update={"extra": {"response_format": {"type": "json_object"}}})
    await Agent(model(call, backend), output_type=Fruit).run("hi")
    assert call.requests[0]["response_format"] == {"type": "json_object"}
    assert '"seeds"' in call.requests[0]["messages"][0]["content"]
    assert "tools" not in call.requests[0]


@pytest.mark.parametrize("mode", [OutputMode.NATIVE, OutputMode.TOOL, OutputMode.PROMPTED])
async def test_an_invalid_answer_goes_back_with_what_is_wrong(mode: OutputMode) -> None:
    wrong, right = '{"name": "fig"}', '{"name": "fig", "seeds": 900}'
    if mode is OutputMode.TOOL:
        call = Scripted(calls_tool("final_result", wrong), calls_tool("final_result", right))
    else:
        call = Scripted(completion(wrong), completion(right))
    result = await Agent(
        model(call, BACKEND.model_copy(update={"output_mode": mode})), output_type=Fruit, retries=2
    ).run("hi")
    assert result.output == Fruit(name="fig", seeds=900)
    told = call.requests[1]["messages"]
    assert any(message["role"] == "assistant" for message in told)
    assert "seeds" in str(told[-1]["content"])
    assert [message["role"] for message in told[1:]].count("system") == 0


async def test_an_empty_answer_is_asked_for_again_with_another_seed() -> None:
    call = Scripted(completion(""), completion("cut", finish_reason="length"))
    assert await ask(model(call), ModelSettings(seed=5)) == "hello"
    seeds = [request["seed"] for request in call.requests]
    assert len(set(seeds)) == 3
    assert all(0 <= seed < 2**31 for seed in seeds)


class AsksToWait(Refused):
    def __init__(self, seconds: int) -> None:
        super().__init__(429, "slow down")
        self.headers = {"retry-after": str(seconds)}


def test_one_that_is_longer_than_an_outage_stops_the_run_and_says_why() -> None:
    async def refused() -> float:
        began = anyio.current_time()
        with pytest.raises(
            RunStopped, match=r"asks to wait 3,600 s \(Retry-After\), and 600 s are .* --set outage=3600\.$"
        ):
            await ask(BackendModel(BACKEND, call=Scripted(AsksToWait(3600))))
        return anyio.current_time() - began

    assert in_virtual_time(refused) == 0
    patient = BACKEND.model_copy(update={"outage": 3600.0})
    assert in_virtual_time(lambda: ask(BackendModel(patient, call=Scripted(AsksToWait(3600))))) == "hello"


ECHO = Refused(400, "cannot parse: 'The limit has insufficient funds.'")


async def test_words_that_may_be_the_prompts_own_give_up_one_episode() -> None:
    answering = model(Scripted(*[completion(), ECHO] * 9))
    for _ in range(9):
        assert await ask(answering) == "hello"
        with pytest.raises(EpisodeAbandoned, match="insufficient funds"):
            await ask(answering)


async def test_words_that_come_again_and_again_are_no_echo() -> None:
    answering = model(Scripted(completion(), *[Refused(400, "Your credit balance is too low")] * 5))
    await ask(answering)
    for _ in range(4):
        with pytest.raises(EpisodeAbandoned):
            await ask(answering)
    with pytest.raises(RunStopped, match="no credit left"):
        await ask(answering)


async def test_a_server_that_begins_to_reject_every_request_stops_the_run() -> None:
    rejected = [Refused(400, "no")] * 19
    answering = model(Scripted(completion(), *rejected, completion(), *rejected, Refused(400, "no")))
    for _ in range(2):
        await ask(answering)
        for _ in rejected:
            with pytest.raises(EpisodeAbandoned):
                await ask(answering)
    with pytest.raises(RunStopped, match="rejects the request"):
        await ask(answering)


async def test_a_request_that_fails_while_others_are_answered_gives_up_its_episode_alone() -> None:
    async def meanwhile(_seconds: float) -> None:
        await ask(answering)

    call = Scripted(Refused(500), completion("another's"), Refused(500))
    answering = BackendModel(BACKEND.model_copy(update={"retries": 1}), call=call, sleep=meanwhile)
    with pytest.raises(EpisodeLost, match="after 2 attempts"):
        await ask(answering)
    assert len(call.requests) == 3


@pytest.mark.parametrize(
    ("useless", "said"),
    [(completion("hello", finish_reason="length"), "raise max_tokens"), (completion(" \n"), "gave an empty answer")],
)
async def test_a_server_that_never_gives_an_answer_to_use_stops_the_run_and_says_where_to_look(
    useless: dict[str, Any], said: str
) -> None:
    attempts = BACKEND.content_retries + 1
    answering = model(Scripted(*[useless] * attempts * 5))
    for _ in range(4):
        with pytest.raises(EpisodeAbandoned, match=said):
            await ask(answering)
    with pytest.raises(RunStopped, match=rf"{said}.*each of the first 5 requests.*look at max_tokens"):
        await ask(answering)


async def test_no_key_is_anywhere_in_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CANARY_API_KEY", "canary-0123456789")
    with pytest.raises(RunStopped) as stopped:
        await ask(model(Scripted(Refused(401, "wrong key canary-0123456789"))))
    assert "canary" not in str(stopped.value)
    assert stopped.value.__context__ is None
    assert stopped.value.__cause__ is None
    assert "canary" not in repr(model(Scripted(), Backend(model="m", api_key_env="CANARY_API_KEY")))


async def test_the_price_is_the_responses_cost() -> None:
    response = await model_request(
        BackendModel(BACKEND, call=Scripted(), price=lambda usage: usage.input_tokens / 1000),
        [ModelRequest.user_text_prompt("hi")],
    )
    assert response.usage.cost == Decimal("0.01")
    assert (response.usage.input_tokens, response.model_name, response.provider_response_id) == (10, "served", "c1")
    assert free(response.usage) == 0


def test_a_missing_key_is_said_before_anything_is_imported_or_sent() -> None:
    with pytest.raises(ConfigurationError, match="DEEPSEEK_API_KEY"):
        open_model(PRESETS["deepseek"].backend)
