"""Planner: search for action texts that lead from a state to the goal."""

from collections.abc import Callable, Collection, Iterable, Sequence
from contextlib import suppress
from heapq import heappop, heappush
from itertools import count, islice

from pydantic import JsonValue

from refinesynth.actions.matching import meaning
from refinesynth.trajectory import MistakeKind
from refinesynth.world.executor import World
from refinesynth.world.expression import state_digest
from refinesynth.world.ground_actions import (
    MAX_GROUND_ACTIONS,
    Facts,
    GroundAction,
    fillings,
    ground,
    some_ground_actions,
)
from refinesynth.world.heuristic import UNREACHED, Heuristic, HeuristicValue
from refinesynth.world.rulebook_errors import Inapplicable
from refinesynth.world.work_limit import WorkLimit, WorkLimitExceeded

_PRICES = 16
"""Maximum number of mistakes with a price that are tried in a state; further ones count as fatal."""

MAX_NODES = 2_000
"""Default maximum number of states that a search expands."""

_Entry = tuple[int, int, int, JsonValue, tuple[GroundAction, ...], tuple[GroundAction, ...]]
"""Estimated length of a whole plan, distance to the goal, number, state, actions that led there, actions to try."""


def plan(
    world: World, state: JsonValue, *, candidates: Iterable[str] | None = None, most: int = MAX_NODES
) -> tuple[str, ...] | None:
    """Return action texts that lead from `state` to the goal; empty if it is reached already.

    The first search tries only actions that the heuristic finds helpful, the second all. The plan is deterministic. It
    holds no superfluous action, but it need not be the shortest.

    Args:
        world: World with the actions and the goal.
        state: State in which the plan begins.
        candidates: Action texts in order of preference; texts that are no action are ignored. None for all ground
            actions, or a share of each action's if there are more than `MAX_GROUND_ACTIONS`.
        most: Maximum number of expanded states in each of the two searches. All other work is bounded too.

    Returns:
        None if no plan was found within the limits.
    """
    texts = some_ground_actions(world, MAX_GROUND_ACTIONS)[0] if candidates is None else candidates
    planner = Planner(world, texts)
    with suppress(WorkLimitExceeded), WorkLimit().applied():
        found = planner.find(state, most)
        return None if found is None else tuple(action.text for action in pruned(world, state, found))
    return None


class Planner:
    """Searches in one world with one set of actions, with results shared between searches."""

    def __init__(self, world: World, texts: Iterable[str]) -> None:
        self.world = world
        self.facts = Facts(world.visibility)
        self.actions = ground(world, texts, self.facts)
        self.goal = tuple(self.facts.fact(part, {}) for condition in world.goal for part in condition.conjuncts)
        self._heuristic = Heuristic(self.actions, self.goal, self.facts)

    def find(self, state: JsonValue, most: int, *, blindly: bool = True) -> tuple[GroundAction, ...] | None:
        """Return actions that lead from `state` to the goal; None if none are found within `most` states.

        Helpful actions are tried first, then with `blindly` all actions within as many states again.
        """
        found = self._search(state, self._heuristic.evaluate, most)
        return self._search(state, self._unmet, most) if found is None and blindly else found

    def _unmet(self, state: JsonValue) -> HeuristicValue:
        return HeuristicValue(sum(not fact.holds(state) for fact in self.goal), self.actions)

    def _search(
        self, state: JsonValue, evaluate: Callable[[JsonValue], HeuristicValue], most: int
    ) -> tuple[GroundAction, ...] | None:
        """A* by length and estimated distance; among ties, nearer states first, then in order of discovery."""
        numbers = count()
        lengths = {state_digest(state): 0}
        if None in lengths:
            return None
        distance, actions = evaluate(state)
        queue: list[_Entry] = [(distance, distance, next(numbers), state, (), actions)]
        while queue and most > 0:
            _, _, _, here, way, actions = heappop(queue)
            if all(fact.holds(here) for fact in self.goal):
                return way
            most -= 1
            for action in actions:
                if not all(fact.holds(here) for fact in action.requires):
                    continue
                try:
                    new = self.world.after(here, action.action, action.values)
                except Inapplicable:
                    continue
                digest, length = state_digest(new), len(way) + 1
                if digest is None or lengths.get(digest, length + 1) <= length:
                    continue
                lengths[digest] = length
                distance, following = evaluate(new)
                if distance < UNREACHED:
                    heappush(queue, (length + distance, distance, next(numbers), new, (*way, action), following))
        return None


