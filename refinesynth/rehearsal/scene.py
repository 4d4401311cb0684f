"""Scenes: worlds of a family drawn from a label, with script, rulebook and words.

A scene is a function of its label (`household-48213`), which is part of the script's introduction, so every role can
reconstruct it. The label `household-48213g` is the same world with a rulebook; its introduction may hide places.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from hashlib import blake2b
from itertools import product
from random import Random
from typing import NamedTuple

from pydantic import JsonValue

from refinesynth.rehearsal.families import CLASSIC, DRAWING, FAMILIES, Family, Plot, Verb
from refinesynth.trajectory import ActionSpec, Rulebook, Script
from refinesynth.world import World, plan

SCENES = 100_000_000
"""Number of scenes per family, from 0."""

GROUNDED = "g"
"""Suffix of the label of a scene with a rulebook."""

_LABEL = re.compile(rf"\bScene ({'|'.join(map(re.escape, FAMILIES))})-((?:0|[1-9][0-9]{{0,7}}){GROUNDED}?)\.")

_GOALS = ("{goal}.", "please {goal}.", "your task is to {goal}.", "you have to {goal}.")

_HIDDEN_PLACES = "Nobody has told you where things are."

_PATTERNS = (
    (r"^\s*{}\s*$", r"\s+", "(.+?)"),
    (r"^{}$", " ", "(.+?)"),
    (r"(?i)^\s*{}\s*$", r"\s+", "(?P<{}>.+?)"),
    (r"(?i){}", r"\s+", "(.+?)"),
)
"""Styles of patterns: whole, white space, group."""


@dataclass(frozen=True, eq=False)
class Scene:
    """One world with all its texts. Compared by identity."""

    label: str
    family: Family
    plot: Plot
    script: Script
    """Script for an imagined world, without a persona."""
    executed: Script
    """The same with its laws."""
    world: World
    verbs: Mapping[str, Verb]
    """Action template to its verb, in the family's order."""
    useful: tuple[str, ...]
    """Action texts that can lead to the goal."""

    @property
    def hidden(self) -> bool:
        """True if no text tells where things are."""
        return _hidden(self.label)

    @cached_property
    def revealing_actions(self) -> tuple[str, ...]:
        """Action texts that show the player other places."""
        return tuple(self._filled(action for action in self.script.actions if self.verbs[action.name].seeks))

    @cached_property
    def grounded(self) -> Script:
        """Script for grounded play, with its own label."""
        return self.executed if is_grounded(self.label) else draw_scene(f"{self.label}{GROUNDED}").executed

    def all_actions(self) -> Iterator[str]:
        yield from self._filled(self.script.actions)

    def _filled(self, actions: Iterable[ActionSpec]) -> Iterator[str]:
        for action in actions:
            for values in product(*action.parameters.values()):
                yield action.fill(dict(zip(action.parameters, values, strict=True)))


def label_in(text: str) -> str | None:
    """Return the first scene label in a text, if any."""
    match = _LABEL.search(text)
    return f"{match[1]}-{match[2]}" if match else None


def label_of(script: JsonValue) -> str | None:
    """Return the scene label of a script as JSON, or a part of one."""
    introduction = script.get("introduction") if isinstance(script, dict) else None
    return label_in(introduction) if isinstance(introduction, str) else None


def random_label(rng: Random, families: Sequence[str] = CLASSIC) -> str:
    return f"{rng.choice(families)}-{rng.randrange(SCENES)}"


def is_grounded(label: str) -> bool:
    return label.endswith(GROUNDED)


