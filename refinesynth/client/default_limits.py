"""Limits of completions: the default `max_tokens` of a role."""

import re
from collections.abc import Mapping
from typing import Any, cast

from refinesynth.backends.backend import Backend
from refinesynth.backends.role import Role
from refinesynth.client.request_arguments import profile_of, thinking_is_off

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
BOUND_NAMES = frozenset({"max_tokens", "max_completion_tokens"})
"""Names of the argument that bounds a completion."""
_THINKING_NAMES = re.compile(
    r"think|reason|qwq|qwen-?3|gpt-oss|magistral|[-_]r1\b|\bglm-?(4\.[5-9]|5)|minimax-m\d", re.IGNORECASE
)
"""Names of thinking models that pydantic-ai's profiles do not list."""
_PLAIN_NAMES = re.compile(r"instruct|coder", re.IGNORECASE)
"""Names of models without thoughts in families of thinking models."""


def bound_of(role: Role, backend: Backend) -> int | None:
    """Return the maximum tokens of a completion: the backend's `max_tokens`, else the role's default.

    None for roles without a default, thinking models, built-in backends, and backends whose `extra` sets the bound.
    """
    if backend.max_tokens is not None or role not in _BOUNDED_ROLES:
        return backend.max_tokens
    return None if backend.is_rehearsal or has_bound(backend.extra) or _thinks(backend) else DEFAULT_MAX_TOKENS[role]


def has_bound(arguments: Mapping[str, Any]) -> bool:
    """Return True if arguments of a request, or their `extra_body`, name a bound of the completion."""
    return any(name in source for source in _sources(arguments) for name in BOUND_NAMES)


def bound_in(arguments: Mapping[str, Any]) -> int | None:
    """Return the bound of the completion in tokens, the largest if arguments and `extra_body` differ; None without one."""
    values = [source.get(name) for source in _sources(arguments) for name in BOUND_NAMES]
    return max((int(value) for value in values if isinstance(value, int | float)), default=None)


def _sources(arguments: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    body: object = arguments.get("extra_body")
    return [arguments, cast("Mapping[str, Any]", body)] if isinstance(body, Mapping) else [arguments]


def _thinks(backend: Backend) -> bool:
    may_think = profile_of(backend).get("supports_thinking", False) or _THINKING_NAMES.search(backend.model) is not None
    return not thinking_is_off(backend) and (may_think or thinks_by_name(backend))


def thinks_by_name(backend: Backend) -> bool:
    """Return True if a model thinks by its name or the settings in `extra`."""
    is_named = _THINKING_NAMES.search(backend.model) is not None and _PLAIN_NAMES.search(backend.model) is None
    is_set = not {"reasoning_effort", "thinking"}.isdisjoint(backend.extra)
    return not thinking_is_off(backend) and (is_named or is_set)
