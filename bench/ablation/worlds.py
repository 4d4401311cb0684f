"""Small worlds of the experiment: a thing is brought to a place. Names and verbs are made of syllables, so that whoever
plays in worlds of other names has to have learned to read them.

Everything that a player needs to know is said: where things are in the introduction, what a verb does in its
description, whether a place is shut when one arrives. So a play without mistakes is never refused.
"""

from dataclasses import dataclass
from hashlib import blake2b
from random import Random
from typing import Any

from refinesynth.trajectory import ActionSpec, Effect, EffectOp, Requirement, Rulebook, Script

SYLLABLES = tuple(first + second for first in "BDFGKLMNPRST" for second in "AEIOU")
"""Capitals, so that no English word is taken for them."""

_PLACES, _ITEMS = 4, 3
_SHUT = 0.5
"""Share of the targets that are shut."""
_UNSEEN = 4
"""Every so many names are never seen in training."""


@dataclass(frozen=True)
class Names:
    """What is named how in one world."""

    places: tuple[str, ...]
    items: tuple[str, ...]
    verbs: dict[str, str]
    """`go`, `take`, `open`, `leave` to the word for it here."""
    absent: tuple[str, ...]
    """Names that nothing has here, each nearly one of the others."""


def is_unseen(name: str) -> bool:
    """Whether no world of training has a place, a thing or a verb of this name."""
    return blake2b(name.encode(), digest_size=1).digest()[0] % _UNSEEN == 0


def draw_names(rng: Random, *, unseen: bool) -> Names:
    """Names that no other thing in the world has."""
    found: list[str] = []
    while len(found) < _PLACES + _ITEMS + 4:
        name = "".join(rng.sample(SYLLABLES, 2))
        if is_unseen(name) == unseen and name not in found:
            found.append(name)
    places, items, verbs = found[:_PLACES], found[_PLACES : _PLACES + _ITEMS], found[_PLACES + _ITEMS :]
    absent = [_nearly(rng, name, found, unseen=unseen) for name in (*places, *items)]
    return Names(
        tuple(places), tuple(items), dict(zip(("go", "take", "open", "leave"), verbs, strict=True)), tuple(absent)
    )


def _nearly(rng: Random, name: str, taken: list[str], *, unseen: bool) -> str:
    """Another last syllable."""
    while True:
        other = name[:2] + rng.choice(SYLLABLES)
        if other not in taken and is_unseen(other) == unseen:
            return other


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


def scene_of(name: str, *, unseen: bool = False) -> Scene:
    """The scene with this name, such as `train 17`; always the same."""
    rng = Random(int.from_bytes(blake2b(name.encode(), digest_size=8).digest()))
    names = draw_names(rng, unseen=unseen)
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
        goal=f"Bring the {thing} to {target}.",
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
    def spec(
        key: str, what: str, about: str, requires: tuple[Requirement, ...], effects: tuple[Effect, ...], seen: str
    ) -> ActionSpec:
        verb = names.verbs[key]
        return ActionSpec(
            name=f"{verb} {{{what}}}",
            description=about,
            pattern=f"^{verb} (?P<{what}>.+)$",
            parameters={what: tuple(sorted(names.places if what == "place" else names.items))},
            requires=requires,
            effects=effects,
            reveals=seen,
        )

    return (
        spec("go", "place", "go to a place", (_needs("state.you != place", "You are at {place} already."),),
             (Effect(op=EffectOp.SET, path="/you", value="{place}"),), "You are at {place}. It is {state:/word/{place}}."),
        spec("take", "item", "take a thing that is here", (
             _needs('state.at[item] != "hand"', "You have the {item} already."),
             _needs("state.at[item] == state.you", "The {item} is at {state:/at/{item}}, not here.", kind="place"),
             ), (Effect(op=EffectOp.SET, path="/at/{item}", value="hand"),), "You have the {item}."),
        spec("open", "place", "open the place where you are", (
             _needs("state.you == place", "You are not at {place}.", kind="place"),
             _needs("state.shut[place]", "{place} is open already."),
             ), (Effect(op=EffectOp.SET, path="/shut/{place}", value=False), Effect(op=EffectOp.SET, path="/word/{place}", value="open")), "{place} is open."),
        spec("leave", "item", "leave a thing where you are", (
             _needs('state.at[item] == "hand"', "You do not have the {item}."),
             _needs("!state.shut[state.you]", "{state:/you} is shut."),
             ), (Effect(op=EffectOp.SET, path="/at/{item}", value="{state:/you}"),), "The {item} is at {state:/you}."),
    )  # fmt: skip


def _needs(condition: str, hint: str, *, kind: str = "logic") -> Requirement:
    return Requirement.model_validate({"condition": condition, "hint": hint, "kind": kind})
