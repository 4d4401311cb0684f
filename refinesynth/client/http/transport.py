"""Choice between the direct HTTP client and litellm for a backend.

This module imports no heavy library.
"""

import os
import re
from collections.abc import Mapping
from typing import Any, Literal, NamedTuple, TypeAlias, cast
from urllib.parse import urlsplit

from refinesynth.backends.backend import Backend, Mixed, OutputMode
from refinesynth.backends.providers import server_of, split_model
from refinesynth.client.budget.price_table import entry_of
from refinesynth.client.http.reply import UnsupportedParamsError

COMMON_PARAMETERS = frozenset(
    {
        "frequency_penalty", "logit_bias", "max_tokens", "parallel_tool_calls", "presence_penalty", "response_format", "seed",
        "stop", "temperature", "tool_choice", "tools", "top_p",
    }
)  # fmt: skip
"""OpenAI's parameters that any compatible server accepts."""
_EFFORT = frozenset({"reasoning_effort"})
_REASONING = frozenset({"max_tokens", "response_format", "seed", "tool_choice", "tools"}) | _EFFORT
"""Parameters of all OpenAI's reasoning models. Backends with parameters of only some models use litellm."""
_EFFORTS = (None, "low", "medium", "high")
"""Efforts that all OpenAI's reasoning models accept."""
_O_SERIES = re.compile(r"o\d")
_SERIES = re.compile(r"gpt-(\d+)(?:\.(\d+))?(?=[.-]|$)")
_RESPONSES_FOR_TOOLS = (5, 4)
"""First GPT series that serves tools only on the Responses endpoint, unless thinking is off."""

FORWARDED = frozenset(
    {
        "add_generation_prompt", "chat_template_kwargs", "enable_thinking", "guided_choice", "guided_grammar",
        "guided_json", "guided_regex", "ignore_eos", "include_reasoning", "length_penalty", "min_p", "min_tokens",
        "no_repeat_ngram_size", "provider", "reasoning", "repetition_penalty", "separate_reasoning",
        "skip_special_tokens", "stop_token_ids", "structured_outputs", "thinking_budget", "top_a", "top_k",
    }
)  # fmt: skip
"""Arguments unknown to OpenAI that litellm forwards unchanged. Others may be meant for litellm itself."""

NOT_COPIED = frozenset({"model", "messages", "timeout", "api_base", "api_key", "extra_headers", "extra_body"})
"""Arguments of a request that are not copied into the body by name."""


def _entry(model: str) -> Mapping[str, Any]:
    """Return litellm's entry of an OpenAI model; empty if litellm lists none."""
    return entry_of(f"openai/{model}") or {}


def _is_o_series(model: str) -> bool:
    return _O_SERIES.match(model.rpartition("/")[2].casefold()) is not None and bool(_entry(model))


def _is_reasoning_model(model: str) -> bool:
    return _is_o_series(model) or (("gpt-5" in model or "gpt-6" in model) and "gpt-5-chat" not in model)


def parameters_of(provider: str, model: str) -> frozenset[str]:
    """Return the parameters that a model accepts; for an unlisted model, the server decides."""
    if provider == "openai" and _is_reasoning_model(model):
        return _REASONING
    return COMMON_PARAMETERS if provider == "openai" and _entry(model) else COMMON_PARAMETERS | _EFFORT


def needs_no_conversion(backend: Backend, model: str) -> bool:
    """Return True if the chat completions endpoint serves the backend's requests unconverted."""
    entry, effort = _entry(model), backend.extra.get("reasoning_effort")
    if entry.get("mode", "chat") != "chat" or model.startswith("responses/") or model.endswith("-latest"):
        # litellm resolves an alias to the model behind it.
        return False
    if "audio" in model or ("gpt-5" in model and "search" in model) or isinstance(effort, dict):
        return False
    if _is_reasoning_model(model) and (effort not in _EFFORTS or not entry.get("supports_tool_choice")):
        return False
    series = _SERIES.match(model)
    is_recent = series is not None and (int(series[1]), int(series[2] or 0)) >= _RESPONSES_FOR_TOOLS
    wants_tools = backend.output_mode is OutputMode.TOOL
    return not (is_recent and wants_tools and (is_openai_server(backend) or "reasoning_effort" in backend.extra))


def is_openai_server(backend: Backend) -> bool:
    """Return True for OpenAI itself, False for another compatible server."""
    host = urlsplit(base_url_of(backend)).hostname
    return host is None or host == "openai.com" or host.endswith(".openai.com")


def body_of(request: Mapping[str, Any], *, provider: str, model: str) -> dict[str, Any]:
    """Return the JSON body: the accepted arguments under the server's names, and the keys of `extra_body`.

    Raises:
        UnsupportedParamsError: The server does not accept an argument.
    """
    body: dict[str, Any] = {"model": model, "messages": _messages(request["messages"])}
    extra: dict[str, Any] = {}
    accepted = parameters_of(provider, model)
    for name, value in request.items():
        if value is None or name in NOT_COPIED:
            continue
        if name in accepted:
            body[name] = value
        elif name in FORWARDED:
            extra[name] = value
        else:
            raise UnsupportedParamsError(f"{model} does not take {name}")
    if provider == "hosted_vllm" and "tools" in body:
        body["tools"] = _for_vllm(body["tools"])
    if provider == "openai" and _is_reasoning_model(model) and "max_tokens" in body:
        body["max_completion_tokens"] = body.pop("max_tokens")
    if provider == "openai" and _is_o_series(model) and not _entry(model).get("supports_system_messages"):
        roles = {"system": "user"}
        body["messages"] = [item | {"role": roles.get(item["role"], item["role"])} for item in body["messages"]]
    extra_body = cast("Mapping[str, Any] | None", request.get("extra_body"))
    return {**body, **(extra_body or {}), **extra}


