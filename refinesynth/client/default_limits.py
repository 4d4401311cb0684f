"""Limits of completions: the default `max_tokens` of a role."""

from collections.abc import Mapping
from typing import Any, cast

from refinesynth.backends.backend import Backend
from refinesynth.backends.role import Role

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


def bound_of(role: Role, backend: Backend) -> int | None:
    """Return the maximum tokens of a completion: the backend's `max_tokens`, else the role's default.

    None for roles without a default, built-in backends, and backends whose `extra` sets the bound.
    """
    if backend.max_tokens is not None or role not in _BOUNDED_ROLES:
        return backend.max_tokens
    return None if backend.is_rehearsal or has_bound(backend.extra) else DEFAULT_MAX_TOKENS[role]


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
