"""A server that lacks something is asked without it, once that is found out."""

import logging
from pathlib import Path
from typing import Any

import pytest
from backend_doubles import Refused, Scripted, Waits
from chat_server import calls_tool, completion
from pydantic import BaseModel
from pydantic_ai import Agent
from pydantic_ai.direct import model_request
from pydantic_ai.messages import ModelRequest
from pydantic_ai.models import ModelRequestParameters
from pydantic_ai.settings import ModelSettings
from pydantic_ai.tools import ToolDefinition

from refinesynth.backends import Backend, OutputMode
from refinesynth.chat.react import STOPS
from refinesynth.client.model import BackendModel
from refinesynth.client.request_arguments import UnsupportedFeature, UnsupportedFeatures
from refinesynth.errors import EpisodeAbandoned, NoTools, RunStopped, StorageError
from refinesynth.journal import Journal

BACKEND = Backend(name="mine", model="rehearsal")
NO_SCHEMA = "This response_format type is unavailable now"
NO_TOOLS = "registry.ollama.ai/library/gemma2:2b does not support tools"


class Fruit(BaseModel):
    """A fruit."""

    name: str


FIG = '{"name": "fig"}'


class Server:
    """Refuses requests that hold one of `refused`, with a status and a text each."""

    def __init__(self, **refused: tuple[int, str]) -> None:
        self.refused = refused
        self.requests: list[dict[str, Any]] = []

    async def __call__(self, **request: Any) -> object:
        self.requests.append(request)
        for name, (status, text) in self.refused.items():
            if name in request:
                raise Refused(status, text)
        if "tools" in request:
            return calls_tool("final_result", FIG)
        return completion(FIG)

    def forms(self) -> list[str]:
        return [
            "schema" if "response_format" in asked else "tool" if "tools" in asked else "text"
            for asked in self.requests
        ]


def model(server: Server, backend: Backend = BACKEND, lacks: UnsupportedFeatures | None = None) -> BackendModel:
    return BackendModel(backend, call=server, sleep=Waits(), unsupported=lacks)


async def ask(answering: BackendModel, **settings: Any) -> None:
    result = await Agent(answering, output_type=Fruit, model_settings=ModelSettings(**settings)).run("hi")
    assert result.output == Fruit(name="fig")


async def call_one(answering: BackendModel) -> None:
    """As a player that plays by tool calls."""
    offered = ModelRequestParameters(function_tools=[ToolDefinition(name="take"), ToolDefinition(name="look")])
    await model_request(answering, [ModelRequest.user_text_prompt("hi")], model_request_parameters=offered)


@pytest.mark.parametrize(
    ("refused", "forms"),
    [
        ({"response_format": (400, NO_SCHEMA)}, ["schema", "tool"]),
        ({"response_format": (422, NO_SCHEMA), "tools": (400, NO_TOOLS)}, ["schema", "tool", "text"]),
        # litellm's own word, which stops a run where it is not about something that may be left out.
        ({"response_format": (400, "UnsupportedParamsError: m does not support json_schema")}, ["schema", "tool"]),
        # llama.cpp's server, without --jinja.
        (
            {"response_format": (400, NO_SCHEMA), "tools": (500, "tools param requires --jinja flag")},
            ["schema", "tool", "text"],
        ),
        # OpenRouter.
        ({"response_format": (404, "No endpoints found that support structured outputs")}, ["schema", "tool"]),
    ],
)
async def test_auto_goes_from_schema_to_tool_to_text_once_for_the_backend(
    refused: dict[str, tuple[int, str]], forms: list[str], caplog: pytest.LogCaptureFixture
) -> None:
    server = Server(**refused)
    answering = model(server)
    with caplog.at_level(logging.WARNING, logger="refinesynth.backends"):
        for _ in range(3):
            await ask(answering)
    assert server.forms() == [*forms, forms[-1], forms[-1]]
    assert answering.unsupported == {UnsupportedFeature(name) for name in refused}
    said = [record for record in caplog.records if "does not take" in record.getMessage()]
    assert len(said) == len(refused)


async def test_a_crash_that_only_a_schema_brings_is_found_out_by_asking_without() -> None:
    server = Server(response_format=(500, "Internal Server Error"))
    answering = model(server)
    await ask(answering)
    await ask(answering)
    assert server.forms() == ["schema", "schema", "tool", "tool"]
    assert answering.unsupported == {UnsupportedFeature.SCHEMA}


async def test_a_server_that_crashes_over_everything_lacks_nothing() -> None:
    server = Server(messages=(500, "Internal Server Error"))
    answering = model(server, BACKEND.model_copy(update={"retries": 4}))
    with pytest.raises(RunStopped, match="stays down"):
        await ask(answering)
    assert server.forms() == ["schema", "schema", "tool", "schema", "schema", "schema"]
    assert not answering.unsupported


async def test_a_schema_that_was_taken_before_is_not_what_a_refusal_is_about() -> None:
    server = Server()
    answering = model(server)
    await ask(answering)
    server.refused["messages"] = (400, "bad response_format, tools and seed: an echo of the prompt")
    with pytest.raises(EpisodeAbandoned):
        await ask(answering)
    assert server.forms() == ["schema", "schema"]
    assert not answering.unsupported


async def test_what_every_form_is_refused_for_is_no_lack() -> None:
    server = Server(messages=(400, "no system role; you sent response_format, tools, seed"))
    answering = model(server)
    with pytest.raises(EpisodeAbandoned, match="no system role"):
        await ask(answering, seed=1)
    assert server.forms()[-1] == "text"
    assert not answering.unsupported


