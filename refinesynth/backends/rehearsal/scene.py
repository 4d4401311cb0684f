"""One world of a family, drawn from its label: script, rulebook and words.

A scene is a function of its label alone (`household-48213`), and the label stands in the script's introduction. So every role
can bring the same world back from what it is shown.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from hashlib import blake2b
from itertools import product
from random import Random

from refinesynth.backends.rehearsal.families import FAMILIES, Act, Family, Plot, Verb
from refinesynth.trajectory import ActionSpec, Rulebook, Script
from refinesynth.world import World

SCENES = 100_000_000
"""How many scenes a family has: they are numbered from 0."""

_LABEL = re.compile(rf"\bScene ({'|'.join(map(re.escape, FAMILIES))})-(0|[1-9][0-9]{{0,7}})\.")

_GOALS = ("{goal}.", "please {goal}.", "your task is to {goal}.", "you have to {goal}.", "{goal}, and nothing else.")

_PATTERNS = (
    (r"^\s*{}\s*$", r"\s+", "(.+?)"),
    (r"^{}$", " ", "(.+?)"),
    (r"(?i)^\s*{}\s*$", r"\s+", "(?P<{}>.+?)"),
    (r"(?i){}", r"\s+", "(.+?)"),
)
"""How a scene's patterns are written: the whole, white space, a group."""


@dataclass(frozen=True, eq=False)
class Scene:
    """One world with everything that is said about it. Compared by identity."""

    label: str
    family: Family
    plot: Plot
    script: Script
    """As a ScriptWriter without faults writes it, for nobody in particular; its world is to be imagined."""
    grounded: Script
    """The same with its rulebook."""
    world: World
    verbs: Mapping[str, Verb]
    """Action template to what it means, in the family's order."""
    useful: tuple[str, ...]
    """Action texts that can lead to the goal."""

    @property
    def moving(self) -> str:
        """How the actions begin by which the player changes place: those of the family's first verb."""
        return next(iter(self.verbs)).partition("{")[0]

    def everything(self) -> Iterator[str]:
        """Every action with every combination of allowed values."""
        for action in self.script.actions:
            for values in product(*action.parameters.values()):
                yield action.fill(dict(zip(action.parameters, values, strict=True)))


def label_in(text: str) -> str | None:
    """The first scene label in a text (an introduction, a task), if there is one."""
    found = _LABEL.search(text)
    return f"{found[1]}-{found[2]}" if found else None


def random_label(rng: Random) -> str:
    """The label of some scene of some family."""
    return f"{rng.choice(list(FAMILIES))}-{rng.randrange(SCENES)}"


def draw_scene(label: str) -> Scene:
    """The scene with this label, which `label_in` or `random_label` gave."""
    rng = Random(int.from_bytes(blake2b(label.encode(), digest_size=8).digest()))
    family = FAMILIES[label.rpartition("-")[0]]
    plot = family.draw(rng)
    style = rng.choice(_PATTERNS)
    verbs = {rng.choice(verb.wordings): verb for verb in family.verbs}
    actions = tuple(_action(rng, template, verb, plot, style) for template, verb in verbs.items())
    goal = rng.choice(_GOALS).format(goal=plot.goal)
    script = Script(
        introduction=f"Scene {label}. {plot.introduction}",
        environment=plot.state,
        goal=f"{goal[0].upper()}{goal[1:]}",
        completion_conditions=tuple(condition.sentence for condition in plot.conditions),
        actions=tuple(rng.sample(actions, len(actions))),
        rulebook=Rulebook(goal=tuple(condition.cel for condition in plot.conditions)),
    )
    return Scene(
        label=label,
        family=family,
        plot=plot,
        script=script.imagined(),
        grounded=script,
        # In the family's order, in which plans are looked for.
        world=World(script.model_copy(update={"actions": actions})),
        verbs=verbs,
        useful=tuple(written(actions, verbs, act) for act in plot.useful),
    )


def written(actions: tuple[ActionSpec, ...], verbs: Mapping[str, Verb], act: Act) -> str:
    """How an act is written where the actions are these."""
    key, values = act
    return next(action for action in actions if verbs[action.name].key == key).fill(values)


def _action(rng: Random, template: str, verb: Verb, plot: Plot, style: tuple[str, str, str]) -> ActionSpec:
    names = ActionSpec(name=template, pattern=template).placeholders
    return ActionSpec(
        name=template,
        description=rng.choice(verb.about),
        pattern=_pattern(template, style),
        parameters={name: plot.values[name] for name in names},
        requires=verb.requires,
        effects=verb.effects,
        reveals=rng.choice(verb.done),
    )


def _pattern(template: str, style: tuple[str, str, str]) -> str:
    whole, space, group = style
    pieces = re.split(r"(\{[^{}]*\})", template)
    parts = [
        group.format(piece[1:-1]) if piece.startswith("{") else space.join(map(re.escape, piece.split(" ")))
        for piece in pieces
    ]
    return whole.replace("{}", "".join(parts))