def draw_scene(label: str) -> Scene:
    family, plot, rng = _draw_plot(label)
    style = rng.choice(_PATTERNS)
    verbs = {rng.choice(verb.wordings): verb for verb in family.verbs}
    actions = tuple(_action(rng, template, verb, plot, style=style) for template, verb in verbs.items())
    goal = rng.choice(_GOALS).format(goal=plot.goal)
    rulebook = Rulebook(
        goal=tuple(condition.cel for condition in plot.conditions),
        sights=family.sights if is_grounded(label) else (),
        invariants=family.invariants if is_grounded(label) else (),
    )
    script = Script(
        introduction=f"Scene {label}. {plot.introduction}",
        environment=plot.state,
        goal=f"{goal[0].upper()}{goal[1:]}",
        completion_conditions=tuple(condition.sentence for condition in plot.conditions),
        actions=tuple(rng.sample(actions, len(actions))),
        rulebook=rulebook,
    )
    # In the family's order, which determines the order of the search.
    world = World(script.model_copy(update={"actions": actions}))
    by_verb = {verbs[action.name].key: action for action in actions}
    useful = tuple(by_verb[key].fill(values) for key, values in plot.useful)
    whereabouts = plot.whereabouts
    if _hidden(label):
        look_template = next(action.name for action in actions if "{" not in action.name and not action.requires)
        whereabouts = f"{_HIDDEN_PLACES} {world.step(script.environment, look_template).text}"
    if is_grounded(label):
        rulebook = rulebook.model_copy(update={"solution": plan(world, script.environment, candidates=useful) or ()})
    script = script.model_copy(update={"introduction": f"{script.introduction} {whereabouts}", "rulebook": rulebook})
    return Scene(
        label=label,
        family=family,
        plot=plot,
        script=script.imagined(),
        executed=script,
        world=world,
        verbs=verbs,
        useful=useful,
    )


class Outline(NamedTuple):
    """Facts about a scene without a full drawing."""

    features: frozenset[str]
    """Features of a grounded script that the scene has."""
    steps: int
    """Approximate length of its solution."""


def outline(label: str) -> Outline:
    """Return the outline of the scene with this label.

    All worlds have distractors. Those of household, laboratory, panel and search cannot be lost: none is irreversible.
    """
    family, plot, _ = _draw_plot(label)
    preparing_verbs = {verb.key for verb in family.verbs if verb.prepares}
    features = {
        "distractors": True,
        "irreversible": plot.losable,
        "hidden": _hidden(label) and plot.away,
        "preconditions": not preparing_verbs.isdisjoint(key for key, _ in plot.useful),
    }
    return Outline(frozenset(feature for feature, has in features.items() if has), len(plot.useful))


def _draw_plot(label: str) -> tuple[Family, Plot, Random]:
    number = label.removesuffix(GROUNDED)
    rng = _generator(number)
    family = FAMILIES[number.rpartition("-")[0]]
    return family, DRAWING[family.name](family, rng), rng


def _hidden(label: str) -> bool:
    """Return whether no text tells where things are, which is true for about half of the grounded scenes."""
    return is_grounded(label) and _generator(f"{label} hidden").random() < 0.5  # noqa: PLR2004 - heads or tails


def _generator(name: str) -> Random:
    return Random(int.from_bytes(blake2b(name.encode(), digest_size=8).digest()))


def _action(rng: Random, template: str, verb: Verb, plot: Plot, *, style: tuple[str, str, str]) -> ActionSpec:
    names = ActionSpec(name=template, pattern=template).placeholders
    return ActionSpec(
        name=template,
        description=rng.choice(verb.about),
        pattern=_pattern(template, style),
        parameters={name: plot.values[name] for name in names},
        requires=verb.requires,
        effects=verb.effects,
        reveals=f"{rng.choice(verb.done)} {verb.shows}".rstrip(),
    )


def _pattern(template: str, style: tuple[str, str, str]) -> str:
    line, space, group = style
    pieces = re.split(r"(\{[^{}]*\})", template)
    parts = [
        group.format(piece[1:-1]) if piece.startswith("{") else space.join(map(re.escape, piece.split(" ")))
        for piece in pieces
    ]
    return line.replace("{}", "".join(parts))
