"""Solvability check of a grounded script before it is played: a solution, its difficulty, and faults of the rulebook.

All limits are numbers of states and amounts of work, not time, so the result is the same on every machine.
"""

from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any, cast

from pydantic import JsonValue

from refinesynth.errors import Inapplicable
from refinesynth.trajectory import Difficulty, Script
from refinesynth.trajectory.value import weakly_cached
from refinesynth.world.executor import World, world_or_problem
from refinesynth.world.explore import Explorer, Node
from refinesynth.world.expression import MAX_STATE_BYTES, WorkLimit, WorkLimitExceeded, is_valid_state
from refinesynth.world.ground_actions import GroundAction, some_ground_actions
from refinesynth.world.planner import Planner, pruned

MAX_DEVIATIONS = 200
"""Maximum number of deviations from the solution that are tested for losing the goal."""


MAX_CHECKED_ACTIONS = 800
"""Maximum number of examined ground actions."""

MAX_CHECKED_WORK = 600_000_000
"""Work limit of a check: a few seconds, reached only by huge worlds or ones that are slow on purpose."""

MAX_EXPANDED_STATES = 40
"""Number of states, from the beginning on, in which every possible action is tried."""

MAX_SEARCHED_STATES = 120
"""Number of states in a search for a solution if the author's does not work."""

MAX_INSPECTED_STATES = 16
"""Number of states nearest to the beginning in which sights and unreached goals are examined."""

MAX_PRUNED_LENGTH = 40
"""Longest solution from which superfluous actions are removed."""


@dataclass(frozen=True, slots=True)
class Solvability:
    """Proven facts about a grounded script."""

    problem: str | None = None
    """Reason why the rulebook cannot be executed; all other fields are unknown then."""
    solution_problem: str | None = None
    """Fault of the author's solution, or its absence."""
    shortest: tuple[str, ...] | None = None
    """Best known solution, the author's or another; None if none was found."""
    exhausted: bool = False
    """True if all reachable states were examined: a solution that was not found does not exist, and `shortest` is
    optimal."""
    met_at_start: bool = False
    """True if the goal is reached at the beginning."""
    unusable: tuple[str, ...] = ()
    """Name templates of actions that are provably never possible."""
    faults: tuple[str, ...] = ()
    """Effects that cannot be applied, conditions without an answer, broken invariants, and failing lookups: the place,
    and how to fix it."""
    difficulty: Difficulty | None = None
    """Difficulty of `shortest`; None without a solution, or if the work limit was reached before."""


def check_solvability(script: Script) -> Solvability:
    """Check a script's world. The result is cached with the world. Never raises; takes a few seconds at most."""
    world = world_or_problem(script)
    return Solvability(problem=world) if isinstance(world, str) else _check(world)


@weakly_cached
def _check(world: World) -> Solvability:
    if not is_valid_state(cast("JsonValue", world.script.environment)):
        fault = f"the environment holds what JSON cannot say, is nested too deep or larger than {MAX_STATE_BYTES:,} bytes; make it smaller"
        return Solvability(faults=(fault,))
    checker = _Checker(world)
    with suppress(WorkLimitExceeded), WorkLimit(MAX_CHECKED_WORK).applied():
        checker.check()
    return replace(checker.result, faults=checker.explorer.faults.messages())


