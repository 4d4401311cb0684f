"""Requests in the form that each kind of server understands, compared with what litellm sends
(tests/client/test_direct_requests.py); OpenAI's own families of models, which take parameters of their own.

Facts about models come from litellm's price map, read from its file: the import would take seconds and 177 MiB. The
families that reason count `max_tokens` as `max_completion_tokens` and choose their temperature themselves.
"""

import os
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache, lru_cache
from types import MappingProxyType
from typing import Any, NamedTuple, cast
from urllib.parse import urlsplit

from refinesynth.backends.backend import Backend, OutputMode
from refinesynth.backends.providers import read_table
from refinesynth.client.http.reply import UnsupportedParamsError

_TABLE = "model_prices_and_context_window_backup.json"
_NOTHING: Mapping[str, Any] = MappingProxyType({})
COMMON = frozenset(
    {
        "frequency_penalty", "logit_bias", "max_tokens", "parallel_tool_calls", "presence_penalty", "response_format", "seed",
        "stop", "temperature", "tool_choice", "tools", "top_p",
    }
)  # fmt: skip
"""OpenAI's parameters that any server of its protocol takes."""
_EFFORT = frozenset({"reasoning_effort"})
_BEFORE_JSON = ("gpt-4", "gpt-3.5-turbo-16k")
_O_SERIES = re.compile(r"o\d")
_SERIES = re.compile(r"gpt-(\d+)(?:\.(\d+))?(?=[.-]|$)")
_RESPONSES_FOR_TOOLS = (5, 4)
"""From this series on OpenAI takes tools on another endpoint alone, unless thinking is off."""


class Listed(NamedTuple):
    """A model's entry, and that of its name without a provider, which may say what the first does not."""

    own: Mapping[str, Any]
    """Empty for a model that is not listed."""
    bare: Mapping[str, Any]


@lru_cache(maxsize=64)
def listed(provider: str, model: str) -> Listed:
    """The entries of one of a provider's models, found as litellm finds them."""
    table = read_table(_TABLE)
    names = {name.lower(): name for name in table}

    def entry(name: str) -> Mapping[str, Any] | None:
        found = name if name in table else names.get(name.lower())
        return None if found is None else table[found]

    bare = entry(model)
    candidates = [entry(f"{provider}/{model}"), bare]
    if provider == "openai" and model.startswith("ft:"):
        # ft:BASE:organization:name:id
        candidates.append(entry(":".join(model.split(":")[:2])))
    own = next((one for one in candidates if one is not None and one.get("litellm_provider") == provider), None)
    return Listed(_NOTHING, _NOTHING) if own is None else Listed(own, bare or _NOTHING)


def says(provider: str, model: str, fact: str) -> bool | None:
    """Entry of a model for a capability (`supports_reasoning`); None if the map has none."""
    found = listed(provider, model)
    value = found.own.get(fact)
    if value is None and found.bare.get(fact) is True:
        return True
    return value if isinstance(value, bool) else None


@cache
def taken_by_openai(model: str) -> frozenset[str]:
    """The parameters that a model takes; those of an unknown name are the server's business."""
    if _is_o_series(model):
        return _taken_by_o_series(model)
    if _is_gpt_5(model):
        return _taken_by_gpt_5(model)
    taken = COMMON - {"response_format"} if model in _BEFORE_JSON else COMMON
    return taken if _in_catalogue(model) else taken | _EFFORT


def shape_openai(body: dict[str, Any], model: str) -> None:
    """Rename and check what the families that reason take in their own way.

    Raises:
        UnsupportedParamsError: A value that the model does not take.
    """
    o_series = _is_o_series(model)
    if not o_series and not _is_gpt_5(model):
        return
    if o_series and not says("openai", model, "supports_system_messages"):
        body["messages"] = [
            {**message, "role": "user"} if message["role"] == "system" else message for message in body["messages"]
        ]
    if "max_tokens" in body:
        body["max_completion_tokens"] = body.pop("max_tokens")
    effort = body.get("reasoning_effort")
    if not o_series and effort is not None and _refuses(model, effort):
        raise UnsupportedParamsError(f"{model} does not take reasoning_effort={effort}")
    usual = listed("openai", model).own.get("default_reasoning_effort")
    thinks = (usual if effort is None else effort) != "none"
    free = not o_series and says("openai", model, "supports_none_reasoning_effort") and not thinks
    if body.get("temperature", 1) != 1 and not free:
        raise UnsupportedParamsError(f"{model} takes no temperature but 1 while it reasons")
    if not o_series and "top_p" in body and not free:
        raise UnsupportedParamsError(f"{model} takes no top_p while it reasons")


