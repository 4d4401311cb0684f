"""The machine-readable part of a script: what must hold for an action, what it changes, what is seen. Data only.

The world's state is the script's environment, one JSON object. Conditions are CEL expressions over `state`, the
action's parameters by name, and `visible`, the list of names that the player can see; paths are JSON Pointers into the
state; texts are templates: `{item}` stands for a parameter's value and `{state:/places/{place}/items}` for what the
state holds there. `refinesynth.world` executes it and says what of CEL is available and how values become words.
"""

from enum import StrEnum
from typing import Annotated

from pydantic import Field, JsonValue

from refinesynth.trajectory.turns import MistakeKind
from refinesynth.trajectory.value import Value, absent

MAX_ACTIONS = 64
"""Most actions of a rulebook."""

MAX_PARTS = 24
"""Most requirements or effects of one action, conditions of a goal, sights or invariants."""

MAX_TEXT = 2_000
"""Longest template, in characters."""

MAX_TOLD = 200
"""Longest text of which it is kept whether the player has read it, in characters."""

MAX_CEL = 1_000
"""Longest CEL expression, in characters."""

MAX_DRAWS = 4
"""Most draws of a rulebook."""

MAX_SOLUTION = 100
"""Most actions of a solution."""


def _unsaid(value: object) -> bool:
    """Return whether a field says nothing and is left out of what is written: null, but neither false nor an empty text."""
    return value is None


class EffectOp(StrEnum):
    """Operation of an effect at its path."""

    SET = "set"
    """Put `value` there. The last key may be new; everything before it must exist."""
    ADD = "add"
    """Add `value` to what is there: to a list as its last item, to a number as a sum, to a text at its end."""
    REMOVE = "remove"
    """With `value`: take the first item equal to it out of the list there. Without: delete the key there."""
    MOVE = "move"
    """With `value`: take it out of the list at `from_path` and put it at the end of the list at `path`.
    Without: what is at `from_path` is deleted there and put at `path`."""


class Effect(Value):
    """One change of the state."""

    op: EffectOp
    path: str = Field(max_length=MAX_TEXT)
    """JSON Pointer whose steps may hold `{item}` and `{state:/...}`; values are escaped as the pointer needs it. Where a
    `value` is taken out, one whole step may be `{any}`: out of whichever list there holds it; `remove` out of all."""
    value: JsonValue = Field(default=None, exclude_if=_unsaid)
    """Value to set, add, remove or move; every text in it is a template, and a text that is one `{state:/...}` and
    nothing else becomes the JSON value there, and `{"cel": "..."}` the value of that expression. Null means none for
    remove and move."""
    from_path: str | None = Field(default=None, max_length=MAX_TEXT, exclude_if=_unsaid)
    """JSON Pointer to what moves, with `{any}` as in `path`; for `move` alone."""
    when: str | None = Field(default=None, max_length=MAX_CEL, exclude_if=_unsaid)
    """CEL over `state` (as the effects before this one left it), `before` (the state before the action) and the
    parameters; the effect is left out unless it holds. `else` means that the one before it was left out."""
    each: str | None = Field(default=None, max_length=MAX_TEXT, exclude_if=_unsaid)
    """JSON Pointer to an object or a list: the effect is then made once for each key of the object, each text of the
    list, or each index of a list that holds anything but texts. Its other parts call that text `each`."""


class Requirement(Value):
    """Something that must hold before an action; the first one that does not decides the mistake."""

    condition: str = Field(max_length=MAX_CEL)
    """CEL over `state`, `visible` and the action's parameters."""
    kind: MistakeKind = MistakeKind.LOGIC
    """Kind of the mistake if it does not hold."""
    hint: str = Field(default="Nothing happens.", max_length=MAX_TEXT)
    """Template of the message to the player in that case, filled from the state before the action."""
    effects: tuple[Effect, ...] = Field(default=(), max_length=MAX_PARTS, exclude_if=absent)
    """Changes of the state where it refuses the action: the price of the mistake. They cannot reach the goal."""


