"""A family of worlds: data on the executor's terms, and a plot, which is one world drawn from it.

A family's JSON file says everything but how a world is drawn: verbs with their laws, what the player sees, what things
are named, what there is to be done. Words around it (how an action is written, how its outcome is said) come in several
forms, of which each scene takes its own.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from importlib.resources import files
from random import Random
from typing import Annotated, Any

from pydantic import Field

from refinesynth.trajectory import Effect, Invariant, Requirement, Sight
from refinesynth.trajectory.value import Value

Act = tuple[str, Mapping[str, str]]
"""Something to do: a verb's key and the value of each placeholder."""

Word = Annotated[str, Field(pattern=r'^[^"\\{}]+$')]
"""A name that may stand in templates, paths and CEL as it is."""


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
    """What the player perceives besides, as a template."""
    prepares: bool = False
    """Whether it is of use only because others need it first, or needs more than one thing done first."""
    seeks: bool = False
    """Whether it is how one gets to see what is elsewhere."""
    requires: tuple[Requirement, ...] = ()
    """What must hold, in the order in which it is asked; of kind place or logic."""
    effects: tuple[Effect, ...] = ()

    @property
    def observations(self) -> tuple[str, ...]:
        """What the player is shown when it has succeeded; a scene takes one."""
        return tuple(f"{done} {self.shows}".rstrip() for done in self.done)


class Condition(Value):
    """Something that must hold in the end."""

    cel: str
    """CEL over `state`."""
    sentence: str
    """The same in words."""


class Part(Value):
    """Something to be done in a drawn world. All texts are templates over the names that were drawn for it."""

    phrase: str = ""
    """As a part of the goal; an infinitive."""
    conditions: tuple[Condition, ...] = ()
    acts: tuple[Act, ...] = ()
    """What is to be done for it, movements included."""


@dataclass(frozen=True)
class Plot:
    """One drawn world: where everything is and what is to be achieved."""

    introduction: str
    """What the player knows about the place."""
    whereabouts: str
    """Where things are, in one sentence."""
    state: dict[str, Any]
    goal: str
    """What is to be achieved, as an infinitive: `put the washed blue mug in the pantry`."""
    conditions: tuple[Condition, ...]
    values: Mapping[str, tuple[str, ...]]
    """Placeholder to the values that exist in this world."""
    absent: Mapping[str, tuple[str, ...]]
    """Placeholder to values that might be expected here, but that do not exist."""
    useful: tuple[Act, ...]
    """Acts that can lead to the goal; the search for a plan looks at these alone."""
    losable: bool = False
    """Whether an available action can put the goal out of reach for good, as far as that is known without a search."""
    away: bool = True
    """Whether something that the goal needs is out of sight at the beginning."""


class Family(Value):
    """A kind of world."""

    name: str
    refusals: tuple[str, ...]
    """How an observation of a mistake begins; by this it is known for one."""
    words: Mapping[str, tuple[Word, ...]]
    """What things are named, by kind; a drawn world takes some of each."""
    absent: Mapping[str, tuple[str, ...]]
    """Placeholder to the kinds of words that might be expected as its value."""
    introduction: str
    """Template over the names that were drawn."""
    whereabouts: str
    """Template of the sentence that says where things are; hidden worlds do not have it."""
    tasks: tuple[tuple[str, ...], ...]
    """What there is to be done, as names of parts; a drawn world takes one."""
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
        """A world with these parts, whose templates are filled with these names.

        Args:
            state: The world's.
            names: Placeholder in this family's templates to the name that was drawn for it.
            parts: What is to be done, in the order of the goal.
            values: Action placeholder to what exists.
            acts: What is useful beside the acts of the parts.
            losable: As in `Plot`.
            away: As in `Plot`.
        """
        wanted = [self.parts[part] for part in parts]
        useful = (*acts, *(_filled(act, names) for part in wanted for act in part.acts))
        return Plot(
            introduction=self.introduction.format_map(names),
            whereabouts=self.whereabouts.format_map(names),
            state=state,
            goal=listed([part.phrase.format_map(names) for part in wanted if part.phrase]),
            conditions=tuple(
                Condition(cel=one.cel.format_map(names), sentence=one.sentence.format_map(names))
                for part in wanted
                for one in part.conditions
            ),
            values=values,
            absent={
                name: tuple(word for kind in kinds for word in self.words[kind] if word not in values[name])
                for name, kinds in self.absent.items()
            },
            useful=tuple(act for at, act in enumerate(useful) if act not in useful[:at]),
            losable=losable,
            away=away,
        )


def read_family(name: str) -> Family:
    """The family whose file has this name."""
    return Family.model_validate_json((files("refinesynth.rehearsal.families") / f"{name}.json").read_bytes())


def _filled(act: Act, names: Mapping[str, str]) -> Act:
    key, values = act
    return key, {placeholder: template.format_map(names) for placeholder, template in values.items()}


def listed(names: Sequence[str]) -> str:
    """Names as an English list: `a, b and c`."""
    return " and ".join([", ".join(names[:-1]), names[-1]] if len(names) > 1 else names)


def noted(names: Iterable[str]) -> dict[str, Any]:
    """Names as the keys of an object: a set, in which no order tells two states apart that are the same."""
    return {name: {} for name in names}


def chance(rng: Random, rate: float) -> bool:
    """Heads or tails, heads at this rate."""
    return rng.random() < rate


def shuffled(rng: Random, names: Sequence[str]) -> list[str]:
    """The same names in another order."""
    return rng.sample(names, len(names))
