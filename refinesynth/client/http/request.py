"""From the arguments of a completion function to the JSON that litellm would send for them."""

from collections.abc import Mapping
from typing import Any, cast

from refinesynth.client.http.dialects import Dialect
from refinesynth.client.http.errors import UnsupportedParamsError

PASSED_ON = frozenset(
    {
        "add_generation_prompt", "chat_template_kwargs", "enable_thinking", "guided_choice", "guided_grammar",
        "guided_json", "guided_regex", "ignore_eos", "include_reasoning", "length_penalty", "min_p", "min_tokens",
        "no_repeat_ngram_size", "provider", "reasoning", "repetition_penalty", "separate_reasoning",
        "skip_special_tokens", "stop_token_ids", "structured_outputs", "thinking_budget", "top_a", "top_k",
    }
)  # fmt: skip
"""Arguments that OpenAI does not know and litellm hands on as they are. Others may be meant for litellm itself."""

ELSEWHERE = frozenset({"model", "messages", "timeout", "api_base", "api_key", "extra_headers", "extra_body"})
"""Arguments that are no keys of the body."""


def body_of(request: Mapping[str, Any], *, model: str, dialect: Dialect, takes: frozenset[str]) -> dict[str, Any]:
    """What is posted: the arguments that the server takes, in its dialect, and what `extra_body` adds to them.

    Raises:
        UnsupportedParamsError: An argument that it does not take.
    """
    body: dict[str, Any] = {"model": model, "messages": _messages(request["messages"])}
    extra: dict[str, Any] = {}
    for name, value in request.items():
        if value is None or name in ELSEWHERE:
            continue
        if name in takes:
            body[name] = value
        elif name in PASSED_ON:
            extra[name] = value
        else:
            raise UnsupportedParamsError(f"{model} does not take {name}")
    dialect.shape(body, model)
    given = cast("Mapping[str, Any] | None", request.get("extra_body"))
    return {**body, **(given or {}), **extra}


def _messages(messages: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The conversation; an assistant that only calls tools says nothing rather than null."""
    if all(message.get("content", "") is not None for message in messages):
        return list(messages)
    return [{name: value for name, value in message.items() if value is not None} for message in messages]
