"""Small worlds of the experiment: a thing is brought to a place. Names and verbs are drawn anew for each, so that whoever
plays has to read.

Everything that a player needs to know is said: where things are in the introduction, what a verb does in its
description, whether a place is shut when one arrives. So a play without mistakes is never refused.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from hashlib import blake2b
from random import Random
from typing import Any

from pydantic import JsonValue

from refinesynth.trajectory import ActionSpec, Effect, EffectOp, Requirement, Rulebook, Script

_ALL = tuple(
    first + second for one in "BDFGKLMNPRST" for other in "AEIOU" for first, second in ((one, other), (other, one))
)
"""Capitals, so that no English word is taken for a name."""


def every_name() -> tuple[str, ...]:
    """All of them, in an order that is always the same."""
    return _ALL


@dataclass(frozen=True)
class Pool:
    """Names that worlds draw from."""

    places: tuple[str, ...]
    items: tuple[str, ...]
    verbs: tuple[tuple[str, ...], ...]
    """Of each verb, in the order of `VERBS`."""

    @property
    def every(self) -> tuple[str, ...]:
        """All names."""
        return (*self.places, *self.items, *(word for words in self.verbs for word in words))


VERBS = ("go", "take", "open", "leave")
_PLACES, _ITEMS = 4, 3
_SHUT = 0.5
"""Share of the targets that are shut."""


def _names(first: int, last: int, first_verb: int, last_verb: int) -> Pool:
    verbs = tuple(_ALL[at + first_verb : at + last_verb] for at in range(32, 64, 8))
    return Pool(_ALL[first:last], _ALL[16 + first : 16 + last], verbs)


EVERY, SEEN, UNSEEN = _names(0, 16, 0, 8), _names(0, 10, 0, 5), _names(10, 16, 5, 8)
"""All names, which the base model knows; those of tuning; and the others, in whose worlds a tuned model shows that it
reads."""

FRESH = Pool(_ALL[64:70], _ALL[70:76], tuple(_ALL[at : at + 3] for at in range(76, 88, 3)))
"""As many others, for models that are tuned on `EVERY`."""

KNOWN = Pool(
    EVERY.places + FRESH.places,
    EVERY.items + FRESH.items,
    tuple(words + more for words, more in zip(EVERY.verbs, FRESH.verbs, strict=True)),
)
"""Names of a base model that is tested with `FRESH`."""


@dataclass(frozen=True)
class Names:
    """What is named how in one world."""

    places: tuple[str, ...]
    items: tuple[str, ...]
    verbs: dict[str, str]
    """`go`, `take`, `open`, `leave` to the word for it here."""
    absent: tuple[str, ...]
    """Names that nothing has here."""


def draw_names(rng: Random, pool: Pool) -> Names:
    """Different names for all things of a world, and for each a name that nothing has."""
    places, items = rng.sample(pool.places, _PLACES), rng.sample(pool.items, _ITEMS)
    absent = [rng.choice([one for one in pool.places if one not in places]) for _ in places]
    absent += [rng.choice([one for one in pool.items if one not in items]) for _ in items]
    verbs = (rng.choice(words) for words in pool.verbs)
    return Names(tuple(places), tuple(items), dict(zip(VERBS, verbs, strict=True)), tuple(absent))


@dataclass(frozen=True)
class Scene:
    """One world and what is to be done in it."""

    script: Script
    names: Names
    start: str
    thing: str
    source: str
    target: str
    where: dict[str, str]
    """Each thing's place at the beginning."""


