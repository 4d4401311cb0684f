"""Planner: search for action texts that lead from a state to the goal."""

from collections.abc import Callable, Collection, Iterable, Sequence
from contextlib import suppress
from heapq import heappop, heappush
from itertools import count, islice

from pydantic import JsonValue

from refinesynth.actions.matching import action_key
from refinesynth.errors import Inapplicable
from refinesynth.trajectory import MistakeKind
from refinesynth.world.executor import World
from refinesynth.world.expression import WorkLimit, WorkLimitExceeded, state_digest
from refinesynth.world.ground_actions import (
    MAX_GROUND_ACTIONS,
    Facts,
    GroundAction,
    fillings,
    ground,
    some_ground_actions,
)
from refinesynth.world.heuristic import UNREACHABLE, Heuristic, HeuristicValue

_MAX_PRICED = 16
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
        actions = planner.find(state, most)
        return None if actions is None else tuple(action.text for action in pruned(world, state, actions))
    return None


class Planner:
    """Searches in one world with one set of actions, with results shared between searches."""

    def __init__(self, world: World, texts: Iterable[str]) -> None:
        self.world = world
        self.facts = Facts(world.visibility)
        self.actions = ground(world, texts, self.facts)
        self.goal = tuple(self.facts.fact(part, {}) for condition in world.goal for part in condition.conjuncts)
        self._heuristic = Heuristic(self.actions, self.goal, self.facts)

    def find(self, state: JsonValue, max_states: int, *, try_all: bool = True) -> tuple[GroundAction, ...] | None:
        """Return actions that lead from `state` to the goal; None if none are found within `max_states`.

        Helpful actions are tried first, then with `try_all` all actions within as many states again.
        """
        plan = self._search(state, self._heuristic.evaluate, max_states)
        return self._search(state, self._unmet, max_states) if plan is None and try_all else plan

    def _unmet(self, state: JsonValue) -> HeuristicValue:
        return sum(not fact.holds(state) for fact in self.goal), self.actions

    def _search(
        self, state: JsonValue, evaluate: Callable[[JsonValue], HeuristicValue], remaining: int
    ) -> tuple[GroundAction, ...] | None:
        """A* by length and estimated distance; among ties, nearer states first, then in order of discovery."""
        numbers = count()
        lengths = {state_digest(state): 0}
        if None in lengths:
            return None
        distance, actions = evaluate(state)
        queue: list[_Entry] = [(distance, distance, next(numbers), state, (), actions)]
        while queue and remaining > 0:
            _, _, _, current, steps, actions = heappop(queue)
            if all(fact.holds(current) for fact in self.goal):
                return steps
            remaining -= 1
            for action in actions:
                if not all(fact.holds(current) for fact in action.requires):
                    continue
                try:
                    new = self.world.state_after(current, action.action, action.values)
                except Inapplicable:
                    continue
                digest, length = state_digest(new), len(steps) + 1
                if digest is None or lengths.get(digest, length + 1) <= length:
                    continue
                lengths[digest] = length
                distance, helpful = evaluate(new)
                if distance < UNREACHABLE:
                    heappush(queue, (length + distance, distance, next(numbers), new, (*steps, action), helpful))
        return None


def effective_actions(world: World, state: JsonValue, actions: Iterable[str]) -> tuple[str, ...] | None:
    """Return the actions that are possible in their turn and have an effect; None if they do not reach the goal."""
    effective: list[str] = []
    for text in actions:
        new = _state_after(world, state, text)
        if new is not state:
            effective.append(text)
        state = new
    return tuple(effective) if world.done(state) else None


def remaining_plan(world: World, state: JsonValue, known_plan: Sequence[str]) -> tuple[str, ...] | None:
    """Return the shortest end of a known plan that leads from this state to the goal, without actions that are impossible
    or without effect; None if none does.
    """
    for start in range(len(known_plan), -1, -1):
        # An end whose first action has no effect is the end before it, which did not reach the goal.
        if start == len(known_plan) or _state_after(world, state, known_plan[start]) is not state:
            rest = effective_actions(world, state, known_plan[start:])
            if rest is not None:
                return rest
    return None


def _state_after(world: World, state: JsonValue, text: str) -> JsonValue:
    """Return the state after an action; the same one if the action is impossible or has no effect."""
    parsed = world.read(text)
    if parsed is None or parsed[0].first_unmet(state, parsed[1]) is not None:
        return state
    try:
        return world.state_after(state, *parsed)
    except Inapplicable:
        return state


def possible_mistakes(
    world: World,
    state: JsonValue,
    known_values: Collection[str],
    past_mistakes: Collection[tuple[str, ...]] = (),
    solution: Sequence[str] = (),
) -> frozenset[MistakeKind]:
    """Return the kinds of mistakes that are possible in this state.

    A mistake is an action that the state refuses, with `known_values` or typed ones only, and none of
    `past_mistakes` (see `action_key`); a text that is no action is always possible. A kind is omitted if one of its
    mistakes has a price after which the known `solution` fails.

    At most `MAX_GROUND_ACTIONS` are examined, with an equal share for each action.
    """
    requirements = [requirement for action in world.actions for requirement in action.requires]
    possible, fatal, priced = {MistakeKind.PARAMETER}, set[MistakeKind](), count()
    all_kinds = possible | {requirement.kind for requirement in requirements}
    has_prices = any(requirement.effects for requirement in requirements)

    refused = (
        (action, values, unmet)
        for action in world.actions
        for values in islice(fillings(action, known_values), MAX_GROUND_ACTIONS // len(world.actions))
        # A requirement without an answer is no mistake but a fault of the rulebook.
        if (unmet := action.first_unmet(state, values)) is not None and unmet.problem is None
    )
    for action, values, unmet in refused:
        kind, effects = unmet.requirement.kind, unmet.requirement.effects
        if kind in fatal or (kind in possible and not effects):
            continue
        if action_key(world.script, action.spec.fill(values)) in past_mistakes:
            continue
        try:
            new = world.state_after_mistake(state, action, values, unmet)
            lost = new is not state and (next(priced) >= _MAX_PRICED or remaining_plan(world, new, solution) is None)
        except Inapplicable:
            lost = True
        (fatal if lost else possible).add(kind)
        if possible == all_kinds and not has_prices:
            break
    return frozenset(possible - (fatal - {MistakeKind.PARAMETER}))


def pruned(world: World, state: JsonValue, actions: tuple[GroundAction, ...]) -> tuple[GroundAction, ...]:
    """Return a plan without superfluous actions; earlier ones are removed first."""
    index = 0
    while index < len(actions):
        shorter = actions[:index] + actions[index + 1 :]
        texts = tuple(action.text for action in shorter)
        if effective_actions(world, state, texts) == texts:
            actions = shorter
        else:
            index += 1
    return actions
