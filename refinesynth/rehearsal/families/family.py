"""Families of worlds as data for the executor, and plots, which are drawn worlds.

A family's JSON file holds verbs with their laws, sights, names and tasks; a function draws the world. Texts have
several wordings, of which each scene uses one.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from importlib.resources import files
from random import Random
from typing import Annotated, Any

from pydantic import Field

from refinesynth.trajectory import Effect, Invariant, Requirement, Sight
from refinesynth.trajectory.value import Value
from refinesynth.world.text_template import enumerated

Act = tuple[str, Mapping[str, str]]
"""An action of a plot: a verb's key and the value of each placeholder."""

Word = Annotated[str, Field(pattern=r'^[^"\\{}]+$')]
"""A name that is valid in templates, paths and CEL."""


class Verb(Value):
    """An action of a family's worlds."""

    key: str
    wordings: tuple[str, ...]
    """Action templates; a scene uses one, the others are typical mistakes."""
    about: tuple[str, ...]
    """Descriptions; a scene uses one."""
    doing: str
    """Infinitive for thoughts, with the same placeholders: `take the {item} from the {place}`."""
    done: tuple[str, ...]
    """Observations of success; a scene uses one."""
    shows: str = ""
    """Template of further perceptions."""
    prepares: bool = False
    """True if it only prepares other actions, or needs several preparations."""
    seeks: bool = False
    """True if it shows the player other places."""
    requires: tuple[Requirement, ...] = ()
    """Preconditions in order, of kind place or logic."""
    effects: tuple[Effect, ...] = ()


class Condition(Value):
    cel: str
    sentence: str


class Part(Value):
    """A part of a task; all texts are templates with the drawn names."""

    phrase: str = ""
    """Part of the goal, as an infinitive."""
    conditions: tuple[Condition, ...] = ()
    acts: tuple[Act, ...] = ()
    """Actions of this part, including movements."""


@dataclass(frozen=True)
class Plot:
    introduction: str
    whereabouts: str
    """Sentence with the places of all things."""
    state: dict[str, Any]
    goal: str
    """Goal as an infinitive: `put the washed blue mug in the pantry`."""
    conditions: tuple[Condition, ...]
    values: Mapping[str, tuple[str, ...]]
    """Placeholder to its existing values."""
    absent: Mapping[str, tuple[str, ...]]
    """Placeholder to plausible values that do not exist in this world."""
    useful: tuple[Act, ...]
    """Actions that can lead to the goal, among which the planner searches."""
    losable: bool = False
    """True if a possible action is known to make the goal unreachable."""
    away: bool = True
    """True if something that the goal needs is invisible at the beginning."""


class Family(Value):
    name: str
    refusals: tuple[str, ...]
    """Beginnings of observations of mistakes, by which the player recognises them."""
    words: Mapping[str, tuple[Word, ...]]
    """Names of things by kind; a world uses some of each."""
    absent: Mapping[str, tuple[str, ...]]
    """Placeholder to the kinds of plausible values."""
    introduction: str
    whereabouts: str
    """Template of the sentence with all places; omitted in hidden worlds."""
    tasks: tuple[tuple[str, ...], ...]
    """Tasks as names of parts; a world has one."""
    parts: Mapping[str, Part]
    verbs: tuple[Verb, ...]
    sights: tuple[Sight, ...] = ()
    invariants: tuple[Invariant, ...] = ()

    def plot(
        self,
        state: dict[str, Any],
        *,
        names: Mapping[str, str],
        parts: Iterable[str],
        values: Mapping[str, tuple[str, ...]],
        acts: Iterable[Act] = (),
        losable: bool = False,
        away: bool = True,
    ) -> Plot:
        """Return a world with these parts; `names` fill the family's templates, `acts` are useful in addition to those
        of the parts.
        """
        chosen = [self.parts[part] for part in parts]
        useful = (*acts, *(_filled(act, names) for part in chosen for act in part.acts))
        return Plot(
            introduction=self.introduction.format_map(names),
            whereabouts=self.whereabouts.format_map(names),
            state=state,
            goal=enumerated(part.phrase.format_map(names) for part in chosen if part.phrase),
            conditions=tuple(
                Condition(cel=condition.cel.format_map(names), sentence=condition.sentence.format_map(names))
                for part in chosen
                for condition in part.conditions
            ),
            values=values,
            absent={
                name: tuple(word for kind in kinds for word in self.words[kind] if word not in values[name])
                for name, kinds in self.absent.items()
            },
            useful=tuple(act for index, act in enumerate(useful) if act not in useful[:index]),
            losable=losable,
            away=away,
        )


def read_family(name: str) -> Family:
    return Family.model_validate_json((files("refinesynth.rehearsal.families") / f"{name}.json").read_bytes())


def _filled(act: Act, names: Mapping[str, str]) -> Act:
    key, values = act
    return key.format_map(names), {placeholder: template.format_map(names) for placeholder, template in values.items()}


STEPS = range(5, 10)
"""Lengths of solutions that are kept, where a world is drawn until it fits."""


def as_keys(names: Iterable[str]) -> dict[str, Any]:
    """Return an object with the names as keys: an unordered set."""
    return {name: {} for name in names}


def chance(rng: Random, rate: float) -> bool:
    return rng.random() < rate


def shuffled(rng: Random, names: Sequence[str]) -> list[str]:
    return rng.sample(names, len(names))