class _Checker:
    """A running check; its partial results are kept at the work limit."""

    def __init__(self, world: World) -> None:
        self.world = world
        texts, self.has_all_actions = some_ground_actions(world, MAX_CHECKED_ACTIONS)
        self.explorer = Explorer(Planner(world, (*texts, *world.rulebook.solution)))
        self.result = Solvability()
        self.plan: tuple[GroundAction, ...] | None = None
        """Shortest known way to the goal."""

    def check(self) -> None:
        """Run all checks, cheap and important ones first."""
        world, explorer = self.world, self.explorer
        start = explorer.node(cast("JsonValue", world.script.environment))
        # Nothing is played after the goal.
        can_prove = self.has_all_actions and not explorer.is_goal(start)
        self._update(met_at_start=explorer.is_goal(start))
        self._check_start(start)
        plan = self._author_solution(start)
        self._improve(plan if plan is None or len(plan) > MAX_PRUNED_LENGTH else pruned(world, start.state, plan))
        self._check_hints(start)
        if self.plan is None:
            self._improve(explorer.planner.find(start.state, MAX_SEARCHED_STATES, try_all=False))
        search = explorer.breadth_first(start, MAX_EXPANDED_STATES)
        exhausted = can_prove and search.exhausted
        self._improve(search.plan)
        if self.plan is None:
            self._check_goal(search.nodes)
        nodes = explorer.follow(start, self.plan or ())
        for node in (*nodes, *search.nodes[:MAX_INSPECTED_STATES]):
            self._check_sights(node)
        if self.plan is not None:
            difficulty = _difficulty(explorer, nodes, self.plan)
            self._update(difficulty=difficulty)
            is_losable = losable(explorer, nodes, self.plan, complete=can_prove)
            self._update(difficulty=difficulty.model_copy(update={"losable": is_losable}))
        self._update(unusable=explorer.unusable(start, exhausted=exhausted) if can_prove else ())
        self._update(exhausted=exhausted)

    def _update(self, **changes: Any) -> None:
        self.result = replace(self.result, **changes)

    def _improve(self, plan: Sequence[GroundAction] | None) -> None:
        if plan is not None and (self.plan is None or len(plan) < len(self.plan)):
            self.plan = tuple(plan)
            self._update(shortest=tuple(action.text for action in plan))

    def _check_start(self, start: Node) -> None:
        faults, knowledge = self.explorer.faults, self.world.knowledge
        for number, broken in self.world.broken_invariants(start.state):
            faults.add(f"invariant {number}", f"invariant {number} is broken at the beginning, {broken}")
        self._check_sights(start)
        try:
            if knowledge and knowledge.update(start.state, self.world.script.introduction, {}) is not start.state:
                message = "the introduction tells what the player does not know at the beginning"
                faults.add("knows", f"knows: {message}; put it into the list")
        except Inapplicable as error:
            faults.add("knows", f"knows: {error}; put an empty list there")

    def _check_sights(self, node: Node) -> None:
        if (problem := self.world.visibility.names_in(node.state).problem) is not None:
            self.explorer.faults.add("the sights", problem)

    def _author_solution(self, start: Node) -> tuple[GroundAction, ...] | None:
        """Return the author's solution up to the goal without actions that change nothing; None if it does not reach
        it.
        """
        solution = self.world.rulebook.solution
        if not solution:
            self._update(
                solution_problem="the rulebook has no solution; write the actions that reach the goal from the beginning"
            )
            return None
        actions_by_text = {action.text: action for action in self.explorer.planner.actions}
        actions: list[GroundAction] = []
        state = start.state
        for number, text in enumerate(solution, 1):
            if self.world.done(state):
                break
            ruling = self.world.step(state, text)
            if ruling.kind is not None:
                reason = ruling.problem or ruling.text
                self._update(
                    solution_problem=f"action {number} of the solution, {text!r}, cannot be carried out there: {reason}"
                )
                return None
            if ruling.state is not state:
                actions.append(actions_by_text[text])
            state = ruling.state
        unmet = [str(number) for number, goal in enumerate(self.world.goal, 1) if goal.answer(state, {}) is not True]
        if unmet:
            problem = f"after all {len(solution)} actions of the solution, these conditions of the goal do not hold: "
            self._update(solution_problem=problem + ", ".join(unmet))
            return None
        return tuple(actions)

    def _check_hints(self, node: Node) -> None:
        """Check the hint of the first unmet requirement of every action in a state."""
        for action in self.explorer.planner.actions:
            unmet = action.action.first_unmet(node.state, action.values)
            if unmet is not None and unmet.problem is None:
                place = f"the hint of requirement {unmet.index + 1} of {action.action.spec.name!r}"
                self.explorer.faults.check_lookups(place, unmet.requirement.hint, node.state, action.values)

    def _check_goal(self, nodes: Sequence[Node]) -> None:
        """Record goal conditions that have an answer in none of the first `MAX_INSPECTED_STATES` states."""
        for number, condition in enumerate(self.world.goal, 1):
            answers = [condition.answer(node.state, {}) for node in nodes[:MAX_INSPECTED_STATES]]
            if answers and all(isinstance(answer, str) for answer in answers):
                message = f"goal condition {number} has no answer in any state that was reached: {answers[0]}"
                self.explorer.faults.add(f"goal {number}", message)


