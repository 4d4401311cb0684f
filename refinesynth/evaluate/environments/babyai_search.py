"""BabyAI solved by a search over the texts that a player can say, in real levels, seeing what no player sees: the future.

States with more subgoals behind them come first, and of these the cheapest. Carrying things about and single moves cost
more than walking somewhere, as nearly all states differ in nothing but where things lie.
"""

import heapq
import pickle
from collections.abc import Hashable
from itertools import count
from typing import Any

from refinesynth.evaluate.environments.babyai_level import Level

MOST_STEPS = 40_000
"""Actions that are tried before a level is given up: about two minutes."""


def search(level: Level, *, most: int) -> list[str] | None:
    """At most so many actions that lead to success; None if none were found."""
    seen = {_key(level)}
    order = count()
    waiting: list[tuple[int, int, int, bytes, list[str]]] = [(0, 0, next(order), pickle.dumps(level), [])]
    tried = 0
    while waiting and tried < MOST_STEPS:
        _, cost, _, saved, path = heapq.heappop(waiting)
        for action, moves in level_of(saved).view.actions.items():
            if not moves:
                continue
            tried += 1
            reached = level_of(saved)
            step = reached.step(action)
            if step.success:
                return [*path, action]
            key = _key(reached)
            if step.done or key in seen or len(path) + 1 >= most:
                continue
            seen.add(key)
            entry = (
                len(reached.subgoals[0]),
                cost + _cost(action),
                next(order),
                pickle.dumps(reached),
                [*path, action],
            )
            heapq.heappush(waiting, entry)
    return None


def level_of(saved: bytes) -> Level:
    """A level of its own, to be played from where it was saved."""
    loaded: Level = pickle.loads(saved)  # noqa: S301 - bytes that `search` made itself
    return loaded


def _cost(action: str) -> int:
    if action.startswith(("pick", "drop")):
        return 4
    return 1 if action.startswith(("go", "toggle")) else 2


def _key(level: Level) -> Hashable:
    """What makes two states the same for all that is to come."""
    world = level.level
    things = tuple(
        (at, thing.encode()) for at, thing in enumerate(world.grid.grid) if thing is not None and thing.type != "wall"
    )
    held = world.carrying and world.carrying.encode()
    return (
        tuple(map(int, world.agent_pos)),
        int(world.agent_dir),
        held,
        things,
        tuple(level.subgoals[0]),
        _fulfilled(world.instrs),
    )


def _fulfilled(instructions: Any) -> Hashable:
    """Which parts of the mission are behind."""
    if not hasattr(instructions, "instr_a"):
        return None
    parts = (instructions.instr_a, instructions.instr_b)
    return (instructions.a_done, instructions.b_done, *map(_fulfilled, parts))