def carried_out(world: World, state: JsonValue, actions: Iterable[str]) -> tuple[str, ...] | None:
    """Return the actions that are possible in their turn and have an effect; None if they do not reach the goal."""
    taken: list[str] = []
    for text in actions:
        new = _after(world, state, text)
        if new is not state:
            taken.append(text)
        state = new
    return tuple(taken) if world.done(state) else None


def rest_of(world: World, state: JsonValue, known: Sequence[str]) -> tuple[str, ...] | None:
    """Return the shortest end of a known plan that leads from this state to the goal, without actions that are impossible
    or without effect; None if none does.
    """
    for at in range(len(known), -1, -1):
        # An end whose first action has no effect is the end before it, which did not reach the goal.
        if at == len(known) or _after(world, state, known[at]) is not state:
            rest = carried_out(world, state, known[at:])
            if rest is not None:
                return rest
    return None


def _after(world: World, state: JsonValue, text: str) -> JsonValue:
    """Return the state after an action; the same one if the action is impossible or has no effect."""
    found = world.read(text)
    if found is None or found[0].unmet(state, found[1]) is not None:
        return state
    try:
        return world.after(state, *found)
    except Inapplicable:
        return state


def mistakes_possible(
    world: World,
    state: JsonValue,
    known: Collection[str],
    made: Collection[tuple[str, ...]] = (),
    solution: Sequence[str] = (),
) -> frozenset[MistakeKind]:
    """Return the kinds of mistakes that are possible in this state.

    A mistake is an action that the state refuses, with `known` or typed values only, that was not `made` before (see
    `meaning`); a text that is no action is always possible. A kind is omitted if one of its mistakes has a price after
    which the known `solution` fails.

    At most `MAX_GROUND_ACTIONS` are examined, with an equal share for each action.
    """
    requirements = [requirement for action in world.actions for requirement in action.requires]
    found, fatal, tried = {MistakeKind.PARAMETER}, set[MistakeKind](), count()
    sought = found | {requirement.kind for requirement in requirements}
    has_prices = any(requirement.effects for requirement in requirements)

    refused = (
        (action, values, unmet)
        for action in world.actions
        for values in islice(fillings(action, known), MAX_GROUND_ACTIONS // len(world.actions))
        # A requirement without an answer is no mistake but a fault of the rulebook.
        if (unmet := action.unmet(state, values)) is not None and unmet.problem is None
    )
    for action, values, unmet in refused:
        kind, price = unmet.requirement.kind, unmet.requirement.effects
        if kind in fatal or (kind in found and not price):
            continue
        if meaning(world.script, action.spec.fill(values)) in made:
            continue
        try:
            new = world.after_mistake(state, action, values, unmet)
            lost = new is not state and (next(tried) >= _PRICES or rest_of(world, new, solution) is None)
        except Inapplicable:
            lost = True
        (fatal if lost else found).add(kind)
        if found == sought and not has_prices:
            break
    return frozenset(found - (fatal - {MistakeKind.PARAMETER}))


def pruned(world: World, state: JsonValue, actions: tuple[GroundAction, ...]) -> tuple[GroundAction, ...]:
    """Return a plan without superfluous actions; earlier ones are removed first."""
    at = 0
    while at < len(actions):
        shorter = actions[:at] + actions[at + 1 :]
        texts = tuple(action.text for action in shorter)
        if carried_out(world, state, texts) == texts:
            actions = shorter
        else:
            at += 1
    return actions
