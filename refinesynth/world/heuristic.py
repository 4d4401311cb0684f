"""Heuristic of the planner: an estimated distance from a state to the goal, and helpful actions.

An unmet condition costs as much as the cheapest action that establishes it: one, plus the cost of that action's unmet
requirements. The cheapest actions form a relaxed plan, and their number is the estimate (the FF heuristic of classical
planning). Conditions are opaque here, so the effect of an action on one is found by applying it without its
requirements.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

from pydantic import JsonValue

from refinesynth.world.effects import EACH
from refinesynth.world.ground_actions import Fact, Facts, GroundAction, Place, ShownFact, overlap

UNREACHED = 1_000_000
"""Distance of a goal that seems unreachable."""

_PARTLY = 3
"""Extra cost of an action that changes a condition's inputs and does not establish it yet."""

_MAX_SIGHTINGS = 64
"""Maximum number of examined places at which a name could become visible, and of evaluations of a sight."""

_MAX_PAIRS = 1_000
"""Maximum number of action pairs that are tried for a condition in a state."""

_SWEEPS = 50
"""Maximum number of iterations that propagate costs."""


Need = Fact | ShownFact
"""A fact about a state."""


class HeuristicValue(NamedTuple):
    """Estimate for a state."""

    distance: int
    """Number of actions in the relaxed plan plus extra costs, or `UNREACHED`; neither a lower nor an upper bound."""
    helpful: tuple[GroundAction, ...]
    """Possible actions with which the cheapest ways begin."""


class _Way(NamedTuple):
    """Actions that establish a condition, in order."""

    actions: tuple[GroundAction, ...]
    needs: tuple[Need, ...]
    """Their requirements and further conditions."""
    extra: int = 0


def _way(*actions: GroundAction, extra: int = 0) -> _Way:
    return _Way(actions, tuple(dict.fromkeys(need for action in actions for need in action.requires)), extra)


class _Touches(NamedTuple):
    """Effects of actions on an unmet condition."""

    achieve: tuple[GroundAction, ...]
    change: tuple[GroundAction, ...]
    """Actions that change its inputs without establishing it."""


class Heuristic:
    """Estimates for one goal and one set of actions, with cached results."""

    def __init__(self, actions: tuple[GroundAction, ...], goal: tuple[Fact, ...], facts: Facts) -> None:
        self.goal = goal
        self._actions = actions
        self._facts = facts
        self._writers: dict[tuple[Place, ...], tuple[GroundAction, ...]] = {}
        self._tried: dict[tuple[Need, bytes | None], _Touches] = {}

    def evaluate(self, state: JsonValue) -> HeuristicValue:
        """Return the estimate for a state."""
        return _View(self, state).evaluate()

    def ways(self, fact: Need, state: JsonValue) -> list[_Way]:
        """Return ways to establish an unmet condition.

        For the visibility of a name, by the places where it could be seen. Otherwise by one action, else by two, of
        which the first determines what the second one writes, else by a change of the condition's inputs.
        """
        if found := [_Way((), tuple(dict.fromkeys(needs))) for needs in self._sightings(fact, state)]:
            return found
        touches = self._try(fact, state)
        return (
            [_way(action) for action in touches.achieve]
            or [_way(*pair) for pair in self._pairs(fact, state)]
            or [_way(action, extra=_PARTLY) for action in touches.change]
        )

    def _pairs(self, fact: Need, state: JsonValue) -> Iterator[tuple[GroundAction, GroundAction]]:
        """Yield pairs of actions that establish a condition; the first one determines what the second one writes."""
        after: dict[GroundAction, JsonValue] = {}
        tried = 0
        for second in self._writing(fact.reads):
            for first in self._writing(second.lookups):
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
        """Yield the conditions for a name to be visible, for each place where it could be seen.

        If it is at some places already, only these are considered, and only the sights' conditions are needed.
        """
        if not isinstance(fact, Fact) or fact.visibility is None or (name := fact.sought) is None:
            return
        present: list[tuple[Need, ...]] = []
        elsewhere: list[tuple[Need, ...]] = []
        for at, sight in enumerate(fact.visibility.sights):
            readings = ({EACH: name},) if sight.named_by_each else sight.readings(state)
            for values in readings[:_MAX_SIGHTINGS]:
                shown = self._facts.shown(at, sight, values, name)
                asked = () if sight.when is None else sight.when.conjuncts
                needs = (shown, *(self._facts.fact(part, values) for part in asked))
                (present if shown.holds(state) else elsewhere).append(needs)
        yield from (present or elsewhere)[:_MAX_SIGHTINGS]

    def _try(self, fact: Need, state: JsonValue) -> _Touches:
        """Return the effects of relevant actions on the condition; those of actions with constant writes are cached."""
        touching = self._writing(fact.reads)
        question = fact.question(state)
        fixed = self._tried.get((fact, question))
        if fixed is None:
            fixed = _outcomes(fact, question, [action for action in touching if not action.lookups], state)
            self._tried[fact, question] = fixed
        moving = _outcomes(fact, question, [action for action in touching if action.lookups], state)
        return _Touches(fixed.achieve + moving.achieve, fixed.change + moving.change)

    def _writing(self, places: tuple[Place, ...]) -> tuple[GroundAction, ...]:
        """Return the actions that write to one of these places."""
        if places not in self._writers:
            self._writers[places] = tuple(
                action
                for action in self._actions
                if any(overlap(write, place) for write in action.writes for place in places)
            )
        return self._writers[places]


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


@dataclass
class _View:
    """Computation of the heuristic for one state."""

    heuristic: Heuristic
    state: JsonValue
    _held: dict[Need, bool] = field(default_factory=dict[Need, bool])
    _ways: dict[Need, tuple[_Way, ...]] = field(default_factory=dict[Need, tuple[_Way, ...]])
    """Ways to each unmet condition, with their unmet needs."""
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
            best = [way for way in self._ways[fact] if self._cost(way) == self._costs[fact]]
            for action in best[0].actions:
                chosen[action] = max(chosen.get(action, 0), 1 + best[0].extra)
            first = (action for way in best for action in way.actions[:1])
            helpful.update((action, None) for action in first if not self._unmet(action.requires))
            # All equally cheap ways are searched for helpful actions; only the first counts for the distance.
            following = [need for way in best for need in way.needs if need not in seen]
            seen.update(following)
            queue.extend(dict.fromkeys(following))
        return HeuristicValue(sum(chosen.values()), tuple(helpful))

    def _explore(self, goal: tuple[Need, ...]) -> None:
        queue = list(goal)
        for fact in queue:
            if fact not in self._ways:
                ways = self.heuristic.ways(fact, self.state)
                self._ways[fact] = tuple(way._replace(needs=self._unmet(way.needs)) for way in ways)
                queue.extend(need for way in self._ways[fact] for need in way.needs if need not in self._ways)

    def _settle(self) -> None:
        """Propagate costs from requirements to what needs them, until none changes, in at most `_SWEEPS` rounds."""
        self._costs = dict.fromkeys(self._ways, UNREACHED)
        order = tuple(reversed(self._ways))
        for _ in range(_SWEEPS):
            changed = False
            for fact in order:
                cost = min((self._cost(way) for way in self._ways[fact]), default=UNREACHED)
                if cost < self._costs[fact]:
                    self._costs[fact] = cost
                    changed = True
            if not changed:
                break

    def _cost(self, way: _Way) -> int:
        total = len(way.actions) + way.extra
        for need in way.needs:
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
