"""Through the real litellm SDK, over a socket on 127.0.0.1."""

import json
import sys
from collections.abc import Generator
from contextlib import contextmanager
from typing import Any

import anyio
import anyio.abc
import pytest
from backend_doubles import Waits
from chat_server import ChatServer, Reply, calls_tool, completion, says
from pydantic import BaseModel
from pydantic_ai import Agent, models

from refinesynth.backends import PRESETS, Backend, OutputMode, Role
from refinesynth.client import litellm_sdk, open_model
from refinesynth.client.model import BackendModel
from refinesynth.client.session import Session
from refinesynth.errors import RunStopped
from refinesynth.trajectory import Usage

pytestmark = pytest.mark.process

MODELS = ["openai/served", "hosted_vllm/served"]


class Fruit(BaseModel):
    """A fruit."""

    name: str
    seeds: int


FIG = '{"name": "fig", "seeds": 900}'


def asking(server: ChatServer, model: str, waits: Waits, **settings: Any) -> BackendModel:
    backend = Backend.model_validate({"model": model, "base_url": server.url, "name": "mine", **settings})
    return BackendModel(backend, call=litellm_sdk.completion, sleep=waits)


@contextmanager
def without_module(name: str) -> Generator[None]:
    """As if `name` were not installed."""
    had = {key: module for key, module in sys.modules.items() if key.partition(".")[0] == name}
    for key in had:
        del sys.modules[key]
    sys.modules[name] = None  # pyright: ignore[reportArgumentType]
    try:
        yield
    finally:
        del sys.modules[name]
        sys.modules.update(had)


@pytest.mark.representative
@pytest.mark.parametrize("model", MODELS)
async def test_an_answer_comes_back_with_its_bill(model: str, server: ChatServer, waits: Waits) -> None:
    server.replies.append(
        says(
            usage={
                "prompt_tokens": 10,
                "completion_tokens": 2,
                "total_tokens": 12,
                "prompt_tokens_details": {"cached_tokens": 4},
            }
        )
    )
    session = Session("e1", seed=7)
    result = await Agent(session.model(Role.PLAYER, asking(server, model, waits))).run("hi")
    assert result.output == "hello"
    assert session.spent.usage == Usage(requests=1, input_tokens=10, cached_tokens=4, output_tokens=2)


@pytest.mark.representative
@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize(
    ("mode", "reply"),
    [
        (OutputMode.NATIVE, completion(FIG)),
        (OutputMode.NATIVE, completion("```json\n{'name': 'fig', 'seeds': 900,}\n```")),
        (OutputMode.TOOL, calls_tool("final_result", FIG)),
        (OutputMode.TOOL, calls_tool("final_result", "{'name': 'fig', 'seeds': 900,}")),
        (OutputMode.TOOL, completion(f"I would call it with {FIG}")),
        (OutputMode.PROMPTED, completion(f"Here: {FIG}")),
    ],
)
async def test_typed_output_in_every_mode(
    model: str, mode: OutputMode, reply: dict[str, Any], server: ChatServer, waits: Waits
) -> None:
    server.replies.append(Reply(json.dumps(reply)))
    answering = asking(server, model, waits, output_mode=mode)
    # litellm goes through `mcp` for any call with tools, unless it is told not to.
    with without_module("mcp"):
        result = await Agent(answering, output_type=Fruit).run("hi")
    assert result.output == Fruit(name="fig", seeds=900)
    (body,) = server.bodies
    assert ("tools" in body) is (mode is OutputMode.TOOL)
    assert (body.get("response_format", {}).get("type") == "json_schema") is (mode is OutputMode.NATIVE)


