"""Knowledge that a player cannot have: where something is that was never visible and never mentioned."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass as plain_dataclass
from dataclasses import field
from itertools import islice

from pydantic import JsonValue
from pydantic.dataclasses import dataclass

from refinesynth.actions.wording import quoted
from refinesynth.rules.name_search import Names, names_of
from refinesynth.rules.rule import FIELDS, BaseRule, Violation
from refinesynth.rules.world_replay import Answered, ReplayedDraft, world_played
from refinesynth.trajectory import Draft, DungeonMasterTurn, Script
from refinesynth.world import World
from refinesynth.world.hidden_places import HiddenNames, hidden_names

_PAIRED = 16
"""Maximum of names in one text that count as named together; with more, each counts as known."""

_COMPARED = 64
"""Most other places for which an action is tried."""

_EXPLORES = re.compile(
    r"(?:look|search|examine|inspect|check|find|seek|explore|scan|peek|peer|feel|investigate|browse|survey|open|go|walk|move|enter)\b",
    re.IGNORECASE,
)
"""Beginnings of templates of actions that look for something; such an action may be lucky."""


@dataclass(frozen=True, config=FIELDS)
class KnowsOnlyWhatWasSeen(BaseRule, built_in=True):
    """No action of a grounded draft reaches for something hidden at its place before the player could know it; else
    `knows_hidden`.

    A listed value does not reveal its place. An action knows too much if all of these hold:

    - it names a thing and a place, and by the sights of the rulebook the thing is hidden there from the beginning on;
    - the thing was never visible, and no introduction, opening or accepted answer before has named it. The goal, the
      actions' descriptions and refusals count where they name thing and place together;
    - no action before has named the place: a player that went there, or tried to open it, may try to take from it what
      it could hold;
    - it matters to the rulebook: a part of a requirement that asks for both holds there, and not for the same thing at
      some other place that no action has named either. So it was no last choice, and a text that fits everywhere shows
      no knowledge;
    - it does not explore: its template does not begin with a word such as `search`, `open` or `go`, and if it was
      carried out, it changed something.

    Whether it is carried out or refused does not matter. What is hidden is asked of the world as it is at the
    beginning; where there are no sights, nothing is. A lucky first try at the right place is no fault.
    """

    def __call__(self, draft: Draft, /) -> Iterator[Violation]:
        played = world_played(draft)
        if played is None or not (hidden := hidden_names(played.world)).where:
            return
        known = _Known.at_the_beginning(draft, played)
        for step in played.answered:
            if (found := _knows(played.world, hidden, known, step)) is not None:
                thing, place = found
                message = (
                    f"{quoted(step.action)} reaches for {quoted(thing)} at {quoted(place)}, but nothing that was seen or told says that it "
                    "is there. Look for it first: go where it could be, open and search; take it once it was seen."
                )
                yield self.violation(step.at, "knows_hidden", message)
            known.add(step)


@plain_dataclass
class _Known:
    """Places of things that a player can know, and what it has named."""

    names: Names
    seen: set[str]
    stated: set[str]
    """Words of the names that were named where nothing was refused."""
    paired: set[tuple[str, str]]
    """Words of names that were named together."""
    named: set[str] = field(default_factory=set[str])
    """Values that an action has named."""

    @classmethod
    def at_the_beginning(cls, draft: Draft, played: ReplayedDraft) -> "_Known":
        """Before the first action."""
        known = cls(names_of(played.world), set(played.visible), set(), set())
        known.state(draft.script.introduction)
        opening = draft.turns[0] if draft.turns else None
        if isinstance(opening, DungeonMasterTurn):
            known.state(opening.observation)
        for text in _asked(draft.script):
            known.pair(text)
        return known

    def state(self, text: str) -> None:
        """An account of the world."""
        self.stated.update(self.names.known_from(text))

    def pair(self, text: str) -> None:
        """A text that may name things without saying where they are."""
        found = self.names.known_from(text)
        if len(found) > _PAIRED:
            self.stated.update(found)
        else:
            self.paired.update((one, other) for one in found for other in found)

    def add(self, step: Answered) -> None:
        """One exchange later."""
        self.named.update(step.ruling.values.values())
        self.seen.update(step.visible)
        record = self.pair if step.answer.flagged or step.answer.transient else self.state
        record(step.answer.observation)

    def of(self, thing: str, places: frozenset[str]) -> bool:
        """Return whether the player can know that a thing is at these places. What no text can be searched for counts as
        known.
        """
        words = self.names.known_from(thing)
        if thing in self.seen or not words or not self.stated.isdisjoint(words):
            return True
        return any((one, other) in self.paired for one in words for p in places for other in self.names.known_from(p))


def _asked(script: Script) -> Iterator[str]:
    yield script.goal
    yield from (action.description for action in script.actions)


def _knows(world: World, hidden: HiddenNames, known: _Known, step: Answered) -> tuple[str, str] | None:
    """The thing and the place of which an action knows too much."""
    ruling = step.ruling
    if ruling.action is None or _EXPLORES.match(ruling.action) or (ruling.kind is None and not step.changes):
        return None
    for name, thing in ruling.values.items():
        if thing not in hidden.where or thing in hidden.places:
            continue
        for other, place in ruling.values.items():
            if (
                other != name
                and place in hidden.where[thing]
                and place not in known.named
                and not known.of(thing, frozenset((place,)))
                and _matters(world, ruling.action, ruling.values, (name, other), known.named)
            ):
                return thing, place
    return None


def _matters(world: World, action: str, values: Mapping[str, str], pair: tuple[str, str], named: set[str]) -> bool:
    """Return whether a requirement of an action asks for thing and place, holds for these, and not for the thing at some other
    place.
    """
    state: JsonValue = world.script.environment
    taken = next(taken for taken in world.actions if taken.spec.name == action)
    _, other = pair
    parts = [
        part
        for requirement in taken.requires
        for part in requirement.condition.conjuncts
        if set(pair) <= set(part.analysis.parameters) and part.answer(state, values) is True
    ]
    places = (place for place in taken.spec.parameters.get(other, ()) if place != values[other] and place not in named)
    return any(
        part.answer(state, {**values, other: place}) is not True
        for place in islice(places, _COMPARED)
        for part in parts
    )
