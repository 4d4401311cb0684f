"""Environments that know how they are solved, for tests and measurements of right plays.

BabyAI is solved by a search over the texts that a player can say, in real levels, seeing what no player sees: the future.
States with more subgoals behind them come first, and of these the cheapest. Carrying things about and single moves cost
more than walking somewhere, as nearly all states differ in nothing but where things lie. PDDL is solved by pyperplan, in
several bounded searches, the quick ones first.
"""

import heapq
import json
import pickle
import re
from collections.abc import Callable, Hashable, Sequence
from importlib import import_module
from itertools import count
from pathlib import Path
from typing import Any

from refinesynth.evaluate.environments import babyai, pddl
from refinesynth.evaluate.environments.alfworld import AlfWorld
from refinesynth.evaluate.environments.babyai import Level
from refinesynth.evaluate.environments.environment import Instance, Start
from refinesynth.evaluate.environments.pddl import sentence
from refinesynth.evaluate.environments.scienceworld import SIMPLIFICATIONS, ScienceWorld


class SolvingAlfWorld(AlfWorld):
    """The game's own walkthrough."""

    def reset(self, instance: Instance, /) -> Start:
        start = super().reset(instance)
        self._game_file = Path(instance.data["game"])
        return start

    def solution(self) -> Sequence[str]:
        actions = json.loads(self._game_file.read_text("utf-8")).get("walkthrough") or ()
        return [re.sub(r"^move (.+) to (.+)", r"put \1 in/on \2", action) for action in actions]


class SolvingBabyAI(babyai.BabyAI):
    """A search over the texts that a player can say."""

    def solution(self) -> Sequence[str] | None:
        return search(self._level, most=babyai.BENCHMARK.steps)


class SolvingPddl(pddl.Pddl):
    """A plan that fits into an episode, if one is found, else a longer one."""

    def reset(self, instance: Instance, /) -> Start:
        start = super().reset(instance)
        self._files = Path(instance.data["domain"]), Path(instance.data["problem"])
        return start

    def solution(self) -> Sequence[str] | None:
        found = plan(*self._files, fits=pddl.BENCHMARK.steps)
        if found is None:
            return None
        return [sentence(name, objects).strip() for name, *objects in found]


class SolvingScienceWorld(ScienceWorld):
    """The simulator's own way to its own end, which need not meet AgentBoard's subgoals, nor within 30 actions."""

    def solution(self) -> Sequence[str] | None:
        self._world.load(*self._task, SIMPLIFICATIONS, generateGoldPath=True)
        self._world.reset()
        path = [str(action) for action in self._world.get_gold_action_sequence()]
        self._load()
        return None if not path or path[0].startswith("ERROR") else path


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
    loaded: Level = pickle.loads(saved)
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


Plan = list[tuple[str, ...]]
"""Actions, each its name and its objects."""

_MOST_WHOLE = 300_000
"""States that the search for a shortest plan looks at: a few seconds."""
_MOST_GREEDY = 3_000


class _EnoughError(Exception):
    """A search has looked at as many states as it may."""


def plan(domain: Path, problem: Path, *, fits: int) -> Plan | None:
    """The first plan found of at most `fits` actions, else the shortest; None if no search finds one in its bounds."""
    grounding, parsing = import_module("pyperplan.grounding"), import_module("pyperplan.pddl.parser")
    algorithms, relaxation = import_module("pyperplan.search"), import_module("pyperplan.heuristics.relaxation")
    landmarks = import_module("pyperplan.heuristics.landmarks")
    parser = parsing.Parser(str(domain), str(problem))
    task = grounding.ground(parser.parse_problem(parser.parse_domain()))
    goals, greedy = sorted(task.goals), algorithms.greedy_best_first_search
    searches = (
        lambda: _goal_by_goal(task, goals, greedy, relaxation.hAddHeuristic),
        lambda: _goal_by_goal(task, goals[::-1], greedy, relaxation.hAddHeuristic),
        lambda: _bounded_search(task, greedy, relaxation.hFFHeuristic, _MOST_GREEDY),
        lambda: _bounded_search(task, algorithms.astar_search, landmarks.LandmarkHeuristic, _MOST_WHOLE),
    )
    best: list[Any] | None = None
    for search in searches:
        found = search()
        if found is not None and (best is None or len(found) < len(best)):
            best = found
        if best is not None and len(best) <= fits:
            break
    return best and [tuple(operator.name.strip("()").split()) for operator in best]


def _bounded_search(
    task: Any, search: Callable[..., Any], heuristic: Callable[[Any], Any], most: int
) -> list[Any] | None:
    try:
        return search(task, _Bounded(heuristic(task), most))
    except _EnoughError:
        return None


def _goal_by_goal(
    task: Any, goals: Sequence[Any], search: Callable[..., Any], heuristic: Callable[[Any], Any]
) -> list[Any] | None:
    """One goal after the other, keeping those behind: far fewer states, mostly at the cost of a longer plan."""
    operators: list[Any] = []
    state = task.initial_state
    for number in range(1, len(goals) + 1):
        part = type(task)(task.name, task.facts, state, frozenset(goals[:number]), task.operators)
        found = _bounded_search(part, search, heuristic, _MOST_GREEDY)
        if found is None:
            return None
        for operator in found:
            state = operator.apply(state)
        operators += found
    return operators


class _Bounded:
    """A heuristic that ends the search after so many states."""

    def __init__(self, heuristic: Any, most: int) -> None:
        self._heuristic, self._left = heuristic, most

    def __call__(self, node: Any) -> float:
        self._left -= 1
        if self._left < 0:
            raise _EnoughError
        return self._heuristic(node)
