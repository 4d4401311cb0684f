"""Requests in the form that vLLM and OpenAI take, compared with litellm's in tests/client/test_direct_requests.py.

Facts about OpenAI's models are read from litellm's price map: the import would take seconds and 177 MiB.
"""

import os
import re
from collections.abc import Mapping
from functools import lru_cache
from typing import Any, cast
from urllib.parse import urlsplit

from refinesynth.backends.backend import Backend, OutputMode
from refinesynth.backends.providers import base_of, read_table
from refinesynth.client.http.reply import UnsupportedParamsError

COMMON = frozenset(
    {
        "frequency_penalty", "logit_bias", "max_tokens", "parallel_tool_calls", "presence_penalty", "response_format", "seed",
        "stop", "temperature", "tool_choice", "tools", "top_p",
    }
)  # fmt: skip
"""OpenAI's parameters that any compatible server takes."""
_EFFORT = frozenset({"reasoning_effort"})
_REASONING = frozenset({"max_tokens", "response_format", "seed", "tool_choice", "tools"}) | _EFFORT
"""Parameters of all OpenAI's reasoning models. Those of some models alone are left to litellm."""
_EFFORTS = (None, "low", "medium", "high")
"""Efforts that each of them takes."""
_O_SERIES = re.compile(r"o\d")
_SERIES = re.compile(r"gpt-(\d+)(?:\.(\d+))?(?=[.-]|$)")
_RESPONSES_FOR_TOOLS = (5, 4)
"""First series with tools on another endpoint alone, unless thinking is off."""

PASSED_ON = frozenset(
    {
        "add_generation_prompt", "chat_template_kwargs", "enable_thinking", "guided_choice", "guided_grammar",
        "guided_json", "guided_regex", "ignore_eos", "include_reasoning", "length_penalty", "min_p", "min_tokens",
        "no_repeat_ngram_size", "provider", "reasoning", "repetition_penalty", "separate_reasoning",
        "skip_special_tokens", "stop_token_ids", "structured_outputs", "thinking_budget", "top_a", "top_k",
    }
)  # fmt: skip
"""Arguments unknown to OpenAI that litellm passes on unchanged. Others may be meant for litellm itself."""

ELSEWHERE = frozenset({"model", "messages", "timeout", "api_base", "api_key", "extra_headers", "extra_body"})
"""Arguments that are no keys of the body."""


@lru_cache(maxsize=64)
def _entry(model: str) -> Mapping[str, Any]:
    """Return the entry of one of OpenAI's models; empty if it is not listed."""
    table = read_table("model_prices_and_context_window_backup.json")
    names = (f"openai/{model}", model, base_of(model))
    entries: list[dict[str, Any]] = [table[name] for name in names if name in table]
    return next((entry for entry in entries if entry.get("litellm_provider") == "openai"), dict[str, Any]())


def _is_o_series(model: str) -> bool:
    return _O_SERIES.match(model.rpartition("/")[2].casefold()) is not None and bool(_entry(model))


def _reasons(model: str) -> bool:
    return _is_o_series(model) or (("gpt-5" in model or "gpt-6" in model) and "gpt-5-chat" not in model)


def taken(provider: str, model: str) -> frozenset[str]:
    """Return the parameters that a model takes; an unknown name is left to the server."""
    if provider == "openai" and _reasons(model):
        return _REASONING
    return COMMON if provider == "openai" and _entry(model) else COMMON | _EFFORT


def asked_straight(backend: Backend, model: str) -> bool:
    """Return True if chat completions serve this backend's requests, not OpenAI's other endpoint or voices."""
    entry, effort = _entry(model), backend.extra.get("reasoning_effort")
    if entry.get("mode", "chat") != "chat" or model.startswith("responses/") or model.endswith("-latest"):
        # litellm looks an alias up under the name of what it stands for.
        return False
    if "audio" in model or ("gpt-5" in model and "search" in model) or isinstance(effort, dict):
        return False
    if _reasons(model) and (effort not in _EFFORTS or not entry.get("supports_tool_choice")):
        return False
    series = _SERIES.match(model)
    recent = series is not None and (int(series[1]), int(series[2] or 0)) >= _RESPONSES_FOR_TOOLS
    wants_tools = backend.output_mode is OutputMode.TOOL
    return not (recent and wants_tools and (is_openais(backend) or "reasoning_effort" in backend.extra))


def is_openais(backend: Backend) -> bool:
    """Return True for OpenAI itself, False for another compatible server."""
    server = backend.base_url or os.environ.get("OPENAI_BASE_URL") or os.environ.get("OPENAI_API_BASE")
    host = urlsplit(server).hostname if server else None
    return host is None or host == "openai.com" or host.endswith(".openai.com")


def body_of(request: Mapping[str, Any], *, provider: str, model: str) -> dict[str, Any]:
    """The JSON to post: the arguments that the server takes, in its words, and what `extra_body` adds to them.

    Raises:
        UnsupportedParamsError: An argument that it does not take.
    """
    body: dict[str, Any] = {"model": model, "messages": _messages(request["messages"])}
    extra: dict[str, Any] = {}
    takes = taken(provider, model)
    for name, value in request.items():
        if value is None or name in ELSEWHERE:
            continue
        if name in takes:
            body[name] = value
        elif name in PASSED_ON:
            extra[name] = value
        else:
            raise UnsupportedParamsError(f"{model} does not take {name}")
    if provider == "hosted_vllm" and "tools" in body:
        body["tools"] = _for_vllm(body["tools"])
    if provider == "openai" and _reasons(model) and "max_tokens" in body:
        body["max_completion_tokens"] = body.pop("max_tokens")
    if provider == "openai" and _is_o_series(model) and not _entry(model).get("supports_system_messages"):
        roles = {"system": "user"}
        body["messages"] = [one | {"role": roles.get(one["role"], one["role"])} for one in body["messages"]]
    given = cast("Mapping[str, Any] | None", request.get("extra_body"))
    return {**body, **(given or {}), **extra}


def _for_vllm(schema: Any) -> Any:
    """Return tools without what vLLM's grammars do not know: `strict`, and a closing `additionalProperties`."""
    if isinstance(schema, list):
        return [_for_vllm(item) for item in cast("list[Any]", schema)]
    if not isinstance(schema, dict):
        return schema
    named = cast("dict[str, Any]", schema)
    unknown = {"strict", "additionalProperties"} if named.get("additionalProperties") is False else {"strict"}
    return {name: _for_vllm(item) for name, item in named.items() if name not in unknown}


def _messages(messages: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the conversation; an assistant message with tool calls alone has no content instead of null."""
    if all(message.get("content", "") is not None for message in messages):
        return list(messages)
    return [{name: value for name, value in message.items() if value is not None} for message in messages]
