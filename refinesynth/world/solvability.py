"""Solvability check of a grounded script before it is played: a solution, its difficulty, and faults of the rulebook.

All limits are numbers of states and amounts of work, not time, so the result is the same on every machine.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import cast

from pydantic import JsonValue

from refinesynth.trajectory import Difficulty, Script
from refinesynth.trajectory.weak_cache import weakly_cached
from refinesynth.world.executor import World, world_or_problem
from refinesynth.world.explore import Explorer, Node, RulebookFaults
from refinesynth.world.expression import MAX_STATE_BYTES, fits
from refinesynth.world.ground_actions import Fact, GroundAction, some_ground_actions
from refinesynth.world.planner import Planner, pruned
from refinesynth.world.random_starts import outcomes
from refinesynth.world.rulebook_errors import Inapplicable
from refinesynth.world.work_limit import WorkLimit, WorkLimitExceeded

DEVIATIONS = 200
"""Maximum number of deviations from the solution that are tested for losing the goal."""


def difficulty_of(explorer: Explorer, path: Sequence[Node], solution: Sequence[GroundAction]) -> Difficulty:
    """Return the difficulty of a solution with its states; `losable` is not set."""
    world, start = explorer.planner.world, path[0]
    used = {value for action in solution for value in action.values.values()} & world.names
    choices = [len(explorer.expand(node)) for node in path[:-1]]
    needs: dict[Fact, None] = dict.fromkeys(fact for action in solution for fact in action.requires)
    needs.update(dict.fromkeys(explorer.planner.goal))
    # Values that no sight ever shows, such as a selected temperature, are not hidden things.
    ever = {name for node in path for name in world.visible(node.state)}
    return Difficulty(
        steps=len(solution),
        branching=round(sum(choices) / len(choices), 2) if choices else 0.0,
        preconditions=len(explorer.unmet(start, needs)),
        distractors=round(1 - len(used) / len(world.names), 3) if world.names else 0.0,
        hidden=len((used & ever).difference(world.visible(start.state))),
    )


def losable(
    explorer: Explorer, path: Sequence[Node], solution: Sequence[GroundAction], *, complete: bool
) -> bool | None:
    """Return whether a single action instead of one of the solution's, or the effects of its refusal, can make the goal
    unreachable; None if unknown.

    `complete` tells whether the explorer knows all actions. An action is safe if the rest of the solution works after
    it or if it can be undone, and fatal if the goal is provably unreachable.
    """
    deviations = _Deviations(explorer, set(path), complete=complete)
    unknown = False
    for at, node in enumerate(path[:-1]):
        for after in (*(after for _, after in explorer.expand(node)), *explorer.mistakes(node)):
            fatal = deviations.fatal(after, solution[at:])
            if fatal:
                return True
            unknown = unknown or fatal is None
    return None if unknown else False


class _Deviations:
    """States next to the solution, with those known to be safe."""

    def __init__(self, explorer: Explorer, safe: set[Node], *, complete: bool) -> None:
        self._explorer = explorer
        self._safe = safe
        self._complete = complete
        self._verdicts: dict[Node, bool | None] = {}

    def fatal(self, node: Node, rest: Sequence[GroundAction]) -> bool | None:
        """Return whether the goal is unreachable from this state; None if unknown. `rest` are the next actions of the
        solution.
        """
        if node in self._safe or self._explorer.done(node):
            return False
        if node not in self._verdicts:
            if len(self._verdicts) >= DEVIATIONS:
                return None
            self._verdicts[node] = self._judged(node, rest)
        return self._verdicts[node]

    def _judged(self, node: Node, rest: Sequence[GroundAction]) -> bool | None:
        explorer = self._explorer
        if self._leads_on(node, rest) or self._leads_on(node, rest[1:]):
            return False
        if any(after in self._safe for _, after in explorer.expand(node)):
            self._safe.add(node)
            return False
        return True if self._complete and explorer.out_of_reach(node) else None

    def _leads_on(self, node: Node, actions: Sequence[GroundAction]) -> bool:
        """Return whether these actions lead to the goal or a safe state; the states on the way are safe then too."""
        nodes = self._explorer.follow(node, actions)
        for at, each in enumerate(nodes):
            if each in self._safe or self._explorer.done(each):
                self._safe.update(nodes[: at + 1])
                return True
        return False


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
    """True if the goal is reached at the beginning, in the written environment or a drawn one."""
    unproved_draws: tuple[str, ...] = ()
    """Drawn environments without a known solution."""
    unusable: tuple[str, ...] = ()
    """Name templates of actions that are provably never possible."""
    never_in_place: tuple[str, ...] = ()
    """Values whose actions are provably always refused as `place`."""
    never_made: tuple[str, ...] = ()
    """Effects whose condition never held in the examined states; in no state if `exhausted`."""
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
    if not fits(cast("JsonValue", world.script.environment)):
        fault = f"the environment holds what JSON cannot say, is nested too deep or larger than {MAX_STATE_BYTES:,} bytes; make it smaller"
        return Solvability(faults=(fault,))
    checker = _Checker(world)
    try:
        with WorkLimit(MAX_CHECKED_WORK).applied():
            checker.check()
    except WorkLimitExceeded:
        checker.exhausted = False
    return checker.found()


@dataclass
class _Checker:
    """A running check; its partial results are kept at the work limit."""

    world: World
    solution_problem: str | None = None
    shortest: tuple[GroundAction, ...] | None = None
    exhausted: bool = False
    unusable: tuple[str, ...] = ()
    never_in_place: tuple[str, ...] = ()
    never_made: tuple[str, ...] = ()
    difficulty: Difficulty | None = None
    unproved_draws: tuple[str, ...] = ()
    drawn_met: bool = False
    faults: RulebookFaults = field(default_factory=RulebookFaults)

    def found(self) -> Solvability:
        """Return the results so far."""
        return Solvability(
            solution_problem=self.solution_problem,
            shortest=None if self.shortest is None else tuple(action.text for action in self.shortest),
            exhausted=self.exhausted,
            met_at_start=self.drawn_met or self.world.done(cast("JsonValue", self.world.script.environment)),
            unproved_draws=self.unproved_draws,
            unusable=self.unusable,
            never_in_place=self.never_in_place,
            never_made=self.never_made,
            faults=self.faults.messages(),
            difficulty=self.difficulty,
        )

    def check(self) -> None:
        """Run all checks, cheap and important ones first."""
        texts, complete = some_ground_actions(self.world, MAX_CHECKED_ACTIONS)
        rulebook = self.world.script.rulebook
        solution = () if rulebook is None else rulebook.solution
        planner = Planner(self.world, (*texts, *solution))
        explorer = Explorer(planner, self.faults)
        start = explorer.begin(cast("JsonValue", self.world.script.environment))
        # An action that is impossible here may be possible in a drawn environment, and nothing is played after the goal.
        complete = complete and not (rulebook and rulebook.draws) and not explorer.done(start)
        self._check_beginning(start)
        own = self._own_solution(explorer, start, solution)
        self._improve(own if own is None or len(own) > MAX_PRUNED_LENGTH else pruned(self.world, start.state, own))
        self._scan(explorer, start)
        if self.shortest is None:
            self._improve(planner.find(start.state, planner.goal, MAX_SEARCHED_STATES, blindly=False))
        wide = explorer.breadth_first(start, MAX_EXPANDED_STATES)
        self.exhausted = complete and wide.exhausted
        self._improve(wide.way)
        self._check_draws(explorer)
        if self.shortest is None:
            self._check_goal(wide.nodes)
        path = explorer.follow(start, self.shortest or ())
        for node in (*path, *wide.nodes[:MAX_INSPECTED_STATES]):
            self.faults.check_sights(self.world, node.state)
        if self.shortest is not None:
            self.difficulty = difficulty_of(explorer, path, self.shortest)
            lost = losable(explorer, path, self.shortest, complete=complete)
            self.difficulty = self.difficulty.model_copy(update={"losable": lost})
        self._look_for_uses(explorer, start, complete=complete)
        self.never_made = explorer.never_made()
        if complete:
            never = explorer.never_in_place(start, wide.nodes if self.exhausted else None)
            # An executed solution is the stronger proof.
            used = {value for action in self.shortest or () for value in action.values.values()}
            self.never_in_place = tuple(sorted(never - used))

    def _improve(self, found: Sequence[GroundAction] | None) -> None:
        if found is not None and (self.shortest is None or len(found) < len(self.shortest)):
            self.shortest = tuple(found)

    def _check_beginning(self, start: Node) -> None:
        for at, broken in self.world.broken_invariants(start.state):
            self.faults.add(f"invariant {at}", f"invariant {at} is broken at the beginning, {broken}")
        self.faults.check_sights(self.world, start.state)
        if self.world.knowledge is None:
            return
        try:
            if self.world.knowledge.after(start.state, self.world.script.introduction, {}) is not start.state:
                what = "the introduction tells what the player does not know at the beginning"
                self.faults.add("knows", f"knows: {what}; put it into the list")
        except Inapplicable as error:
            self.faults.add("knows", f"knows: {error}; put an empty list there")

    def _check_draws(self, explorer: Explorer) -> None:
        """Search for a way to the goal from each drawn environment; try the known solution first."""
        drawn = {words: cast("JsonValue", script.environment) for words, script in outcomes(self.world.script)}
        self.unproved_draws = tuple(drawn)
        for words, state in drawn.items():
            start = explorer.begin(state)
            self._check_beginning(start)
            self.drawn_met = self.drawn_met or explorer.done(start)
            way = explorer.follow(start, self.shortest or ())
            planner = explorer.planner
            if explorer.done(way[-1]) or planner.find(state, planner.goal, MAX_SEARCHED_STATES) is not None:
                self.unproved_draws = tuple(other for other in self.unproved_draws if other != words)

    def _own_solution(
        self, explorer: Explorer, start: Node, solution: Sequence[str]
    ) -> tuple[GroundAction, ...] | None:
        """Return the author's solution up to the goal without actions that change nothing; None if it does not reach
        it.
        """
        if not solution:
            self.solution_problem = (
                "the rulebook has no solution; write the actions that reach the goal from the beginning"
            )
            return None
        known = {action.text: action for action in explorer.planner.actions}
        taken: list[GroundAction] = []
        state = start.state
        for at, text in enumerate(solution, 1):
            if self.world.done(state):
                break
            ruling = self.world.step(state, text)
            if ruling.kind is not None:
                why = ruling.problem or ruling.text
                self.solution_problem = f"action {at} of the solution, {text!r}, cannot be carried out there: {why}"
                return None
            if ruling.state is not state:
                taken.append(known[text])
            state = ruling.state
        unmet = [at for at, condition in enumerate(self.world.goal, 1) if condition.answer(state, {}) is not True]
        if unmet:
            numbers = ", ".join(map(str, unmet))
            self.solution_problem = f"after all {len(solution)} actions of the solution, these conditions of the goal do not hold: {numbers}"
            return None
        return tuple(taken)

    def _scan(self, explorer: Explorer, node: Node) -> None:
        """Check the hint of the first unmet requirement of every action in a state."""
        for action in explorer.planner.actions:
            unmet = action.action.unmet(node.state, action.values)
            if unmet is not None and unmet.problem is None:
                where = f"the hint of requirement {unmet.at + 1} of {action.action.spec.name!r}"
                self.faults.fill(where, unmet.requirement.hint, node.state, action.values)

    def _check_goal(self, nodes: Sequence[Node]) -> None:
        """Record goal conditions that have an answer in none of the first `MAX_INSPECTED_STATES` states."""
        for at, condition in enumerate(self.world.goal, 1):
            answers = [condition.answer(node.state, {}) for node in nodes[:MAX_INSPECTED_STATES]]
            if answers and all(isinstance(answer, str) for answer in answers):
                self.faults.add(
                    f"goal {at}", f"goal condition {at} has no answer in any state that was reached: {answers[0]}"
                )

    def _look_for_uses(self, explorer: Explorer, start: Node, *, complete: bool) -> None:
        """Find provably impossible actions among those that were not possible so far."""
        listed = dict.fromkeys(action.action.spec.name for action in explorer.planner.actions)
        missing = [name for name in listed if name not in explorer.usable]
        if self.exhausted:
            self.unusable = tuple(missing)
        elif missing and complete:
            never = explorer.never_possible(start)
            self.unusable = tuple(name for name in missing if name in never)
