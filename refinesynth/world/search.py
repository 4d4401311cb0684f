"""Plans: action texts that lead from a state to the goal, found by search."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from heapq import heappop, heappush
from itertools import count

from pydantic import JsonValue

from refinesynth.world.errors import Inapplicable
from refinesynth.world.executor import World
from refinesynth.world.expression import encode
from refinesynth.world.ground import Fact, GroundAction, ground, ground_actions
from refinesynth.world.guide import UNREACHED, Guess, Guide

MOST_NODES = 2_000
"""States that a search looks on from, unless told otherwise."""

Look = Callable[[JsonValue], Guess]
"""How far a state seems from the goal, and the actions to try there."""


def plan(
    world: World, state: JsonValue, *, candidates: Iterable[str] | None = None, most: int = MOST_NODES
) -> tuple[str, ...] | None:
    """Action texts that lead from `state` to the goal; empty if it is reached already.

    First only actions are tried that reasoning backwards from the goal finds helpful, then all. The same world, state and
    candidates give the same plan; no action of it can be left out, though it need not be the shortest.

    Args:
        world: Whose actions and goal.
        state: Where to begin.
        candidates: Action texts worth trying, in the order in which they are preferred; those that are no action are left
            out. None means every ground action.
        most: Bound on the states that are looked on from, in each of the two searches.

    Returns:
        None if no plan is found within the bound, or there is none.
    """
    if encode(state) is None:
        return None
    actions = ground(world, ground_actions(world) if candidates is None else candidates)
    goal = tuple(Fact(part, {}) for condition in world.goal for part in condition.conjuncts)
    guide = Guide(actions, goal)
    found = _search(world, state, guide.look, most)
    if found is None:
        found = _search(world, state, lambda here: Guess(_unmet(goal, here), actions), most)
    return None if found is None else tuple(action.text for action in pruned(world, state, found))


def _unmet(goal: Iterable[Fact], state: JsonValue) -> int:
    return sum(not fact.holds(state) for fact in goal)


@dataclass(frozen=True, slots=True, eq=False)
class _Node:
    state: JsonValue
    length: int
    action: GroundAction | None = None
    before: "_Node | None" = None

    def path(self) -> tuple[GroundAction, ...]:
        """Actions from the start to here."""
        actions: list[GroundAction] = []
        node = self
        while node.action is not None and node.before is not None:
            actions.append(node.action)
            node = node.before
        return tuple(reversed(actions))


def _search(world: World, state: JsonValue, look: Look, most: int) -> tuple[GroundAction, ...] | None:
    """A* by length and seeming distance; equal ones in the order in which they were found, nearer ones first."""
    numbers = count()
    distance, actions = look(state)
    queue = [(distance, distance, next(numbers), _Node(state, 0), actions)]
    lengths = {encode(state, sort=True): 0}
    while queue and most > 0:
        _, _, _, node, actions = heappop(queue)
        if world.done(node.state):
            return node.path()
        most -= 1
        for action, new in _next_states(node.state, actions):
            digest, length = encode(new, sort=True), node.length + 1
            if digest is None or lengths.get(digest, length + 1) <= length:
                continue
            lengths[digest] = length
            distance, following = look(new)
            if distance < UNREACHED:
                entry = (length + distance, distance, next(numbers), _Node(new, length, action, node), following)
                heappush(queue, entry)
    return None


def _next_states(state: JsonValue, actions: Iterable[GroundAction]) -> Iterator[tuple[GroundAction, JsonValue]]:
    for action in actions:
        if action.action.unmet(state, action.values) is not None:
            continue
        try:
            new = action.action.applied(state, action.values)
        except Inapplicable:
            continue
        if new is not state:
            yield action, new


def pruned(world: World, state: JsonValue, actions: tuple[GroundAction, ...]) -> tuple[GroundAction, ...]:
    """A plan without the actions that it does not need, the earlier ones left out first."""
    at = 0
    while at < len(actions):
        shorter = actions[:at] + actions[at + 1 :]
        if _reaches(world, state, shorter):
            actions = shorter
        else:
            at += 1
    return actions


def _reaches(world: World, state: JsonValue, actions: tuple[GroundAction, ...]) -> bool:
    for action in actions:
        new = next((new for _, new in _next_states(state, (action,))), None)
        if new is None:
            return False
        state = new
    return world.done(state)