def _difficulty(explorer: Explorer, path: Sequence[Node], solution: Sequence[GroundAction]) -> Difficulty:
    """Return the difficulty of a solution with its states; `losable` is not set."""
    world, start = explorer.planner.world, path[0].state
    used = {value for action in solution for value in action.values.values()} & world.names
    choices = [len(explorer.expand(node)) for node in path[:-1]]
    needs = dict.fromkeys(fact for action in solution for fact in action.requires)
    needs.update(dict.fromkeys(explorer.planner.goal))
    # Values that no sight ever shows, such as a selected temperature, are not hidden things.
    ever_visible = {name for node in path for name in world.visible(node.state)}
    return Difficulty(
        steps=len(solution),
        branching=round(sum(choices) / len(choices), 2) if choices else 0.0,
        preconditions=sum(not fact.holds(start) for fact in needs),
        distractors=round(1 - len(used) / len(world.names), 3) if world.names else 0.0,
        hidden=len((used & ever_visible).difference(world.visible(start))),
    )


def losable(
    explorer: Explorer, path: Sequence[Node], solution: Sequence[GroundAction], *, complete: bool
) -> bool | None:
    """Return whether a single action instead of one of the solution's, or the effects of its refusal, can make the goal
    unreachable; None if unknown.

    `complete` tells whether the explorer knows all actions. An action is safe if the rest of the solution works after
    it or if it can be undone, and fatal if the goal is provably unreachable.
    """
    safe = set(path)

    def reaches_safe(node: Node, actions: Sequence[GroundAction]) -> bool:
        """Return whether these actions lead to the goal or a safe state; the states on the way are safe then too."""
        nodes = explorer.follow(node, actions)
        for index, reached in enumerate(nodes):
            if reached in safe or explorer.is_goal(reached):
                safe.update(nodes[: index + 1])
                return True
        return False

    def is_fatal(node: Node, remaining: Sequence[GroundAction]) -> bool | None:
        if reaches_safe(node, remaining) or reaches_safe(node, remaining[1:]):
            return False
        if any(successor in safe for _, successor in explorer.expand(node)):
            safe.add(node)
            return False
        return True if complete and explorer.is_goal_unreachable(node) else None

    unsafe = (
        (node, solution[index:])
        for index, node in _deviations(explorer, path)
        if node not in safe and not explorer.is_goal(node)
    )
    unknown = False
    for verdict in (is_fatal(node, remaining) for node, remaining in islice(unsafe, MAX_DEVIATIONS)):
        if verdict:
            return True
        unknown = unknown or verdict is None
    return None if unknown or next(unsafe, None) else False


def _deviations(explorer: Explorer, path: Sequence[Node]) -> Iterator[tuple[int, Node]]:
    """Yield once each state to which one action, or the effects of a refusal, leads from a state of the path, with the
    index of that state.
    """
    seen = set[Node]()
    for index, node in enumerate(path[:-1]):
        for successor in (*(successor for _, successor in explorer.expand(node)), *explorer.mistakes(node)):
            if successor not in seen:
                seen.add(successor)
                yield index, successor