def _for_vllm(schema: Any) -> Any:
    """Return tools without keys that vLLM's grammars do not support: `strict`, and a false `additionalProperties`."""
    if isinstance(schema, list):
        return [_for_vllm(item) for item in cast("list[Any]", schema)]
    if not isinstance(schema, dict):
        return schema
    node = cast("dict[str, Any]", schema)
    removed = {"strict", "additionalProperties"} if node.get("additionalProperties") is False else {"strict"}
    return {name: _for_vllm(item) for name, item in node.items() if name not in removed}


def _messages(messages: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the messages without null values, such as the content of an assistant message with only tool calls."""
    if all(message.get("content", "") is not None for message in messages):
        return list(messages)
    return [{name: value for name, value in message.items() if value is not None} for message in messages]


_ONLY_LITELLM_READS = (
    "OPENAI_ORGANIZATION", "OPENAI_ORG_ID", "OPENAI_PROJECT_ID", "SSL_VERIFY", "SSL_CERTIFICATE", "SSL_SECURITY_LEVEL",
    "SSL_ECDH_CURVE", "USE_LITELLM_PROXY",
)  # fmt: skip
"""Variables that change litellm's requests or trusted certificates; if one is set, litellm is used."""


MIN_FOR_DIRECT = 128
"""Requests in flight from which litellm's CPU time matters: 3 ms per request, 8 times that of the direct client."""

_PROXIES = ("http", "https")
"""Proxy schemes that the direct client supports."""

_SERVERS = {"openai": ("OPENAI_BASE_URL", "OPENAI_API_BASE"), "hosted_vllm": ("HOSTED_VLLM_API_BASE",)}
"""Providers of the direct client, with the environment variables that may name the server, in order."""
_OPENAI = "https://api.openai.com/v1"

Path: TypeAlias = Literal["direct", "litellm", "built in"]
"""Path of a request: our own HTTP client, litellm's SDK, or none (in-process)."""


class TransportChoice(NamedTuple):
    """Path with its reason."""

    path: Path
    reason: str


def path_of(backend: Backend, *, in_flight: int) -> TransportChoice:
    """Return the path of one backend in the present environment, for up to `in_flight` requests in flight.

    `path=direct` gives the direct client even if it does not support the backend; its constructor then raises.
    """
    if backend.is_rehearsal:
        return TransportChoice("built in", "no server is asked")
    if backend.path != "auto":
        return TransportChoice(backend.path, f"path={backend.path}")
    if (obstacle := direct_obstacle(backend)) is not None:
        return TransportChoice("litellm", obstacle)
    concurrency = min(in_flight, backend.max_in_flight or in_flight)
    if concurrency < MIN_FOR_DIRECT:
        return TransportChoice("litellm", f"fewer than {MIN_FOR_DIRECT} requests in flight")
    return TransportChoice("direct", f"up to {concurrency:,} requests in flight")


def with_path(backend: Backend, *, in_flight: int) -> Backend:
    """Return the backend with `auto` replaced by the chosen path; each backend of a mixture gets its own path."""
    paths = [(item, path_of(item, in_flight=in_flight).path) for item in backend.members]
    return Mixed.of([item if path == "built in" else item.model_copy(update={"path": path}) for item, path in paths])


def direct_obstacle(backend: Backend) -> str | None:
    """Return the reason, worded to follow a colon, why the direct client does not support a backend; else None."""
    provider, model = split_model(backend.model)
    if provider not in _SERVERS:
        return f"only litellm knows how {provider or 'its provider'} is asked"
    if provider == "openai" and not needs_no_conversion(backend, model):
        return f"{model} needs what only litellm does for it"
    if (unknown := _unknown(backend, provider, model)) is not None:
        return f"only litellm knows what {unknown} means there"
    if (variable := next((name for name in _ONLY_LITELLM_READS if os.environ.get(name)), None)) is not None:
        return f"the variable {variable} is set, which only litellm heeds"
    if (proxy_of(base_url_of(backend)) or _PROXIES[0]).partition("://")[0] not in _PROXIES:
        return "the proxy that the environment names is not one of HTTP's"
    return None


def _unknown(backend: Backend, provider: str, model: str) -> str | None:
    sampling = {"temperature": backend.temperature, "top_p": backend.top_p, "max_tokens": backend.max_tokens}
    given = [name for name, value in (*sampling.items(), *backend.extra.items()) if value is not None]
    body = backend.extra.get("extra_body")
    if isinstance(body, dict) and "model" in body:
        return "another model in extra_body"
    known = parameters_of(provider, model) | FORWARDED | (NOT_COPIED - {"model", "messages", "api_base", "api_key"})
    return next((name for name in given if name not in known), None)


def base_url_of(backend: Backend) -> str:
    variables = _SERVERS[split_model(backend.model)[0]]
    from_environment = next((value for name in variables if (value := os.environ.get(name))), None)
    return server_of(backend) or from_environment or _OPENAI


def proxy_of(url: str) -> str | None:
    """Return the URL of the environment's proxy for `url`; None if none is set or `url` bypasses it."""
    from urllib.request import getproxies, proxy_bypass

    address, proxies = urlsplit(url), getproxies()
    proxy = proxies.get(address.scheme) or proxies.get("all")
    if proxy is None or proxy_bypass(address.hostname or ""):
        return None
    return proxy if "://" in proxy else f"http://{proxy}"