def asked_straight(backend: Backend, model: str) -> bool:
    """Tell whether chat completions serve this backend's requests, and not OpenAI's other endpoint or voices."""
    entry = listed("openai", model).own
    if entry.get("mode", "chat") != "chat" or model.startswith("responses/") or model.endswith("-latest"):
        # litellm looks an alias up under the name of what it stands for.
        return False
    if (
        "audio" in model
        or ("gpt-5" in model and "search" in model)
        or isinstance(backend.extra.get("reasoning_effort"), dict)
    ):
        return False
    series = _SERIES.match(model)
    recent = series is not None and (int(series[1]), int(series[2] or 0)) >= _RESPONSES_FOR_TOOLS
    wants_tools = backend.output_mode is OutputMode.TOOL
    return not (recent and wants_tools and (is_openais(backend) or "reasoning_effort" in backend.extra))


def is_openais(backend: Backend) -> bool:
    """Tell whether OpenAI itself is asked, and not another server that speaks its language."""
    server = backend.base_url or os.environ.get("OPENAI_BASE_URL") or os.environ.get("OPENAI_API_BASE")
    host = urlsplit(server).hostname if server else None
    return host is None or host == "openai.com" or host.endswith(".openai.com")


def _in_catalogue(model: str) -> bool:
    return not model.startswith("ft:") and listed("openai", model).bare.get("litellm_provider") == "openai"


def _is_o_series(model: str) -> bool:
    name = model.rsplit("/", 1)[-1]
    return _O_SERIES.match(name) is not None and _in_catalogue(name)


def _is_gpt_5(model: str) -> bool:
    return ("gpt-5" in model or "gpt-6" in model) and "gpt-5-chat" not in model.rsplit("/", 1)[-1]


def _taken_by_o_series(model: str) -> frozenset[str]:
    missing = {"top_p", "presence_penalty", "frequency_penalty"}
    if not says("openai", model, "supports_function_calling"):
        missing |= {"tools", "tool_choice"}
    if not says("openai", model, "supports_parallel_function_calling"):
        missing |= {"parallel_tool_calls"}
    if not says("openai", model, "supports_response_schema"):
        missing |= {"response_format"}
    return (COMMON | _EFFORT) - missing


def _taken_by_gpt_5(model: str) -> frozenset[str]:
    missing = {"presence_penalty", "frequency_penalty", "stop", "logit_bias"}
    if not says("openai", model, "supports_none_reasoning_effort"):
        missing |= {"top_p"}
    if not says("openai", model, "supports_tool_choice"):
        missing |= {"tool_choice"}
    return (COMMON | _EFFORT) - missing


def _refuses(model: str, effort: str) -> bool:
    known = says("openai", model, f"supports_{effort}_reasoning_effort")
    if effort == "max":
        return False
    return known is not True if effort == "xhigh" else known is False


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
            takes=lambda _model: COMMON | _EFFORT,
            shape=_for_vllm,
        ),
        "lm_studio": Dialect(None, ("LM_STUDIO_API_BASE",), ("LM_STUDIO_API_KEY",), prefix="lm_studio/"),
        "llamafile": Dialect(
            "http://127.0.0.1:8080/v1", ("LLAMAFILE_API_BASE",), ("LLAMAFILE_API_KEY",), prefix="llamafile/"
        ),
        "litellm_proxy": Dialect(
            None,
            ("LITELLM_PROXY_API_BASE",),
            takes=lambda _model: COMMON | _EFFORT | {"thinking"},
            prefix="litellm_proxy/",
        ),
        "deepseek": Dialect(
            "https://api.deepseek.com/beta",
            ("DEEPSEEK_API_BASE",),
            takes=lambda _model: COMMON | _EFFORT | {"thinking"},
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
