"""Session affinity: marks by which a provider finds the cached beginning of a conversation.

They are added after the journal's digest is computed, so they do not change which answers are recalled.
"""

from typing import Any, TypeAlias

from refinesynth.backends.backend import Backend
from refinesynth.backends.providers import split
from refinesynth.backends.role import Role
from refinesynth.client.http.transport import is_openais
from refinesynth.client.session import RequestContext

CONVERSING = frozenset({Role.DUNGEON_MASTER, Role.PLAYER, Role.REPAIRER})
"""Roles whose requests in an episode extend each other. Other roles' prompts begin alike in all episodes."""

_Request: TypeAlias = dict[str, Any]


def with_affinity(request: _Request, backend: Backend, account: RequestContext) -> _Request:
    """Return the request with the marks of its episode and role; unchanged if it belongs to no episode."""
    role, episode = account.role, account.session.id
    kind = affinity_of(backend) if episode else "none"
    if kind == "openai" and role in CONVERSING:
        # Requests that begin alike in all episodes are brought together by that beginning; a key would part them.
        body = {"prompt_cache_key": f"{episode}-{role}", **request.get("extra_body", {})}
        return {**request, "extra_body": body}
    return _for_anthropic(request, role) if kind == "anthropic" else request


def affinity_of(backend: Backend) -> str:
    """Return the preset of a backend; `auto` is resolved."""
    if backend.session_headers != "auto":
        return backend.session_headers
    provider = split(backend.model)[0]
    if provider == "openai" and is_openais(backend):
        return "openai"
    return "anthropic" if provider == "anthropic" else "none"


def _for_anthropic(request: _Request, role: str) -> _Request:
    """Mark what another request will begin with; a mark that is not used again costs a quarter more.

    The DungeonMaster's instructions are the same in all episodes, and a Player's conversation grows message by message.
    """
    messages: list[dict[str, Any]] = list(request["messages"])
    if role in CONVERSING and messages[0]["role"] == "system":
        messages[0] = _marked(messages[0])
    if role in {Role.PLAYER, Role.REPAIRER}:
        messages[-1] = _marked(messages[-1])
    return {**request, "messages": messages}


def _marked(message: dict[str, Any]) -> dict[str, Any]:
    mark, text = {"cache_control": {"type": "ephemeral"}}, message.get("content")
    if message["role"] == "tool":
        return {**message, **mark}
    # Blocks without a word are refused.
    return {**message, "content": [{"type": "text", "text": text, **mark}]} if text else message
