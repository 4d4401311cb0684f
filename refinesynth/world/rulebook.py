"""A rulebook: what must hold for each action, what it changes, and when the goal is reached. Data only.

The world's state is one JSON object. Conditions are CEL expressions over `state` and the action's parameters by name;
`refinesynth.world.expression` says what of CEL is available. Paths are JSON Pointers into the state, and texts are templates:
`{item}` stands for a parameter's value and `{state:/places/{place}/items}` for what the state holds there;
`refinesynth.world.template` says how values become words.
"""

from enum import StrEnum

from pydantic import BaseModel, ConfigDict, Field, JsonValue

from refinesynth.trajectory import ActionSpec, MistakeKind

MAX_ACTIONS = 64
"""Most actions of a rulebook."""

MAX_PARTS = 24
"""Most requirements or effects of one action, and most conditions of a goal."""

MAX_TEXT = 2_000
"""Longest template, in characters."""

MAX_CEL = 1_000
"""Longest CEL expression, in characters."""


class _Value(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Condition(_Value):
    """Something that must hold in the end."""

    cel: str = Field(max_length=MAX_CEL)
    """CEL over `state`; no parameters."""
    sentence: str = Field(default="", max_length=MAX_TEXT)
    """The same in words, as the script's completion conditions say it."""


class Requirement(_Value):
    """Something that must hold before an action; the first one that does not decides the mistake."""

    condition: str = Field(max_length=MAX_CEL)
    """CEL over `state` and the action's parameters."""
    kind: MistakeKind = MistakeKind.LOGIC
    """What the player got wrong if it does not hold."""
    hint: str = Field(default="Nothing happens.", max_length=MAX_TEXT)
    """Template for what the player is told then, filled from the state before the action."""


class EffectOp(StrEnum):
    """What an effect does at its path."""

    SET = "set"
    """Put `value` there. The last key may be new; everything before it must exist."""
    ADD = "add"
    """Add `value` to what is there: to a list as its last item, to a number as a sum, to a text at its end."""
    REMOVE = "remove"
    """With `value`: take the first item equal to it out of the list there. Without: delete the key there."""
    MOVE = "move"
    """With `value`: take it out of the list at `from_path` and put it at the end of the list at `path`.
    Without: what is at `from_path` is deleted there and put at `path`."""


class Effect(_Value):
    """One change of the state."""

    op: EffectOp
    path: str = Field(max_length=MAX_TEXT)
    """JSON Pointer whose steps may hold `{item}` and `{state:/...}`; values are escaped as the pointer needs it."""
    value: JsonValue = None
    """What to set, add, remove or move; every text in it is a template, and a text that is one `{state:/...}` and nothing else
    becomes the JSON value there. Null means none for remove and move."""
    from_path: str | None = Field(default=None, max_length=MAX_TEXT)
    """JSON Pointer to what moves; for `move` alone."""
    when: str | None = Field(default=None, max_length=MAX_CEL)
    """CEL over `state` (as the effects before this one left it) and the parameters; the effect is left out unless it holds."""


class ActionRule(_Value):
    """One action: its form, what it requires, what it changes and what the player then sees."""

    action: ActionSpec
    requires: tuple[Requirement, ...] = Field(default=(), max_length=MAX_PARTS)
    """In order; the first unmet one decides. An action with none always succeeds."""
    effects: tuple[Effect, ...] = Field(default=(), max_length=MAX_PARTS)
    """In order, each on the state that the one before left; if one cannot be applied, none is."""
    observation: str = Field(default="Done.", max_length=MAX_TEXT)
    """Template for what the player sees, filled from the state after the effects."""


class Rulebook(_Value):
    """The machine-readable part of a script."""

    actions: tuple[ActionRule, ...] = Field(min_length=1, max_length=MAX_ACTIONS)
    goal: tuple[Condition, ...] = Field(min_length=1, max_length=MAX_PARTS)
    """The goal is reached when all hold; the share that holds is the progress."""
