"""The planner's heuristic: the distance from a state to the goal, estimated backwards, and which actions look helpful.

Each condition that does not hold yet costs what the cheapest action costs that would make it hold: one, and everything
that action's own unmet requirements cost. The cheapest actions together are a relaxed plan, and their number is the
estimate (the FF heuristic of classical planning), made for conditions that one can only ask: whether an action would
make one hold is found out by trying its effects, with its requirements set aside.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

from pydantic import JsonValue

from refinesynth.world.effects import EACH
from refinesynth.world.ground_actions import Fact, Facts, GroundAction, ShownFact, overlap

UNREACHED = 1_000_000
"""Distance of a goal that no actions seem to reach."""

_PARTLY = 3
"""Extra cost of a change that touches a condition and does not yet make it hold."""

_MAX_SIGHTINGS = 64
"""Most places that are thought of where a name could come into view."""

_MAX_PAIRS = 1_000
"""Most pairs of actions that are tried for one condition in one state."""

_SWEEPS = 50
"""Most rounds in which costs are carried from requirements to what needs them."""


Need = Fact | ShownFact
"""Something that holds in a state or does not."""


class HeuristicValue(NamedTuple):
    """A heuristic's estimate of one state."""

    distance: int
    """Actions that the goal seems to need from here; neither a lower nor an upper bound."""
    helpful: tuple[GroundAction, ...]
    """Actions possible now with which the cheapest ways to the goal begin."""


class _Way(NamedTuple):
    """Actions that make a condition hold, the first one first."""

    actions: tuple[GroundAction, ...]
    extra: int = 0
    needs: tuple[Need, ...] = ()
    """Conditions for it, beside those of the actions."""


class _Touches(NamedTuple):
    """Effects of actions on a condition that does not hold."""

    achieve: tuple[GroundAction, ...]
    change: tuple[GroundAction, ...]
    """A value that it reads changes; it still does not hold."""


@dataclass
class Heuristic:
    """Estimates for one goal and one set of actions; remembers what it tried."""

    actions: tuple[GroundAction, ...]
    goal: tuple[Fact, ...]
    facts: Facts
    _touching: dict[Need, tuple[GroundAction, ...]] = field(default_factory=dict[Need, "tuple[GroundAction, ...]"])
    _enabling: dict[GroundAction, tuple[GroundAction, ...]] = field(
        default_factory=dict[GroundAction, "tuple[GroundAction, ...]"]
    )
    _tried: dict[tuple[Need, bytes | None], _Touches] = field(
        default_factory=dict["tuple[Need, bytes | None]", _Touches]
    )

    def aiming(self, goal: tuple[Fact, ...]) -> "Heuristic":
        """The same heuristic for another goal, with all that was tried."""
        return Heuristic(self.actions, goal, self.facts, self._touching, self._enabling, self._tried)

    def evaluate(self, state: JsonValue) -> HeuristicValue:
        """Return how far the goal seems, and what to do next."""
        return _View(self, state).evaluate()

    def ways(self, fact: Need, state: JsonValue) -> Iterator[_Way]:
        """Ways to make a condition hold that does not.

        For a name to be visible: by where it could be seen. Else by one action; else by two, the first of which decides
        where the second one writes; else by changing what it reads.
        """
        sightings = tuple(self._sightings(fact, state))
        if sightings:
            yield from (_Way((), needs=needs) for needs in sightings)
            return
        fixed, moving = self._try(fact, state)
        achieve = (*fixed.achieve, *moving.achieve)
        if achieve:
            yield from (_Way((action,)) for action in achieve)
            return
        pairs = tuple(self._pairs(fact, state))
        yield from (_Way(pair) for pair in pairs)
        if not pairs:
            yield from (_Way((action,), _PARTLY) for action in (*fixed.change, *moving.change))

    def _pairs(self, fact: Need, state: JsonValue) -> Iterator[tuple[GroundAction, GroundAction]]:
        """Two actions that make a condition hold one after the other, the first of which decides where the second one
        writes.
        """
        after: dict[GroundAction, JsonValue] = {}
        tried = 0
        for second in self.touching(fact):
            for first in self.enabling(second):
                if first is second:
                    continue
                if first not in after:
                    after[first] = first.relaxed(state)
                if after[first] is state:
                    continue
                tried += 1
                if tried > _MAX_PAIRS:
                    return
                if fact.holds(second.relaxed(after[first])):
                    yield first, second

    def _sightings(self, fact: Need, state: JsonValue) -> Iterator[tuple[Need, ...]]:
        """All that must hold for a name to be visible, for each of the places where it could be seen.

        Only places where it is already, as far as there are any: then the sight's own conditions are all that is
        needed.
        """
        if not isinstance(fact, Fact) or fact.visibility is None or (name := fact.sought) is None:
            return
        there: list[tuple[Need, ...]] = []
        elsewhere: list[tuple[Need, ...]] = []
        for at, sight in enumerate(fact.visibility.sights):
            readings = ({EACH: name},) if sight.named_by_each else sight.readings(state)
            for values in readings[:_MAX_SIGHTINGS]:
                shown = self.facts.shown(at, sight, values, name)
                needs = (shown, *(self.facts.fact(part, values) for part in sight.asks()))
                (there if shown.holds(state) else elsewhere).append(needs)
        yield from (there or elsewhere)[:_MAX_SIGHTINGS]

    def _try(self, fact: Need, state: JsonValue) -> tuple[_Touches, _Touches]:
        """Return what touching actions do to the condition.

        First those that always write the same, whose outcome is remembered, then those that write where the state says.
        """
        touching = self.touching(fact)
        question = fact.question(state)
        known = self._tried.get((fact, question))
        if known is None:
            known = _outcomes(fact, question, [action for action in touching if not action.lookups], state)
            self._tried[fact, question] = known
        return known, _outcomes(fact, question, [action for action in touching if action.lookups], state)

    def touching(self, fact: Need) -> tuple[GroundAction, ...]:
        """Actions that write what this condition reads."""
        if fact not in self._touching:
            self._touching[fact] = tuple(
                action
                for action in self.actions
                if any(overlap(write, read) for write in action.writes for read in fact.reads)
            )
        return self._touching[fact]

    def enabling(self, action: GroundAction) -> tuple[GroundAction, ...]:
        """Actions that write what decides where this one writes."""
        if action not in self._enabling:
            self._enabling[action] = tuple(
                other
                for other in self.actions
                if any(overlap(write, read) for write in other.writes for read in action.lookups)
            )
        return self._enabling[action]


