"""Rule against information leaks: a player must not know the place of something that it never saw or heard of."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import islice, permutations, product

from pydantic import JsonValue

from refinesynth.actions.wording import quoted
from refinesynth.rules.name_search import Names, names_of
from refinesynth.rules.rule import BuiltInRule, Violation
from refinesynth.rules.world_replay import RuledStep, replay_draft
from refinesynth.trajectory import Draft, DungeonMasterTurn
from refinesynth.world import World
from refinesynth.world.hidden_places import HiddenNames, hidden_names

_MAX_PAIRED = 16
"""Maximum number of names in a text that count as named together; in a longer list each counts as known."""

_MAX_COMPARED = 64
"""Maximum number of other places that are tried for an action."""

_EXPLORES = re.compile(
    r"(?:look|search|examine|inspect|check|find|seek|explore|scan|peek|peer|feel|investigate|browse|survey|open|go|walk|move|enter)\b",
    re.IGNORECASE,
)
"""First words of actions that search; a search may succeed by luck."""


class KnowsOnlyWhatWasSeen(BuiltInRule):
    """No action of a grounded draft reaches for a hidden thing at its place before the player could know it; else code
    `knows_hidden`.

    A listed value does not reveal its place. An action is refused if all of these hold:

    - it names a thing, which is itself no place, and a place, and by the rulebook's sights the thing is hidden there at
      the beginning;
    - the thing was not visible before, and no introduction, opening or accepted answer named it. The goal, the actions'
      descriptions, refusals and transient failures count if they name thing and place together;
    - no earlier action named the place: a player that went there, or tried to open it, may try to take things from it;
    - it matters to the rulebook: part of a requirement with both names holds there, and does not hold for the same
      thing at another place that no action has named. This excludes a last remaining choice and conditions that hold
      everywhere;
    - it is no search: its template does not begin with a word such as `search`, `open` or `go`, and if it was accepted,
      it changed something.

    Accepted and refused actions are treated alike. Hidden places are those of the initial state; without sights,
    nothing is hidden. A lucky first attempt at the right place is accepted.
    """

    def __call__(self, draft: Draft, /) -> Iterator[Violation]:
        replayed = replay_draft(draft)
        if replayed is None or not (hidden := hidden_names(replayed.world)).places_of:
            return
        known = _Knowledge(names_of(replayed.world), set(replayed.visible))
        known.add_facts(draft.script.introduction)
        opening = draft.turns[0] if draft.turns else None
        if isinstance(opening, DungeonMasterTurn):
            known.add_facts(opening.observation)
        for text in (draft.script.goal, *(action.description for action in draft.script.actions)):
            known.add_pairs(text)
        for step in replayed.exchanges:
            if (leak := _find_leak(replayed.world, hidden, known, step)) is not None:
                thing, place = leak
                message = (
                    f"{quoted(step.action)} reaches for {quoted(thing)} at {quoted(place)}, but nothing that was seen or told says that it "
                    "is there. Look for it first: go where it could be, open and search; take it once it was seen."
                )
                yield self.violation(step.turn, "knows_hidden", message)
            known.named_values.update(step.ruling.values.values())
            known.seen.update(step.ruling.visible)
            record = known.add_pairs if step.answer.flagged or step.answer.transient else known.add_facts
            record(step.answer.observation)


@dataclass
class _Knowledge:
    """Knowledge that a player can have of the places of things, and the values of its actions."""

    names: Names
    seen: set[str]
    stated: set[str] = field(default_factory=set[str])
    """Names mentioned in the introduction, the opening, an accepted answer or a long list, as words."""
    paired: set[tuple[str, str]] = field(default_factory=set[tuple[str, str]])
    """Names mentioned together, as words."""
    named_values: set[str] = field(default_factory=set[str])
    """Values named by an action."""

    def add_facts(self, text: str) -> None:
        """Add a description of the world."""
        self.stated.update(self.names.mentions_in(text))

    def add_pairs(self, text: str) -> None:
        """Add a text that may name things without their places."""
        names = self.names.mentions_in(text)
        if len(names) > _MAX_PAIRED:
            self.stated.update(names)
        else:
            self.paired.update(product(names, names))

    def can_know(self, thing: str, place: str) -> bool:
        """Return whether the player can know that a thing is at this place. Names that no text can be searched for
        count as known.
        """
        words = self.names.mentions_in(thing)
        if thing in self.seen or not words or not self.stated.isdisjoint(words):
            return True
        return not self.paired.isdisjoint(product(words, self.names.mentions_in(place)))


def _find_leak(world: World, hidden: HiddenNames, knowledge: _Knowledge, step: RuledStep) -> tuple[str, str] | None:
    """Return the thing and the place that an action must not know, if any."""
    ruling = step.ruling
    if ruling.action is None or _EXPLORES.match(ruling.action) or (ruling.kind is None and not step.changes_state):
        return None
    for (thing_name, thing), (place_name, place) in permutations(ruling.values.items(), 2):
        if (
            place in hidden.places_of.get(thing, ())
            and thing not in hidden.places
            and place not in knowledge.named_values
            and not knowledge.can_know(thing, place)
            and _needs_place(world, ruling.action, ruling.values, (thing_name, place_name), knowledge.named_values)
        ):
            return thing, place
    return None


def _needs_place(world: World, action: str, values: Mapping[str, str], pair: tuple[str, str], named: set[str]) -> bool:
    """Return whether a requirement of an action depends on thing and place: it holds for them, and not for the thing at
    some other place.
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
        for place in islice(places, _MAX_COMPARED)
        for part in parts
    )
