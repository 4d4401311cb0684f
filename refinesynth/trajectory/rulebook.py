"""Rulebook: the executable part of a script, as data. It states preconditions, effects and visibility.

The world's state is the script's environment, one JSON object. Conditions are CEL expressions over `state`, the
action's parameters by name, and `visible`, the list of names that the player can see. Paths are JSON Pointers into the
state. Texts are templates: `{item}` is a parameter's value, and `{state:/places/{place}/items}` is the value at that
path. `refinesynth.world` executes rulebooks and documents the supported CEL subset and the wording of values.
"""

from enum import StrEnum
from typing import Annotated

from pydantic import Field, JsonValue

from refinesynth.trajectory.turns import MistakeKind
from refinesynth.trajectory.value import Value, is_empty

MAX_ACTIONS = 64
"""Maximum number of actions in a rulebook."""

MAX_PARTS = 24
"""Maximum number of requirements or effects of an action, goal conditions, sights or invariants."""

MAX_TEXT = 2_000
"""Longest template, in characters."""

MAX_KNOWN_TEXT = 200
"""Longest text in a knowledge record, in characters."""

MAX_CEL = 1_000
"""Longest CEL expression, in characters."""

MAX_SOLUTION = 100
"""Maximum number of actions in a solution."""


def _is_none(value: object) -> bool:
    """Return whether a field is null and therefore not written; false and an empty text are written."""
    return value is None


class EffectOp(StrEnum):
    """Operation of an effect at its path."""

    SET = "set"
    """Store `value`. The last key may be new; all keys before it must exist."""
    ADD = "add"
    """Add `value`: to a list as its last item, to a number as a sum, to a text at its end."""
    REMOVE = "remove"
    """With `value`: remove the first equal item from the list. Without: delete the key."""
    MOVE = "move"
    """With `value`: move it from the list at `from_path` to the end of the list at `path`. Without: move the value at
    `from_path` to `path`."""


class Effect(Value):
    """One change of the state."""

    op: EffectOp
    path: str = Field(max_length=MAX_TEXT)
    """JSON Pointer whose steps may hold `{item}` and `{state:/...}`; values are escaped as the pointer requires. For
    `remove` with a `value`, one whole step may be `{any}`: the value is removed from all lists there that hold it."""
    value: JsonValue = Field(default=None, exclude_if=_is_none)
    """Value to set, add, remove or move. Every text in it is a template; a text that consists of one `{state:/...}`
    becomes the JSON value there, and `{"cel": "..."}` the value of that expression. Null means no value for remove and
    move."""
    from_path: str | None = Field(default=None, max_length=MAX_TEXT, exclude_if=_is_none)
    """JSON Pointer to the moved value, or with `value` to the list that holds it; for `move` only. With `value`, one
    whole step may be `{any}`: the first list there that holds the value."""
    when: str | None = Field(default=None, max_length=MAX_CEL, exclude_if=_is_none)
    """CEL over `state` (after the effects before this one), `before` (the state before the action), the parameters and,
    without `each`, `visible`; the effect is skipped unless it holds. `else` holds if the last condition before it did
    not hold; the effect with that condition must not have `each`."""
    each: str | None = Field(default=None, max_length=MAX_TEXT, exclude_if=_is_none)
    """JSON Pointer to an object or a list. The effect is then applied once for each key of the object, each text of the
    list, or each index of a list with any other item; its other parts call that text `each`."""


class Requirement(Value):
    """Precondition of an action. The first one that does not hold determines the kind of the mistake."""

    condition: str = Field(max_length=MAX_CEL)
    """CEL over `state`, `visible` and the action's parameters."""
    kind: MistakeKind = MistakeKind.LOGIC
    """Kind of the mistake if the condition does not hold."""
    hint: str = Field(default="Nothing happens.", max_length=MAX_TEXT)
    """Template of the message to the player in that case, filled from the state before the action."""
    effects: tuple[Effect, ...] = Field(default=(), max_length=MAX_PARTS, exclude_if=is_empty)
    """Effects of the refused action: the price of the mistake. They must not reach the goal."""


class ConditionalText(Value):
    """One of several observations of an action. The first one whose condition holds is used."""

    when: str | None = Field(default=None, max_length=MAX_CEL, exclude_if=_is_none)
    """CEL over `state` after the effects, `before` them, `visible` and the parameters; the last observation has none.
    """
    text: str = Field(default="", max_length=MAX_TEXT)
    """Template, filled from the state after the effects."""


class Sight(Value):
    """Source of visible names in a state. Names in no sight are hidden."""

    path: str = Field(max_length=MAX_TEXT)
    """JSON Pointer to names: a list shows its texts, an object its keys, a text itself; other or missing values show
    nothing. Its steps may hold `{state:/...}`, and `{each}` if `each` is given. Without a slash at the beginning it is
    a name itself: one from an action's values, or `{each}`."""
    each: str | None = Field(default=None, max_length=MAX_TEXT, exclude_if=_is_none)
    """JSON Pointer to a list of texts or an object: `path` and `when` are evaluated once for each of its texts or keys,
    called `each`."""
    when: str | None = Field(default=None, max_length=MAX_CEL, exclude_if=_is_none)
    """CEL over `state`, and `each` if it is given; the sight shows nothing unless it holds."""


class Invariant(Value):
    """Condition that must hold after every step. An action that would break it is a fault of the rulebook and changes
    nothing.
    """

    condition: str = Field(max_length=MAX_CEL)
    """CEL over `state`."""
    sentence: str = Field(default="", max_length=MAX_TEXT)
    """The condition as a sentence."""


class Knowledge(Value):
    """Record of texts that the player has read. The program stores it in the state, and conditions may query it."""

    path: str = Field(max_length=MAX_TEXT)
    """JSON Pointer to a list of texts in the state."""
    texts: tuple[Annotated[str, Field(min_length=1, max_length=MAX_KNOWN_TEXT)], ...] = Field(
        min_length=1, max_length=MAX_PARTS
    )
    """Names or other texts. Each is added to the list when the observation of an accepted action mentions it, as whole
    words and in any case, unless a value of that action contains it."""


class Rulebook(Value):
    """Executable part of a grounded script, beside the laws of its actions (`ActionSpec.requires`, `effects`,
    `reveals`).
    """

    goal: tuple[str, ...] = Field(min_length=1, max_length=MAX_PARTS)
    """CEL over `state`, one condition for each of the script's completion conditions, in order. The goal is reached
    when all hold; the share that holds is the progress."""
    sights: tuple[Sight, ...] = Field(default=(), max_length=MAX_PARTS)
    """Sources of visible names. Without any, nothing is hidden and `visible` holds every name from the actions' values.
    """
    invariants: tuple[Invariant, ...] = Field(default=(), max_length=MAX_PARTS)
    each_step: tuple[Effect, ...] = Field(default=(), max_length=MAX_PARTS, exclude_if=is_empty)
    """Effects of every accepted action, after its own: time that passes, a kettle that comes to the boil."""
    knows: Knowledge | None = Field(default=None, exclude_if=_is_none)
    """Record of texts that the player has read; none by default."""
    solution: tuple[str, ...] = Field(default=(), max_length=MAX_SOLUTION)
    """Action texts with which the author reaches the goal from the beginning. Never shown to the player."""
