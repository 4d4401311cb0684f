"""Limits of completions: the default `max_tokens` of a role, and the slots and the context that a server reports."""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any
from urllib.parse import urlsplit

import anyio

from refinesynth.backends.backend import Backend, Mixed, Role
from refinesynth.backends.providers import key_of, split_model
from refinesynth.client.budget.price_table import entry_of
from refinesynth.client.http.transport import base_url_of
from refinesynth.client.request_arguments import has_bound, profile_of, thinking_is_off

DEFAULT_MAX_TOKENS: Mapping[Role, int] = {
    Role.SCRIPT_WRITER: 2_500,
    Role.DUNGEON_MASTER: 768,
    Role.PLAYER: 512,
    Role.REPAIRER: 512,
    Role.NARRATOR: 3_500,
    Role.JUDGE: 512,
}
"""Tokens that suffice for nearly every good answer of a role, without the thoughts of reasoning models."""
_BOUNDED_ROLES = frozenset({Role.DUNGEON_MASTER, Role.PLAYER, Role.REPAIRER})
"""Roles with a default bound. Scripts and narrated plays have none: they may fill the context, and servers such as vLLM
refuse a bound that exceeds it."""
_THINKING_NAMES = re.compile(
    r"think|reason|qwq|qwen-?3|gpt-oss|magistral|[-_]r1\b|\bglm-?(4\.[5-9]|5)|minimax-m\d", re.IGNORECASE
)
"""Names of thinking models that pydantic-ai's profiles do not list."""
_PLAIN_NAMES = re.compile(r"instruct|coder", re.IGNORECASE)
"""Names of models without thoughts in families of thinking models."""
_PROVIDERS = ("openai", "hosted_vllm")
_LOCAL_HOSTS = frozenset({"localhost", "127.0.0.1", "::1"})
_TIMEOUT_S = 2.0
"""Timeout of each request to a server on this machine, in seconds."""
_RETRY_S = 2.0
"""Seconds between two requests to a server that loads its model."""
_MAX_RESPONSE_BYTES = 2**20
"""Bytes of a response that are read."""
_IMPLAUSIBLE = 10**9
"""Number of slots or tokens from which a server's report is ignored."""


def bound_of(role: Role, backend: Backend) -> int | None:
    """Return the maximum tokens of a completion: the backend's `max_tokens`, else the role's default.

    None for roles without a default, thinking models, built-in backends, and backends whose `extra` sets the bound.
    """
    if backend.max_tokens is not None or role not in _BOUNDED_ROLES:
        return backend.max_tokens
    return None if backend.is_rehearsal or has_bound(backend.extra) or _thinks(backend) else DEFAULT_MAX_TOKENS[role]


def _thinks(backend: Backend) -> bool:
    may_think = profile_of(backend).get("supports_thinking", False) or _THINKING_NAMES.search(backend.model) is not None
    return not thinking_is_off(backend) and (may_think or thinks_by_name(backend))


def thinks_by_name(backend: Backend) -> bool:
    """Return True if a model thinks by its name or the settings in `extra`."""
    is_named = _THINKING_NAMES.search(backend.model) is not None and _PLAIN_NAMES.search(backend.model) is None
    is_set = not {"reasoning_effort", "thinking"}.isdisjoint(backend.extra)
    return not thinking_is_off(backend) and (is_named or is_set)


def context_warning(role: Role, backend: Backend, *, prompt: int, context: int | None) -> str | None:
    """Return a warning if a prompt of `prompt` tokens and its completion exceed the context; None if they fit or the
    context is unknown.
    """
    answer = bound_of(role, backend) or DEFAULT_MAX_TOKENS[role]
    if context is None or prompt + answer <= context:
        return None
    return (
        f"{role.value.replace('_', ' ')}: a prompt of about {prompt:,} tokens and an answer of up to {answer:,} do not fit the "
        f"{context:,} tokens of {backend.label}'s context; serve a longer one, or lower max_tokens"
    )


@dataclass(frozen=True)
class ServerFacts:
    """Capacity of a server; None for an unknown value."""

    slots: int | None = None
    """Requests that the server processes at once."""
    context: int | None = None
    """Tokens of prompt and answer together."""


async def server_facts_of(backend: Backend) -> ServerFacts:
    """Return the capacity of a backend: from a server on this machine (llama.cpp's `/props`, `max_model_len` in
    `/v1/models`), for others from litellm's table. An unusable response gives unknown values, not an error.
    """
    entry = entry_of(backend.model) or {}
    context = entry.get("max_input_tokens") or entry.get("max_tokens")
    known = ServerFacts(context=context if isinstance(context, int) and backend.base_url is None else None)
    return known if _local_server(backend) is None else await _reported(backend)


async def _reported(backend: Backend, *, wait_s: float = 0.0) -> ServerFacts:
    """Return the capacity that a server reports; repeat a request for `wait_s` seconds while its model loads."""
    # Imported here: the import is slow, and only local servers need it.
    import aiohttp

    base = base_url_of(backend).rstrip("/")
    headers = {"Authorization": f"Bearer {key}"} if (key := key_of(backend)) else {}
    urls = [f"{base.removesuffix('/v1')}/props", f"{base}/models"]
    bodies = list[Any]()
    try:
        timeout = aiohttp.ClientTimeout(total=_TIMEOUT_S)
        async with aiohttp.ClientSession(timeout=timeout, headers=headers) as session:
            while len(bodies) < len(urls):
                async with session.get(urls[len(bodies)]) as response:
                    body = await response.content.read(_MAX_RESPONSE_BYTES)
                if wait_s > 0 and response.status == HTTPStatus.SERVICE_UNAVAILABLE and b"loading" in body.lower():
                    await anyio.sleep(_RETRY_S)
                    wait_s -= _RETRY_S
                else:
                    bodies.append(json.loads(body) if response.ok else None)
    except (TimeoutError, aiohttp.ClientError, OSError, ValueError, RecursionError):
        return ServerFacts()
    match bodies:
        case [{"total_slots": int(slots), "default_generation_settings": {"n_ctx": int(context)}}, _]:
            numbers = slots, context
        case [_, {"data": [{"max_model_len": int(context)}, *_]}]:
            numbers = None, context
        case _:
            numbers = None, None
    return ServerFacts(*(number if number is not None and 0 < number < _IMPLAUSIBLE else None for number in numbers))


async def bounded_by_slots(backends: Mapping[Role, Backend]) -> dict[Role, Backend]:
    """Return the backends; a missing `max_in_flight` becomes the number of slots that a local server reports."""
    slots: dict[str, int] = {}
    for member in [member for backend in backends.values() for member in backend.members]:
        if (server := _local_server(member)) is not None and server not in slots:
            slots[server] = (await _reported(member, wait_s=member.outage)).slots or 0

    def bounded(backend: Backend) -> Backend:
        max_in_flight = backend.max_in_flight or slots.get(_local_server(backend) or "") or None
        return backend.model_copy(update={"max_in_flight": max_in_flight})

    return {role: Mixed.of([bounded(member) for member in backend.members]) for role, backend in backends.items()}


def _local_server(backend: Backend) -> str | None:
    """Return the base URL of a server on this machine that speaks OpenAI's protocol; None for others."""
    if split_model(backend.model)[0] not in _PROVIDERS:
        return None
    url = base_url_of(backend)
    return url if urlsplit(url).hostname in _LOCAL_HOSTS else None
