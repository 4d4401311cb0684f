"""Grounded scripts as LLMs write them, read tolerantly."""

from collections.abc import Mapping
from typing import Any, cast

from refinesynth.trajectory import Script

_OPS = {
    "append": "add",
    "push": "add",
    "insert": "add",
    "increment": "add",
    "delete": "remove",
    "replace": "set",
    "put": "set",
    "assign": "set",
}
"""Other words for what an effect does."""


def read_grounded(answer: object) -> Script:
    """A grounded script from a model's answer: unknown keys are dropped, usual slips of form repaired. Its laws are not
    judged.

    Raises:
        pydantic.ValidationError: Something required is missing or of the wrong kind.
        ValueError: There is no rulebook.
    """
    given = _repaired(answer)
    if given.get("rulebook") is None:
        raise ValueError("rulebook: Field required; an object with goal, sights, invariants and solution")
    return Script.from_llm(given)


def _repaired(answer: object) -> dict[str, Any]:
    given = _object(answer)
    actions = given.get("actions")
    if isinstance(actions, Mapping):  # the paper's form
        by_name = cast("Mapping[str, Any]", actions)
        given["actions"] = {name: _action(action) for name, action in by_name.items()}
    elif isinstance(actions, list):
        given["actions"] = [_action(action) for action in cast("list[Any]", actions)]
    if isinstance(given.get("rulebook"), Mapping):
        given["rulebook"] = _rulebook(_object(given["rulebook"]))
    return given


def _action(action: Any) -> Any:
    if not isinstance(action, Mapping):
        return action
    given = _object(cast("object", action))
    given["requires"] = [_requirement(item) for item in _listed(given.get("requires"))]
    given["effects"] = [_effect(item) for item in _listed(given.get("effects"))]
    given["reveals"] = given.get("reveals") or ""
    return given


def _requirement(item: Any) -> Any:
    given = _named(item, "condition")
    if isinstance(given, dict):
        found = cast("dict[str, Any]", given)
        kind = found.get("kind")
        if isinstance(kind, str):
            found["kind"] = kind.strip().casefold().removesuffix("_error").removesuffix(" error")
        return {name: value for name, value in found.items() if value not in (None, "")}
    return given


def _effect(item: Any) -> Any:
    if not isinstance(item, Mapping):
        return item
    given = _object(cast("object", item))
    op = given.get("op")
    if isinstance(op, str):
        word = op.strip().casefold()
        given["op"] = _OPS.get(word, word)
    given.setdefault("from_path", given.get("from"))
    for name in ("from_path", "when"):
        given[name] = given[name] if given.get(name) not in (None, "") else None
    return given


def _rulebook(given: dict[str, Any]) -> dict[str, Any]:
    sights = [_named(item, "path") for item in _listed(given.get("sights"))]
    given["sights"] = [
        {name: value for name, value in cast("dict[str, Any]", sight).items() if value not in (None, "")}
        if isinstance(sight, dict)
        else sight
        for sight in sights
    ]
    given["invariants"] = [_named(item, "condition") for item in _listed(given.get("invariants"))]
    if isinstance(given.get("goal"), str):
        given["goal"] = [given["goal"]]
    given["solution"] = [
        cast("Mapping[str, Any]", step).get("action", step) if isinstance(step, Mapping) else step
        for step in _listed(given.get("solution"))
    ]
    return given


def _named(item: Any, key: str) -> Any:
    """A text that stands where an object with one necessary key is meant, as that object."""
    if isinstance(item, str):
        return {key: item}
    return _object(cast("object", item)) if isinstance(item, Mapping) else item


def _listed(value: Any) -> list[Any]:
    """A list, or what stands where a list is meant as its only item."""
    if value is None:
        return []
    return cast("list[Any]", value) if isinstance(value, list) else [value]


def _object(value: object) -> dict[str, Any]:
    return dict(cast("Mapping[str, Any]", value)) if isinstance(value, Mapping) else {}
