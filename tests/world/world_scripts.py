"""Grounded scripts of which only the rulebook matters."""

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import orjson
from pydantic import JsonValue

from refinesynth.trajectory import (
    ActionSpec,
    Effect,
    EffectOp,
    Invariant,
    Knowledge,
    Requirement,
    Rulebook,
    Script,
    Sight,
)


def script_of(
    *actions: ActionSpec,
    goal: Sequence[str] = ("true",),
    sights: Sequence[Sight] = (),
    invariants: Sequence[str] = (),
    each_step: Sequence[Effect] = (),
    knows: Knowledge | None = None,
    solution: Sequence[str] = (),
    environment: dict[str, Any] | None = None,
) -> Script:
    """A script with these actions and this goal."""
    return Script(
        environment=environment or {},
        goal="Go.",
        completion_conditions=tuple(goal),
        actions=actions,
        rulebook=Rulebook(
            goal=tuple(goal),
            sights=tuple(sights),
            invariants=tuple(Invariant(condition=condition) for condition in invariants),
            each_step=tuple(each_step),
            knows=knows,
            solution=tuple(solution),
        ),
    )


def action_of(
    name: str, *effects: Effect, needs: Sequence[Requirement | str] = (), reveals: str = "", **values: tuple[str, ...]
) -> ActionSpec:
    """An action whose placeholders take any text; a need in words is a condition."""
    return ActionSpec(
        name=name,
        pattern=name.replace("{", "(?P<").replace("}", ">.+)"),
        parameters=dict(values),
        requires=tuple(Requirement(condition=need) if isinstance(need, str) else need for need in needs),
        effects=effects,
        reveals=reveals,
    )


def documented(part: str) -> Any:
    """The one example of the documentation in which this stands."""
    docs = (Path(__file__).parents[2] / "docs" / "grounded.md").read_text(encoding="utf-8")
    (block,) = (text for text in re.findall(r"```json\n(.*?)```", docs, re.DOTALL) if part in text)
    return orjson.loads(block)


def setting(path: str, value: JsonValue, when: str | None = None) -> Effect:
    return Effect(op=EffectOp.SET, path=path, value=value, when=when)
