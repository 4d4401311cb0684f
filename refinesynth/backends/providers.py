"""Properties of litellm's providers, without an import of litellm: keys, servers, profiles, model names."""

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from types import MappingProxyType
from typing import Any

import orjson

from refinesynth.backends.backend import Backend, OutputMode


@dataclass(frozen=True)
class Provider:
    """Provider of litellm, named by the part of a model string before the first slash."""

    profile: str
    """Prefix of the model name in pydantic-ai's table of model profiles."""
    keys: tuple[str, ...] = ()
    """Environment variables of the key, the usual one first; empty if no key, or more than a key, is needed."""
    base_url: str | None = None
    """Default server; None if litellm chooses the server."""
    base_url_env: str | None = None
    """Environment variable from which litellm reads the server."""
    open_schema: OutputMode = OutputMode.NATIVE
    """Output mode for objects with free keys, which native schemas of some providers cannot express."""


PROVIDERS: Mapping[str, Provider] = MappingProxyType(
    {
        "rehearsal": Provider("rehearsal:"),
        "openai": Provider("openai:", ("OPENAI_API_KEY",), base_url_env="OPENAI_BASE_URL"),
        "azure": Provider("azure:", ("AZURE_API_KEY",), base_url_env="AZURE_API_BASE"),
        "anthropic": Provider("litellm:anthropic/", ("ANTHROPIC_API_KEY",), open_schema=OutputMode.TOOL),
        "bedrock": Provider("bedrock:", open_schema=OutputMode.TOOL),
        "gemini": Provider("litellm:google/", ("GEMINI_API_KEY", "GOOGLE_API_KEY"), open_schema=OutputMode.PROMPTED),
        "vertex_ai": Provider("litellm:google/", open_schema=OutputMode.PROMPTED),
        "deepseek": Provider("deepseek:", ("DEEPSEEK_API_KEY",)),
        "dashscope": Provider("alibaba:", ("DASHSCOPE_API_KEY",)),
        "moonshot": Provider("moonshotai:", ("MOONSHOT_API_KEY",)),
        "mistral": Provider("litellm:mistral/", ("MISTRAL_API_KEY",)),
        "xai": Provider("litellm:xai/", ("XAI_API_KEY",)),
        "groq": Provider("litellm:groq/", ("GROQ_API_KEY",)),
        "cohere": Provider("litellm:cohere/", ("COHERE_API_KEY", "CO_API_KEY")),
        "cerebras": Provider("cerebras:", ("CEREBRAS_API_KEY",)),
        "together_ai": Provider("together:", ("TOGETHERAI_API_KEY", "TOGETHER_API_KEY")),
        "fireworks_ai": Provider("fireworks:", ("FIREWORKS_API_KEY", "FIREWORKS_AI_API_KEY")),
        "openrouter": Provider("openrouter:", ("OPENROUTER_API_KEY",)),
        "hosted_vllm": Provider("vllm:", base_url="http://localhost:8000/v1", base_url_env="HOSTED_VLLM_API_BASE"),
        # The user's own proxy, named by the variable or `base_url`: the provider has no default server.
        "litellm_proxy": Provider("litellm:", ("LITELLM_PROXY_API_KEY",), base_url_env="LITELLM_PROXY_API_BASE"),
        "ollama_chat": Provider("ollama:", base_url="http://localhost:11434", base_url_env="OLLAMA_API_BASE"),
        "ollama": Provider("ollama:", base_url="http://localhost:11434", base_url_env="OLLAMA_API_BASE"),
    }
)
"""Providers with known properties. All other providers of litellm work with litellm's defaults."""

_PROVIDER_PATTERNS = (
    (re.compile(r"(ft:)?(gpt-|chatgpt-|o\d)"), "openai"),
    (re.compile(r"claude"), "anthropic"),
    (re.compile(r"gemini"), "vertex_ai"),
    (re.compile(r"deepseek"), "deepseek"),
)
"""Pattern of a model name without a provider, and the provider that litellm assumes."""


def split_model(model: str) -> tuple[str, str]:
    """Return provider and model name of a litellm model string; the provider is empty if only litellm can tell."""
    if model.partition(":")[0] == "rehearsal":
        return "rehearsal", "rehearsal"
    prefix, slash, name = model.partition("/")
    if slash:
        return prefix, name
    return next((provider for pattern, provider in _PROVIDER_PATTERNS if pattern.match(model)), ""), model


def provider_of(backend: Backend) -> Provider | None:
    """Return the properties of a backend's provider; None if it is not in `PROVIDERS`."""
    return PROVIDERS.get(split_model(backend.model)[0])


def key_variables(backend: Backend) -> tuple[str, ...]:
    """Return the environment variables of a backend's key, in order; empty if it needs no key."""
    if backend.api_key_env is not None:
        return (backend.api_key_env,)
    provider = provider_of(backend)
    # A provider's key must not go to another server with the same protocol.
    return () if provider is None or backend.base_url is not None else provider.keys


def key_of(backend: Backend) -> str | None:
    """Return the key from the environment; None if no variable holds one."""
    return next((value for name in key_variables(backend) if (value := os.environ.get(name))), None)


def server_of(backend: Backend) -> str | None:
    """Return the server to name in a request; None if litellm chooses it."""
    if backend.base_url is not None:
        return backend.base_url
    provider = provider_of(backend)
    if provider is None or (provider.base_url_env is not None and os.environ.get(provider.base_url_env)):
        return None
    return provider.base_url


@cache
def known_models() -> frozenset[str]:
    """Return the chat models in litellm's price map, read from its file: an import of litellm takes seconds."""
    prices: dict[str, Any] = read_table("model_prices_and_context_window_backup.json")
    return frozenset(name for name, entry in prices.items() if entry.get("mode") in {"chat", "responses"})


@cache
def known_providers() -> frozenset[str]:
    """Return all providers in litellm's files and in `PROVIDERS`."""
    prices: dict[str, Any] = read_table("model_prices_and_context_window_backup.json")
    listed: dict[str, Any] = read_table("provider_endpoints_support_backup.json").get("providers", {})
    # `vertex_ai-language-models` and the like are families of one provider.
    priced = {str(prices[name].get("litellm_provider", "")).partition("-")[0] for name in known_models()}
    return frozenset({*listed, *priced, *PROVIDERS} - {"", "rehearsal"})


def base_model_name(model: str) -> str:
    """Return the listed name `ft:BASE` of OpenAI's fine-tuned models (`ft:BASE:organization:name:id`); other models'
    own name.
    """
    return ":".join(model.split(":")[:2]) if model.startswith("ft:") else model


def read_table(name: str) -> dict[str, Any]:
    """Return one of litellm's JSON files, without an import of litellm; empty if it cannot be read."""
    spec = find_spec("litellm")
    folder = None if spec is None or spec.origin is None else Path(spec.origin).parent
    try:
        return {} if folder is None else orjson.loads((folder / name).read_bytes())
    except (OSError, orjson.JSONDecodeError):
        # litellm may change these internal files; without them, only the checks of names are weaker.
        return {}
