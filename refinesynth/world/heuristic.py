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

UNREACHABLE = 1_000_000
"""Distance of a goal that seems unreachable."""

_PARTIAL_COST = 3
"""Extra cost of an action that changes a condition's inputs and does not establish it yet."""

_MAX_SIGHTINGS = 64
"""Maximum number of examined places at which a name could become visible, and of evaluations of a sight."""

_MAX_PAIRS = 1_000
"""Maximum number of action pairs that are tried for a condition in a state."""

_MAX_SWEEPS = 50
"""Maximum number of iterations that propagate costs."""


Need = Fact | ShownFact
"""A fact about a state."""


HeuristicValue = tuple[int, tuple[GroundAction, ...]]
"""Estimated distance from a state to the goal, and the helpful actions: possible ones with which the cheapest ways begin.

The distance is the number of actions in the relaxed plan plus extra costs, or `UNREACHABLE`; neither a lower nor an upper
bound."""


class _Achiever(NamedTuple):
    """Actions that establish a condition, in order."""

    actions: tuple[GroundAction, ...]
    needs: tuple[Need, ...]
    """Their requirements and further conditions."""
    extra: int = 0

    @classmethod
    def of(cls, *actions: GroundAction, extra: int = 0) -> "_Achiever":
        return cls(actions, tuple(dict.fromkeys(need for action in actions for need in action.requires)), extra)


_Writers = tuple[list[GroundAction], list[GroundAction]]
"""Actions that establish an unmet condition, and those that change its inputs without establishing it."""


class Heuristic:
    """Estimates for one goal and one set of actions, with cached results."""

    def __init__(self, actions: tuple[GroundAction, ...], goal: tuple[Fact, ...], facts: Facts) -> None:
        self.goal = goal
        self._actions = actions
        self._facts = facts
        self._writers: dict[tuple[Place, ...], tuple[GroundAction, ...]] = {}
        self._constant_writers: dict[tuple[Need, bytes | None], _Writers] = {}
        """Writers by condition and its inputs, among the actions whose writes do not depend on the state."""

    def evaluate(self, state: JsonValue) -> HeuristicValue:
        """Return the estimate for a state."""
        return _Estimate(self, state).evaluate()

    def achievers(self, fact: Need, state: JsonValue) -> list[_Achiever]:
        """Return achievers of an unmet condition.

        For the visibility of a name, by the places where it could be seen. Otherwise by one action, else by two, of
        which the first determines what the second one writes, else by a change of the condition's inputs.
        """
        if achievers := [_Achiever((), tuple(dict.fromkeys(needs))) for needs in self._visibility_needs(fact, state)]:
            return achievers
        achieving, changing = self._writers_of(fact, state)
        return (
            [_Achiever.of(action) for action in achieving]
            or [_Achiever.of(*pair) for pair in self._pairs(fact, state)]
            or [_Achiever.of(action, extra=_PARTIAL_COST) for action in changing]
        )

    def _pairs(self, fact: Need, state: JsonValue) -> Iterator[tuple[GroundAction, GroundAction]]:
        """Yield pairs of actions that establish a condition; the first one determines what the second one writes."""
        states_after: dict[GroundAction, JsonValue] = {}
        tried = 0
        for second in self._actions_writing(fact.reads):
            for first in self._actions_writing(second.lookups):
                if first is second:
                    continue
                if first not in states_after:
                    states_after[first] = first.relaxed(state)
                if states_after[first] is state:
                    continue
                tried += 1
                if tried > _MAX_PAIRS:
                    return
                if fact.holds(second.relaxed(states_after[first])):
                    yield first, second

    def _visibility_needs(self, fact: Need, state: JsonValue) -> Iterator[tuple[Need, ...]]:
        """Yield the conditions for a name to be visible, for each place where it could be seen.

        If it is at some places already, only these are considered, and only the sights' conditions are needed.
        """
        if not isinstance(fact, Fact) or fact.visibility is None or (name := fact.visible_name) is None:
            return
        present: list[tuple[Need, ...]] = []
        absent: list[tuple[Need, ...]] = []
        for index, sight in enumerate(fact.visibility.sights):
            bindings = ({EACH: name},) if sight.named_by_each else sight.bindings(state)
            for values in bindings[:_MAX_SIGHTINGS]:
                shown = self._facts.shown(index, sight, values, name)
                conditions = () if sight.when is None else sight.when.conjuncts
                needs = (shown, *(self._facts.fact(part, values) for part in conditions))
                (present if shown.holds(state) else absent).append(needs)
        yield from (present or absent)[:_MAX_SIGHTINGS]

    def _writers_of(self, fact: Need, state: JsonValue) -> _Writers:
        actions, inputs = self._actions_writing(fact.reads), fact.inputs(state)
        if (fact, inputs) not in self._constant_writers:
            constant_actions = [action for action in actions if not action.lookups]
            self._constant_writers[fact, inputs] = _classify(fact, inputs, constant_actions, state)
        constant = self._constant_writers[fact, inputs]
        variable = _classify(fact, inputs, [action for action in actions if action.lookups], state)
        return constant[0] + variable[0], constant[1] + variable[1]

    def _actions_writing(self, places: tuple[Place, ...]) -> tuple[GroundAction, ...]:
        """Return the actions that write to one of these places."""
        if places not in self._writers:
            self._writers[places] = tuple(
                action
                for action in self._actions
                if any(overlap(write, place) for write in action.writes for place in places)
            )
        return self._writers[places]