def scene_of(name: str, pool: Pool = SEEN) -> Scene:
    """The scene with this name, such as `train 17`, its things named from this pool; always the same."""
    rng = Random(int.from_bytes(blake2b(name.encode(), digest_size=8).digest()))
    names = draw_names(rng, pool)
    source, target, start = rng.sample(names.places, 3)
    thing = names.items[0]
    where = {
        item: source if item == thing else rng.choice([at for at in names.places if at != target])
        for item in names.items
    }
    shut = rng.random() < _SHUT
    state: dict[str, Any] = {
        "you": start,
        "shut": {place: place == target and shut for place in names.places},
        "at": where,
        "word": {place: "shut" if place == target and shut else "open" for place in names.places},
    }
    said = ", ".join(f"the {item} at {where[item]}" for item in rng.sample(names.items, len(names.items)))
    script = Script(
        introduction=f"You are at {start}. There is {said}.",
        environment=state,
        goal=f"Bring the {thing} from {source} to {target}.",
        completion_conditions=(f"The {thing} was taken.", f"The {thing} is at {target}."),
        actions=tuple(rng.sample(_actions(names), 4)),
        rulebook=Rulebook(
            goal=(f'state.at["{thing}"] in ["hand", "{target}"]', f'state.at["{thing}"] == "{target}"'),
            solution=tuple(right_way(names, thing, source, target, shut=shut)),
        ),
    )
    return Scene(script, names, start, thing, source, target, where)


def right_way(names: Names, thing: str, source: str, target: str, *, shut: bool) -> list[str]:
    """The actions of a play without mistakes; it never begins at the source or at the target."""
    verbs = names.verbs
    opened = [f"{verbs['open']} {target}"] if shut else []
    return [
        f"{verbs['go']} {source}", f"{verbs['take']} {thing}", f"{verbs['go']} {target}", *opened, f"{verbs['leave']} {thing}"
    ]  # fmt: skip


def _actions(names: Names) -> tuple[ActionSpec, ...]:
    here = needs("state.you == place", "You are not at {place}.", kind="place")
    there = needs("state.at[item] == state.you", "The {item} is at {state:/at/{item}}, not here.", kind="place")
    return (
        _spec(names, "go", "place", "go to a place", "You are at {place}. It is {state:/word/{place}}.").model_copy(
            update={
                "requires": (needs("state.you != place", "You are at {place} already."),),
                "effects": (sets("/you", "{place}"),),
            }
        ),
        _spec(names, "take", "item", "take a thing that is here", "You have the {item}.").model_copy(
            update={
                "requires": (needs('state.at[item] != "hand"', "You have the {item} already."), there),
                "effects": (sets("/at/{item}", "hand"),),
            }
        ),
        _spec(names, "open", "place", "open the place where you are", "{place} is open.").model_copy(
            update={
                "requires": (here, needs("state.shut[place]", "{place} is open already.")),
                "effects": (sets("/shut/{place}", value=False), sets("/word/{place}", "open")),
            }
        ),
        _spec(names, "leave", "item", "leave a thing where you are", "The {item} is at {state:/you}.").model_copy(
            update={
                "requires": (
                    needs('state.at[item] == "hand"', "You do not have the {item}."),
                    needs("!state.shut[state.you]", "{state:/you} is shut."),
                ),
                "effects": (sets("/at/{item}", "{state:/you}"),),
            }
        ),
    )


def _spec(names: Names, key: str, what: str, about: str, seen: str) -> ActionSpec:
    return spec(names.verbs[key], what, about, seen, names.places if what == "place" else names.items)


def spec(word: str, what: str, about: str, seen: str, values: Iterable[str]) -> ActionSpec:
    """An action of a verb's word and one value; what it requires and does is added to it."""
    return ActionSpec(
        name=f"{word} {{{what}}}",
        description=about,
        pattern=f"^{word} (?P<{what}>.+)$",
        parameters={what: tuple(sorted(values))},
        reveals=seen,
    )


def sets(path: str, value: JsonValue) -> Effect:
    """An effect that sets a value."""
    return Effect(op=EffectOp.SET, path=path, value=value)


def needs(condition: str, hint: str, *, kind: str = "logic") -> Requirement:
    """A requirement, and what is said where it does not hold."""
    return Requirement.model_validate({"condition": condition, "hint": hint, "kind": kind})