@pytest.mark.parametrize("mode", [OutputMode.NATIVE, OutputMode.TOOL])
async def test_a_mode_that_the_user_chose_stays_and_the_message_names_it(mode: OutputMode) -> None:
    server = Server(response_format=(400, NO_SCHEMA), tools=(400, NO_TOOLS))
    answering = model(server, BACKEND.model_copy(update={"output_mode": mode}))
    for _ in range(4):
        with pytest.raises(EpisodeAbandoned):
            await ask(answering)
    with pytest.raises(RunStopped, match=r"look at output_mode of the backend\.$"):
        await ask(answering)
    assert len(server.requests) == 5


async def test_a_seed_that_is_refused_is_left_out_and_the_form_stays() -> None:
    server = Server(seed=(400, "Extra inputs are not permitted: seed"))
    answering = model(server)
    await ask(answering, seed=1)
    await ask(answering, seed=2)
    assert server.forms() == ["schema"] * 3
    assert ["seed" in asked for asked in server.requests] == [True, False, False]


async def test_a_demand_that_is_refused_becomes_a_wish() -> None:
    server = Server(tool_choice=(400, "tool_choice is not supported; only 'auto'"))

    async def only_auto(**request: Any) -> object:
        if request.get("tool_choice") == "auto":
            del request["tool_choice"]
        return await server(**request)

    answering = BackendModel(BACKEND.model_copy(update={"output_mode": OutputMode.TOOL}), call=only_auto, sleep=Waits())
    await ask(answering)
    assert answering.unsupported == {UnsupportedFeature.TOOL_CHOICE}


async def test_functions_cannot_be_called_where_there_are_no_tools() -> None:
    server = Server(tools=(400, NO_TOOLS))
    answering = model(server)
    for _ in range(2):
        with pytest.raises(NoTools):
            await call_one(answering)
    assert server.forms() == ["tool"]


async def test_a_model_that_is_known_to_have_no_tools_is_not_asked_for_calls(caplog: pytest.LogCaptureFixture) -> None:
    server = Server()
    answering = model(server)
    answering.profile["supports_tools"] = False
    for _ in range(2):
        with pytest.raises(NoTools):
            await call_one(answering)
    assert not server.requests
    assert caplog.text.count("mine does not take tools") == 1


@pytest.mark.parametrize(
    "text",
    [
        "Unsupported parameter: 'stop' is not supported with this model.",
        "UnsupportedParamsError: openai does not support parameters: ['stop'], for model=o1",
        "Argument not supported on this model: stop",
        "stop_sequences is not available here",
    ],
)
async def test_stop_sequences_are_left_out_where_they_are_refused(text: str) -> None:
    server = Server(stop=(400, text))
    answering = model(server)
    for _ in range(2):
        await ask(answering, stop_sequences=["\nObservation:"])
    assert [request.get("stop") for request in server.requests] == [["\nObservation:"], None, None]


@pytest.mark.parametrize(
    ("settings", "stops"),
    [
        ({"model": "hosted_vllm/any"}, [True, True]),
        ({"model": "hosted_vllm/Qwen/Qwen3-8B"}, [False, False]),
        ({"model": "hosted_vllm/Qwen/Qwen3-4B-Instruct-2507"}, [True, True]),
        ({"model": "hosted_vllm/zai-org/GLM-4.6"}, [False, False]),
        ({"model": "dashscope/qwen3.7-plus", "extra": {"enable_thinking": False}}, [True, True]),
        ({"model": "hosted_vllm/any", "extra": {"reasoning_effort": "low"}}, [False, False]),
        ({"model": "hosted_vllm/Qwen/Qwen3-8B", "extra": {"stop": ["END"]}}, [True, True]),
        ({"model": "hosted_vllm/thoughtful"}, [True, False]),
    ],
)
async def test_stop_sequences_are_left_out_where_they_may_cut_thoughts(
    settings: dict[str, Any], stops: list[bool]
) -> None:
    is_thoughtful = settings["model"].endswith("thoughtful")
    call = Scripted(*[completion("fig", reasoning_content="Hm." if is_thoughtful else None)] * 3)
    asked = BackendModel(Backend.model_validate(settings), call=call)
    # Those of a user, through Inspect, stay.
    for sequences in ([*STOPS], [*STOPS], ["x"]):
        sent = ModelSettings(stop_sequences=sequences)
        await model_request(asked, [ModelRequest.user_text_prompt("hi")], model_settings=sent)
    assert ["stop" in request for request in call.requests] == [*stops, True]


async def test_what_was_found_out_is_in_the_journal(tmp_path: Path) -> None:
    path = tmp_path / "journal.sqlite"
    first, server = UnsupportedFeatures(), Server(response_format=(400, NO_SCHEMA))
    with Journal(path) as journal:
        first.open(journal)
        await ask(model(server, lacks=first))
    second = UnsupportedFeatures()
    with Journal(path) as journal:
        second.open(journal)
        await ask(model(server, lacks=second))
        other = model(server, Backend(model="openai/m", base_url="http://h/v1"), lacks=second)
        assert not other.unsupported
    assert server.forms() == ["schema", "tool", "tool"]


async def test_a_note_that_is_none_is_damage(tmp_path: Path) -> None:
    with Journal(tmp_path / "journal.sqlite") as journal:
        await journal.keep_note("lacks", b'{"m": ["magic"]}')
        with pytest.raises(StorageError, match="damaged"):
            UnsupportedFeatures().open(journal)