class ConditionalText(Value):
    """One of several observations of an action: the first whose condition holds is the one."""

    when: str | None = Field(default=None, max_length=MAX_CEL, exclude_if=_unsaid)
    """CEL over `state` after the effects, `before` them, `visible` and the parameters; the last of several has none."""
    text: str = Field(default="", max_length=MAX_TEXT)
    """Template, filled from the state after the effects."""


class Sight(Value):
    """Somewhere that the player sees things: names that are visible in a state. What no sight shows is hidden."""

    path: str = Field(max_length=MAX_TEXT)
    """JSON Pointer to what is seen: a list shows its texts, an object its keys, a text itself; anything else, and what
    is not there, shows nothing. Its steps may hold `{state:/...}`, and `{each}` where `each` is given. Without a slash at
    its beginning it is a name itself: one that an action can be given, or `{each}`."""
    each: str | None = Field(default=None, max_length=MAX_TEXT, exclude_if=_unsaid)
    """JSON Pointer to a list of texts or an object: `path` and `when` are then read once for each of its texts or keys,
    which is called `each` there."""
    when: str | None = Field(default=None, max_length=MAX_CEL, exclude_if=_unsaid)
    """CEL over `state`, and `each` where it is given; nothing is seen here unless it holds."""


class Invariant(Value):
    """Something that must hold after every step; an action that would break it is a fault of the rulebook and changes
    nothing.
    """

    condition: str = Field(max_length=MAX_CEL)
    """CEL over `state`."""
    sentence: str = Field(default="", max_length=MAX_TEXT)
    """The same in words."""


class Knowledge(Value):
    """Record of what the player has read, which the program keeps in the state for conditions to ask."""

    path: str = Field(max_length=MAX_TEXT)
    """JSON Pointer to a list of texts in the state."""
    texts: tuple[Annotated[str, Field(min_length=1, max_length=MAX_TOLD)], ...] = Field(
        min_length=1, max_length=MAX_PARTS
    )
    """Names or other texts: each is added to the list when the observation of an accepted action mentions it, as whole
    words and in any case, unless that action was given it as a value."""


class Draw(Value):
    """A value of the environment that a seed draws when the world is played as an environment."""

    path: str = Field(max_length=MAX_TEXT)
    """JSON Pointer to a value that the environment holds."""
    values: tuple[JsonValue, ...] = Field(min_length=2, max_length=16)
    """Values that it can have, among them the one that the environment holds."""
    shares: tuple[Annotated[float, Field(ge=0, allow_inf_nan=False)], ...] = Field(default=(), exclude_if=absent)
    """Relative frequency of each value; none means that all are equally likely."""


class Rulebook(Value):
    """Executable part of a grounded script, beside the laws of its actions (`ActionSpec.requires`, `effects`, `reveals`)."""

    goal: tuple[str, ...] = Field(min_length=1, max_length=MAX_PARTS)
    """CEL over `state`, one condition for each of the script's completion conditions, in their order. The goal is
    reached when all hold; the share that holds is the progress."""
    sights: tuple[Sight, ...] = Field(default=(), max_length=MAX_PARTS)
    """Places that the player can see; none means that nothing is hidden and `visible` holds every name that an action can be
    given."""
    invariants: tuple[Invariant, ...] = Field(default=(), max_length=MAX_PARTS)
    each_step: tuple[Effect, ...] = Field(default=(), max_length=MAX_PARTS, exclude_if=absent)
    """Effects of every accepted action, after its own: time that passes, a kettle that comes to the boil."""
    knows: Knowledge | None = Field(default=None, exclude_if=_unsaid)
    """Record of what the player has read; none is kept by default."""
    draws: tuple[Draw, ...] = Field(default=(), max_length=MAX_DRAWS, exclude_if=absent)
    """Chance: parts of the environment that `GroundedEnvironment.reset` draws by its seed. The goal must be reachable
    from all that can be drawn. Runs play the environment as it is written."""
    solution: tuple[str, ...] = Field(default=(), max_length=MAX_SOLUTION)
    """Action texts by which its author reaches the goal from the beginning. Never shown to the player."""
