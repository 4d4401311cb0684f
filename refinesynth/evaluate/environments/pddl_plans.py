"""Plans by pyperplan: several bounded searches, the quick ones first."""

from collections.abc import Callable, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

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
        lambda: _search(task, greedy, relaxation.hFFHeuristic, _MOST_GREEDY),
        lambda: _search(task, algorithms.astar_search, landmarks.LandmarkHeuristic, _MOST_WHOLE),
    )
    best: list[Any] | None = None
    for search in searches:
        found = search()
        if found is not None and (best is None or len(found) < len(best)):
            best = found
        if best is not None and len(best) <= fits:
            break
    return best and [tuple(operator.name.strip("()").split()) for operator in best]


def _search(task: Any, search: Callable[..., Any], heuristic: Callable[[Any], Any], most: int) -> list[Any] | None:
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
    for count in range(1, len(goals) + 1):
        part = type(task)(task.name, task.facts, state, frozenset(goals[:count]), task.operators)
        found = _search(part, search, heuristic, _MOST_GREEDY)
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
