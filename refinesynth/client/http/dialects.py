"""Requests in the form that each kind of server understands, compared with what litellm sends
(tests/client/test_direct_requests.py).
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, cast

from refinesynth.client.http.openai_models import COMMON, says, shape_openai, taken_by_openai
from refinesynth.client.http.reply import UnsupportedParamsError

_REASONS = frozenset({"reasoning_effort"})
_DEEPSEEK_EFFORTS = ("minimal", "low", "medium", "high", "xhigh", "max", "ultra")
"""Those that litellm hands on, from 1.109 on."""

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


def _as_it_is(_body: dict[str, Any], _model: str) -> None:
    pass


def _for_vllm(body: dict[str, Any], _model: str) -> None:
    """Take `strict` and "no further properties" out of the schemas of tools: vLLM's grammars know neither."""
    if "tools" in body:
        body["tools"] = _without(body["tools"], strict=None, additionalProperties=False)


def _for_deepseek(body: dict[str, Any], model: str) -> None:
    """Thinking is on or off, an effort alone turns it on; while it is on, what the model thought before must be there,
    were it a blank.
    """
    thinking, effort = body.pop("thinking", None), body.pop("reasoning_effort", None)
    kind = cast("dict[str, Any]", thinking).get("type") if isinstance(thinking, dict) else None
    if kind in {"enabled", "disabled"}:
        body["thinking"] = {"type": kind}
    elif effort is not None:
        body["thinking"] = {"type": "disabled" if effort == "none" else "enabled"}
    if effort in _DEEPSEEK_EFFORTS and body.get("thinking") == {"type": "enabled"}:
        body["reasoning_effort"] = effort
    if body.get("thinking") == {"type": "enabled"} and says("deepseek", model, "supports_reasoning"):
        body["messages"] = [
            {**message, "reasoning_content": " "}
            if message["role"] == "assistant" and not message.get("reasoning_content")
            else message
            for message in body["messages"]
        ]


def _without(value: Any, **unwanted: object) -> Any:
    """A copy of a JSON value without these keys, at any depth; one with a value of its own goes only if it has that."""
    if isinstance(value, dict):
        named = cast("dict[str, Any]", value)
        return {
            name: _without(item, **unwanted)
            for name, item in named.items()
            if name not in unwanted or (unwanted[name] is not None and item is not unwanted[name])
        }
    if isinstance(value, list):
        return [_without(item, **unwanted) for item in cast("list[Any]", value)]
    return value


@dataclass(frozen=True, slots=True)
class Dialect:
    """The form in which one provider's servers are asked."""

    base_url: str | None
    """The provider's own server; None where there is none."""
    base_url_env: tuple[str, ...] = ()
    """Environment variables that name another one, the first that is set."""
    key_env: tuple[str, ...] = ()
    """Environment variables that may hold a key for a server which mostly needs none."""
    takes: Callable[[str], frozenset[str]] = lambda _model: COMMON
    """The OpenAI parameters that a model's requests may carry."""
    shape: Callable[[dict[str, Any], str], None] = _as_it_is
    """Changes a body whose parameters are all taken; gets the model too."""
    prefix: str = ""
    """What litellm writes before the model's name in an answer."""


DIALECTS: Mapping[str, Dialect] = MappingProxyType(
    {
        "openai": Dialect(
            "https://api.openai.com/v1",
            ("OPENAI_BASE_URL", "OPENAI_API_BASE"),
            takes=taken_by_openai,
            shape=shape_openai,
        ),
        "hosted_vllm": Dialect(
            None,
            ("HOSTED_VLLM_API_BASE",),
            ("HOSTED_VLLM_API_KEY",),
            takes=lambda _model: COMMON | _REASONS,
            shape=_for_vllm,
        ),
        "lm_studio": Dialect(None, ("LM_STUDIO_API_BASE",), ("LM_STUDIO_API_KEY",), prefix="lm_studio/"),
        "llamafile": Dialect(
            "http://127.0.0.1:8080/v1", ("LLAMAFILE_API_BASE",), ("LLAMAFILE_API_KEY",), prefix="llamafile/"
        ),
        "litellm_proxy": Dialect(
            None,
            ("LITELLM_PROXY_API_BASE",),
            takes=lambda _model: COMMON | _REASONS | {"thinking"},
            prefix="litellm_proxy/",
        ),
        "deepseek": Dialect(
            "https://api.deepseek.com/beta",
            ("DEEPSEEK_API_BASE",),
            takes=lambda _model: COMMON | _REASONS | {"thinking"},
            shape=_for_deepseek,
        ),
    }
)
"""By provider, in litellm's words. All others are asked through litellm."""


def body_of(request: Mapping[str, Any], *, model: str, dialect: Dialect) -> dict[str, Any]:
    """The JSON to post: the arguments that the server takes, in its dialect, and what `extra_body` adds to them.

    Raises:
        UnsupportedParamsError: An argument that it does not take.
    """
    body: dict[str, Any] = {"model": model, "messages": _messages(request["messages"])}
    extra: dict[str, Any] = {}
    takes = dialect.takes(model)
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
