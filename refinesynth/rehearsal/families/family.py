"""What a family of worlds is: verbs, and a way to draw a plot in which they are used.

A family says everything as data on the executor's terms; words around it (how an action is written, how its outcome is
told) come in several forms, of which each scene draws its own.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib.resources import files
from random import Random
from typing import Any

from pydantic import JsonValue

from refinesynth.trajectory import Effect, EffectOp, Invariant, MistakeKind, Requirement, Sight
from refinesynth.trajectory.value import Value

State = Mapping[str, Any]
"""A world's state: JSON, never changed in place."""

Act = tuple[str, Mapping[str, str]]
"""Something to do: a verb's key and the value of each placeholder."""


class Verb(Value):
    """One thing that a player can do in a family's worlds, before a scene has chosen how it is written."""

    key: str
    """The family's own name for it."""
    wordings: tuple[str, ...]
    """Action templates that mean this; a scene takes one, and the others are what a player might write by mistake."""
    about: tuple[str, ...]
    """Descriptions; a scene takes one."""
    doing: str
    """The act as an infinitive for thoughts, with the same placeholders: `take the {item} from the {place}`."""
    done: tuple[str, ...]
    """Observations of success; a scene takes one."""
    shows: str = ""
    """What the player perceives of it where the world is executed, as a template; it follows what `done` says."""
    prepares: bool = False
    """Whether it is of use only because others need it first, or needs more than one thing done first."""
    requires: tuple[Requirement, ...] = ()
    """What must hold, in the order in which it is asked; of kind place or logic."""
    effects: tuple[Effect, ...] = ()
    also: tuple[Effect, ...] = ()
    """What it changes of what only an executed world has; this comes before the other effects."""


class Laws(Value):
    """What a family's JSON file says: everything about its worlds but how one is drawn."""

    name: str
    refusals: tuple[str, ...]
    """How an observation of a mistake begins; by this it is known for one."""
    words: Mapping[str, tuple[str, ...]]
    """What things are named, by kind; a drawn world takes some of each."""
    verbs: tuple[Verb, ...]
    whereabouts: str
    """How the sentence of an introduction begins that says where everything is; it is the last one."""
    sights: tuple[Sight, ...]
    invariants: tuple[Invariant, ...]


def read_laws(name: str) -> Laws:
    """The laws of the family with this name."""
    return Laws.model_validate_json((files("refinesynth.rehearsal.families") / f"{name}.json").read_bytes())


@dataclass(frozen=True)
class Condition:
    """Something that must hold in the end."""

    cel: str
    """CEL over `state`."""
    sentence: str
    """The same in words."""


@dataclass(frozen=True)
class Plot:
    """One drawn world: where everything is and what is to be achieved."""

    introduction: str
    """What the player is told about the place, where things are included."""
    state: dict[str, Any]
    goal: str
    """What is to be achieved, as an infinitive: `put the washed blue mug in the pantry`."""
    conditions: tuple[Condition, ...]
    values: Mapping[str, tuple[str, ...]]
    """Placeholder to the values that exist in this world."""
    absent: Mapping[str, tuple[str, ...]]
    """Placeholder to values that somebody might expect here, but that do not exist."""
    useful: tuple[Act, ...]
    """Acts that can lead to the goal; the search for a plan looks at these alone."""


@dataclass(frozen=True)
class Family:
    """A kind of world: its verbs, how a plot is drawn, and what can be seen from where the player is."""

    name: str
    verbs: tuple[Verb, ...]
    draw: Callable[[Random], Plot]
    see: Callable[[State, str, Mapping[str, str]], str]
    """What the player perceives in a state right after an accepted act (verb key, values); empty if nothing new."""
    refusals: tuple[str, ...]
    """How an observation of a mistake begins; by this it is known for one."""


def place(condition: str, hint: str) -> Requirement:
    """A requirement on where the player is."""
    return Requirement(condition=condition, kind=MistakeKind.PLACE, hint=hint)


def logic(condition: str, hint: str) -> Requirement:
    """A requirement on the state of things."""
    return Requirement(condition=condition, kind=MistakeKind.LOGIC, hint=hint)


def sets(path: str, value: JsonValue) -> Effect:
    """The effect that this value is there."""
    return Effect(op=EffectOp.SET, path=path, value=value)


def quoted(name: str) -> str:
    """A name as a CEL string literal."""
    return '"' + name.replace("\\", "\\\\").replace('"', '\\"') + '"'


def in_either(name: str, one: str, other: str, test: str) -> str:
    """CEL: what `test` says (such as `.clean`) of the thing with this name, which is in the one object or in the other."""
    key = quoted(name)
    return f"({key} in {one} ? {one}[{key}]{test} : {key} in {other} && {other}[{key}]{test})"


def listed(names: list[str] | tuple[str, ...], nothing: str = "nothing") -> str:
    """Names as an English list: `a, b and c`."""
    if not names:
        return nothing
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"


def act(key: str, /, **values: str) -> Act:
    """The verb with this key, done to these values."""
    return key, values


def chance(rng: Random, rate: float) -> bool:
    """Heads or tails, heads at this rate."""
    return rng.random() < rate


def shuffled(rng: Random, names: Sequence[str]) -> list[str]:
    """The same names in another order."""
    return rng.sample(names, len(names))
