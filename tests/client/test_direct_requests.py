"""The direct client posts what litellm posts: compared over a socket, and with litellm's own tables for every model in
its map."""

import json
from collections.abc import Iterator
from copy import deepcopy
from functools import cache
from typing import Any

import pytest
from chat_server import ChatServer, Reply, completion

from refinesynth.backends import Backend, providers
from refinesynth.client import litellm_sdk
from refinesynth.client.budget import price_table
from refinesynth.client.http.direct_client import DirectCompletion
from refinesynth.client.http.reply import UnsupportedParamsError
from refinesynth.client.http.transport import COMMON_PARAMETERS, body_of, direct_obstacle, parameters_of

pytestmark = pytest.mark.process

MODELS = ["openai/served", "gpt-4o", "gpt-5.1", "o3", "hosted_vllm/Qwen/Qwen3-8B"]
"""Some of each provider, and of OpenAI's families."""

CALL = {"id": "c1", "type": "function", "function": {"name": "fruit", "arguments": '{"name": "fig"}'}}
MESSAGES: list[dict[str, Any]] = [
    {"role": "system", "content": "Be brief."},
    {"role": "user", "content": "Häh? \u2028 \x00"},
    {"role": "assistant", "content": None, "tool_calls": [CALL]},
    {"role": "tool", "tool_call_id": "c1", "content": "ok"},
    {"role": "assistant", "content": "Fine.", "reasoning_content": "Hm."},
    {"role": "user", "content": "More."},
]
SCHEMA = {
    "type": "object",
    "properties": {
        "name": {"type": "string"},
        "strict": {"type": "boolean"},
        "more": {"type": "object", "additionalProperties": True},
    },
    "required": ["name"],
    "additionalProperties": False,
    "$schema": "https://json-schema.org/draft/2020-12/schema",
}
TOOL = {"type": "function", "function": {"name": "fruit", "description": "", "parameters": SCHEMA, "strict": True}}
NATIVE = {"type": "json_schema", "json_schema": {"name": "fruit", "schema": SCHEMA}}

SHAPES: dict[str, dict[str, Any]] = {
    "sampling": {"temperature": 0.7, "top_p": 0.9, "max_tokens": 100, "stop": ["x"]},
    "hot": {"temperature": 1.5, "response_format": {"type": "json_object"}},
    "penalties": {"presence_penalty": 0.1, "frequency_penalty": 0.2, "logit_bias": {"5": 1}},
    "native": {"response_format": NATIVE, "seed": 5},
    "forced tool": {"tools": [TOOL], "tool_choice": "required"},
    "free tool": {"tools": [TOOL], "tool_choice": "auto", "parallel_tool_calls": False},
    "effort": {"reasoning_effort": "low"},
    "no effort": {"reasoning_effort": "none", "temperature": 0.5},
    "most effort": {"reasoning_effort": "max"},
    "thinking": {"thinking": {"type": "enabled", "budget_tokens": 5}},
    "no thinking": {"thinking": {"type": "disabled"}},
    "vendor's own": {"top_k": 5, "enable_thinking": False, "chat_template_kwargs": {"enable_thinking": False}},
    "extra body": {
        "extra_body": {"top_k": 9, "foo": {"bar": 1}},
        "min_p": 0.1,
        "extra_headers": {"x-session-id": "e2"},
    },
}

DIFFERENT = {
    # Only its own body is asked for when it is to think; litellm turns a budget of tokens into an effort.
    "hosted_vllm/Qwen/Qwen3-8B": {"thinking", "no thinking"},
    "gpt-5.1": {"sampling", "hot", "penalties", "free tool", "no effort", "most effort"},
    "o3": {"sampling", "hot", "penalties", "free tool", "no effort", "most effort"},
}
"""What the direct client leaves to litellm, by refusing the argument: a backend with it goes through litellm from the
start."""


@pytest.fixture(autouse=True)
def _table_read_once(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    price_table.entry_of.cache_clear()
    monkeypatch.setattr(price_table, "read_table", cache(providers.read_table))
    yield
    price_table.entry_of.cache_clear()


def request(model: str, shape: str) -> dict[str, Any]:
    return deepcopy(
        {"extra_headers": {"x-session-id": "e1"}, **SHAPES[shape], "model": model, "messages": MESSAGES, "timeout": 20}
    )


def ready(server: ChatServer) -> None:
    server.forget()
    server.replies.append(Reply(json.dumps(completion())))


async def posted_by_litellm(server: ChatServer, model: str, shape: str) -> tuple[Any, ...] | None:
    """None if litellm refuses the arguments."""
    ready(server)
    try:
        await litellm_sdk.completion(**request(model, shape), api_base=server.url, api_key="k-12345678")
    except litellm_sdk.litellm().UnsupportedParamsError:
        return None
    return posted(server)


async def posted_lean(
    server: ChatServer, model: str, shape: str, monkeypatch: pytest.MonkeyPatch
) -> tuple[Any, ...] | None:
    ready(server)
    monkeypatch.setenv("MINE", "k-12345678")
    lean = DirectCompletion(Backend(model=model, base_url=server.url, api_key_env="MINE", path="direct"))
    try:
        await lean(**request(model, shape))
    except UnsupportedParamsError:
        return None
    finally:
        await lean.aclose()
    return posted(server)


def posted(server: ChatServer) -> tuple[Any, ...]:
    (body,), (headers,) = server.bodies, server.headers
    return body, {name: headers[name] for name in ("authorization", "content-type", "x-session-id")}


@pytest.mark.representative
@pytest.mark.parametrize("model", MODELS)
async def test_the_same_is_posted_on_both_paths(
    model: str, server: ChatServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    for shape in SHAPES:
        lean = await posted_lean(server, model, shape, monkeypatch)
        if lean is None and shape in DIFFERENT.get(model, set()):
            continue
        through_litellm = await posted_by_litellm(server, model, shape)
        assert lean == through_litellm, (model, shape)


def listed_models(provider: str) -> list[str]:
    """Chat models of a provider in litellm's map, and one that is in no map, without the provider's name."""
    found = [
        name.removeprefix(f"{provider}/")
        for name, entry in litellm_sdk.litellm().model_cost.items()
        if entry.get("litellm_provider") == provider and entry.get("mode") == "chat"
    ]
    return [*found, "made-up"]


@pytest.mark.parametrize("provider", ["openai", "hosted_vllm"])
def test_no_listed_model_is_given_a_parameter_that_litellm_refuses(provider: str) -> None:
    litellm = litellm_sdk.litellm()
    for model in listed_models(provider):
        for effort in (None, "low", "high"):
            backend = Backend(model=f"{provider}/{model}", extra={"reasoning_effort": effort})
            if direct_obstacle(backend) is not None:
                continue
            known = litellm.get_supported_openai_params(model, custom_llm_provider=provider)
            # Models from before schemas are asked for none, see `wire.profile_of`.
            more = {"response_format"} if model in {"gpt-4", "gpt-3.5-turbo-16k"} else set[str]()
            assert parameters_of(provider, model) & (COMMON_PARAMETERS | {"reasoning_effort"}) - more <= set(known), (
                model
            )
            values = {"max_tokens": 5} if effort is None else {"max_tokens": 5, "reasoning_effort": effort}
            expected = litellm.utils.get_optional_params(model=model, custom_llm_provider=provider, **values)
            given = body_of({"messages": [], **values}, provider=provider, model=model)
            for body in (given, expected):
                for name in ("model", "messages", "extra_body", "stream"):
                    body.pop(name, None)
            assert given == expected, (model, values)
