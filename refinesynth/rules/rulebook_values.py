"""Which names that actions can be given exist in the world that they are given to."""

import re
from collections.abc import Iterator

from pydantic import JsonValue

from refinesynth.actions.wording import folded
from refinesynth.trajectory import ActionSpec, Script

_LITERAL = re.compile(r"\"((?:[^\"\\]|\\.)*)\"|'((?:[^'\\]|\\.)*)'")
"""A text in a CEL expression."""


def unknown_values(script: Script) -> Iterator[tuple[str, str, tuple[str, ...]]]:
    """Action, placeholder and its values, for each placeholder that the world depends on and none of whose values is in
    it.

    In the world is what the environment holds as a key, a text or a number, and what the rulebook itself writes out.
    """
    known = frozenset(map(folded, (*_texts(script.environment), *_written(script))))
    for action in script.actions:
        for placeholder, values in action.parameters.items():
            if values and _matters(action, placeholder) and not any(folded(value) in known for value in values):
                yield action.name, placeholder, values


def _matters(action: ActionSpec, placeholder: str) -> bool:
    """Whether a path or a condition of the action uses it."""
    slot, name = f"{{{placeholder}}}", re.compile(rf"\b{re.escape(placeholder)}\b")
    paths = [path for effect in action.effects for path in (effect.path, effect.from_path or "")]
    conditions = [requirement.condition for requirement in action.requires]
    conditions.extend(effect.when for effect in action.effects if effect.when)
    return any(slot in path for path in paths) or any(name.search(_LITERAL.sub(" ", text)) for text in conditions)


def _written(script: Script) -> Iterator[str]:
    """Texts that conditions compare with, steps of paths, and values that effects write."""
    expressions = list(script.rulebook.goal) if script.rulebook else []
    for action in script.actions:
        expressions.extend(requirement.condition for requirement in action.requires)
        for effect in action.effects:
            expressions.append(effect.when or "")
            yield from effect.path.split("/")
            yield from (effect.from_path or "").split("/")
            yield from _texts(effect.value)
    for expression in expressions:
        yield from (one or other for one, other in _LITERAL.findall(expression))


def _texts(value: JsonValue) -> Iterator[str]:
    """Every key, text and number in a value, however deep."""
    left = [value]
    while left:
        inner = left.pop()
        if isinstance(inner, dict):
            yield from inner
            left.extend(inner.values())
        elif isinstance(inner, list):
            left.extend(inner)
        elif isinstance(inner, str):
            yield inner
        elif isinstance(inner, int | float) and not isinstance(inner, bool):
            yield str(inner)