@pytest.mark.parametrize("model", [*MODELS, "ollama_chat/served"])
@pytest.mark.parametrize("host", ["localhost:9", "no-such-host.invalid"])
async def test_no_host_and_no_port_are_told_from_a_server_that_hangs_up(model: str, host: str, waits: Waits) -> None:
    backend = Backend(model=model, base_url=f"http://{host}/v1")
    with pytest.raises(RunStopped, match="after 4 attempts"):
        await Agent(BackendModel(backend, call=litellm_sdk.completion, sleep=waits)).run("hi")
    server = await anyio.create_tcp_listener(local_host="127.0.0.1")
    port = server.extra(anyio.abc.SocketAttribute.local_port)
    hanging_up = backend.model_copy(update={"base_url": f"http://127.0.0.1:{port}/v1", "retries": 5})
    async with anyio.create_task_group() as group:
        group.start_soon(server.serve, _hang_up)
        with pytest.raises(RunStopped, match=r"broke off the connection.* \(after 6 attempts\)"):
            await Agent(BackendModel(hanging_up, call=litellm_sdk.completion, sleep=waits)).run("hi")
        group.cancel_scope.cancel()
    await server.aclose()


async def _hang_up(stream: anyio.abc.ByteStream) -> None:
    await stream.receive(1)
    await stream.aclose()


PAGE = "<!DOCTYPE html>\n<html><head><title>Sign in</title></head></html>"


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("status", [200, 404, 405])
@pytest.mark.parametrize("body", [PAGE, "<h1>Welcome</h1>"])
async def test_a_web_page_for_a_first_answer_is_a_wrong_address(
    model: str, *, status: int, body: str, server: ChatServer, waits: Waits
) -> None:
    server.replies.extend([Reply(body, status=status, headers={"content-type": "text/html"})] * 3)
    with pytest.raises(RunStopped) as stopped:
        await Agent(asking(server, model, waits)).run("hi")
    # Once more, in case that it was a gateway's page for the moment; 405 is no such thing.
    assert len(server.bodies) == (1 if status == 405 else 2)
    assert "where no completion API is: a web page came back" in str(stopped.value)
    assert f"Check base_url ({server.url})" in str(stopped.value)


@pytest.mark.parametrize("name", [name for name, preset in PRESETS.items() if preset.backend.model != "rehearsal"])
def test_litellm_takes_what_each_preset_sends(name: str) -> None:
    backend = PRESETS[name].backend
    needed = {"native": "response_format", "tool": "tools", "prompted": "response_format"}
    from refinesynth.client.request_arguments import output_mode, profile_of

    modes = {output_mode(backend, profile_of(backend), frozenset(), free_keys=free) for free in (False, True)}
    for mode in {*modes, "tool"}:
        assert litellm_sdk.accepts(backend.model, needed[mode])


async def test_thinking_is_off_where_the_preset_says_so(server: ChatServer, monkeypatch: pytest.MonkeyPatch) -> None:
    for variable in ("DEEPSEEK_API_KEY", "DASHSCOPE_API_KEY"):
        monkeypatch.setenv(variable, "k-0000000000")
    for name in ("deepseek", "qwen"):
        server.replies.append(Reply(json.dumps(calls_tool("final_result", FIG))))
        backend = PRESETS[name].backend.model_copy(update={"base_url": server.url})
        await Agent(open_model(backend), output_type=Fruit).run("hi")
    deepseek, qwen = server.bodies
    assert deepseek["max_tokens"] == qwen["max_tokens"] == 8000
    assert deepseek["thinking"] == {"type": "disabled"}
    assert qwen["enable_thinking"] is False
    assert deepseek["tool_choice"] == qwen["tool_choice"] == "required"


async def test_a_setting_that_the_model_does_not_take_stops_the_run(
    waits: Waits, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "k-0000000000")
    backend = Backend(model="gpt-5", temperature=0.2)
    with pytest.raises(RunStopped, match="temperature"):
        await Agent(BackendModel(backend, call=litellm_sdk.completion, sleep=waits)).run("hi")


def test_seeds_are_sent_where_litellm_takes_them() -> None:
    assert litellm_sdk.accepts("gpt-4o", "seed")
    assert not litellm_sdk.accepts("anthropic/claude-sonnet-5-5", "seed")
    assert not litellm_sdk.accepts("no-such-model", "seed")


async def test_pydantic_ais_switch_against_real_requests_is_obeyed(server: ChatServer, waits: Waits) -> None:
    with (
        models.override_allow_model_requests(allow_model_requests=False),
        pytest.raises(RunStopped, match="not allowed"),
    ):
        await Agent(asking(server, MODELS[0], waits)).run("hi")
    assert not server.bodies