def _classify(fact: Need, inputs: bytes | None, actions: list[GroundAction], state: JsonValue) -> _Writers:
    achieving: list[GroundAction] = []
    changing: list[GroundAction] = []
    for action in actions:
        new_state = action.relaxed(state)
        if new_state is state:
            continue
        if fact.holds(new_state):
            achieving.append(action)
        elif fact.inputs(new_state) != inputs:
            changing.append(action)
    return achieving, changing


@dataclass
class _Estimate:
    """Computation of the heuristic for one state."""

    heuristic: Heuristic
    state: JsonValue
    _holds: dict[Need, bool] = field(default_factory=dict[Need, bool])
    _options: dict[Need, tuple[_Achiever, ...]] = field(default_factory=dict[Need, tuple[_Achiever, ...]])
    """Achievers of each unmet condition, with their unmet needs."""
    _costs: dict[Need, int] = field(default_factory=dict[Need, int])

    def evaluate(self) -> HeuristicValue:
        goal = self._unmet(self.heuristic.goal)
        self._explore(goal)
        self._propagate_costs()
        if any(self._costs[fact] >= UNREACHABLE for fact in goal):
            return UNREACHABLE, ()
        chosen: dict[GroundAction, int] = {}
        helpful: dict[GroundAction, None] = {}
        seen = set(goal)
        queue = list(goal)
        for fact in queue:
            best = [achiever for achiever in self._options[fact] if self._cost(achiever) == self._costs[fact]]
            for action in best[0].actions:
                chosen[action] = max(chosen.get(action, 0), 1 + best[0].extra)
            first = (action for achiever in best for action in achiever.actions[:1])
            helpful.update((action, None) for action in first if not self._unmet(action.requires))
            # All equally cheap ways are searched for helpful actions; only the first counts for the distance.
            following = [need for achiever in best for need in achiever.needs if need not in seen]
            seen.update(following)
            queue.extend(dict.fromkeys(following))
        return sum(chosen.values()), tuple(helpful)

    def _explore(self, goal: tuple[Need, ...]) -> None:
        queue = list(goal)
        for fact in queue:
            if fact not in self._options:
                options = self.heuristic.achievers(fact, self.state)
                self._options[fact] = tuple(option._replace(needs=self._unmet(option.needs)) for option in options)
                needs = (need for option in self._options[fact] for need in option.needs)
                queue.extend(need for need in needs if need not in self._options)

    def _propagate_costs(self) -> None:
        """Propagate costs from requirements to what needs them, until none changes, in at most `_MAX_SWEEPS` rounds."""
        self._costs = dict.fromkeys(self._options, UNREACHABLE)
        order = tuple(reversed(self._options))
        for _ in range(_MAX_SWEEPS):
            changed = False
            for fact in order:
                cost = min((self._cost(achiever) for achiever in self._options[fact]), default=UNREACHABLE)
                if cost < self._costs[fact]:
                    self._costs[fact] = cost
                    changed = True
            if not changed:
                break

    def _cost(self, achiever: _Achiever) -> int:
        total = len(achiever.actions) + achiever.extra + sum(self._costs[need] for need in achiever.needs)
        return min(total, UNREACHABLE)

    def _unmet(self, facts: tuple[Need, ...]) -> tuple[Need, ...]:
        unmet: list[Need] = []
        for fact in facts:
            holds = self._holds.get(fact)
            if holds is None:
                holds = self._holds[fact] = fact.holds(self.state)
            if not holds:
                unmet.append(fact)
        return tuple(unmet)