def _outcomes(fact: Need, question: bytes | None, actions: list[GroundAction], state: JsonValue) -> _Touches:
    achieve: list[GroundAction] = []
    change: list[GroundAction] = []
    for action in actions:
        after = action.relaxed(state)
        if after is state:
            continue
        if fact.holds(after):
            achieve.append(action)
        elif fact.question(after) != question:
            change.append(action)
    return _Touches(tuple(achieve), tuple(change))


class _Link(NamedTuple):
    """A way together with the unmet requirements of its actions."""

    way: _Way
    needs: tuple[Need, ...]


@dataclass
class _View:
    """A heuristic's reasoning about one state."""

    heuristic: Heuristic
    state: JsonValue
    _held: dict[Need, bool] = field(default_factory=dict[Need, bool])
    _links: dict[Need, tuple[_Link, ...]] = field(default_factory=dict[Need, "tuple[_Link, ...]"])
    _costs: dict[Need, int] = field(default_factory=dict[Need, int])

    def evaluate(self) -> HeuristicValue:
        goal = self._unmet(self.heuristic.goal)
        self._explore(goal)
        self._settle()
        if any(self._costs[fact] >= UNREACHED for fact in goal):
            return HeuristicValue(UNREACHED, ())
        chosen: dict[GroundAction, int] = {}
        helpful: dict[GroundAction, None] = {}
        seen = set(goal)
        queue = list(goal)
        for fact in queue:
            links = self._links[fact]
            best = [link for link in links if self._cost(link) == self._costs[fact]]
            for action in best[0].way.actions:
                chosen[action] = max(chosen.get(action, 0), 1 + best[0].way.extra)
            first = (action for link in best for action in link.way.actions[:1])
            helpful.update((action, None) for action in first if not self._unmet(action.requires))
            # All equally cheap ways are followed for what helps, though only the first one counts for the distance.
            following = [need for link in best for need in link.needs if need not in seen]
            seen.update(following)
            queue.extend(dict.fromkeys(following))
        return HeuristicValue(sum(chosen.values()), tuple(helpful))

    def _explore(self, goal: tuple[Need, ...]) -> None:
        queue = list(goal)
        for fact in queue:
            if fact in self._links:
                continue
            ways = self.heuristic.ways(fact, self.state)
            self._links[fact] = tuple(_Link(way, self._unmet(tuple(dict.fromkeys(_all_needs(way))))) for way in ways)
            queue.extend(need for link in self._links[fact] for need in link.needs if need not in self._links)

    def _settle(self) -> None:
        """Carry costs from requirements to what needs them, until none changes."""
        self._costs = dict.fromkeys(self._links, UNREACHED)
        order = tuple(reversed(self._links))
        for _ in range(_SWEEPS):
            changed = False
            for fact in order:
                cost = min((self._cost(link) for link in self._links[fact]), default=UNREACHED)
                if cost < self._costs[fact]:
                    self._costs[fact] = cost
                    changed = True
            if not changed:
                break

    def _cost(self, link: _Link) -> int:
        total = len(link.way.actions) + link.way.extra
        for need in link.needs:
            total += self._costs[need]
        return min(total, UNREACHED)

    def _unmet(self, facts: tuple[Need, ...]) -> tuple[Need, ...]:
        unmet: list[Need] = []
        for fact in facts:
            held = self._held.get(fact)
            if held is None:
                held = self._held[fact] = fact.holds(self.state)
            if not held:
                unmet.append(fact)
        return tuple(unmet)


def _all_needs(way: _Way) -> Iterator[Need]:
    yield from way.needs
    for action in way.actions:
        yield from action.requires
