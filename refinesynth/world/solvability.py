"""Solvability: what is proved of a grounded script before it is played: can it be won, how, and what is wrong with it.

All bounds are numbers of states and amounts of work, never time: the same script has the same result on every machine.
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
from refinesynth.world.ground_actions import Fact, GroundAction, WorkLimit, WorkLimitExceeded, some_ground_actions
from refinesynth.world.planner import Planner, pruned
from refinesynth.world.random_starts import outcomes
from refinesynth.world.rulebook_errors import Inapplicable

DEVIATIONS = 200
"""Single actions off the solution of which it is found out whether the goal can be reached after them."""


def difficulty_of(explorer: Explorer, path: Sequence[Node], solution: Sequence[GroundAction]) -> Difficulty:
    """The difficulty as far as a solution and the states along it say it; whether the goal can be lost is left open."""
    world, start = explorer.planner.world, path[0]
    used = {value for action in solution for value in action.values.values()} & world.names
    choices = [len(explorer.expand(node)) for node in path[:-1]]
    needs: dict[Fact, None] = dict.fromkeys(fact for action in solution for fact in action.requires)
    needs.update(dict.fromkeys(explorer.planner.goal))
    # What no sight ever shows, such as a temperature that is chosen, is no hidden thing.
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
    """Return whether a single action, taken instead of one of the solution's, can make the goal unreachable, by what it does
    or by what its refusal costs; None if that is not known.

    `complete` says whether the explorer knows all actions. An action counts as safe if the rest of the solution can be
    carried out after it, or if it can be undone; as fatal if it is certain that nothing leads to the goal.
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
    """States next to the solution, and which of them are known to be safe."""

    def __init__(self, explorer: Explorer, safe: set[Node], *, complete: bool) -> None:
        self._explorer = explorer
        self._safe = safe
        self._complete = complete
        self._verdicts: dict[Node, bool | None] = {}

    def fatal(self, node: Node, rest: Sequence[GroundAction]) -> bool | None:
        """Return whether the goal cannot be reached from this state; None if that is not known. `rest` is what was to be done
        next.
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
        """Return whether these actions lead from here to the goal or to a state that is safe; those on the way are safe then
        too.
        """
        nodes = self._explorer.follow(node, actions)
        for at, each in enumerate(nodes):
            if each in self._safe or self._explorer.done(each):
                self._safe.update(nodes[: at + 1])
                return True
        return False


MAX_CHECKED_ACTIONS = 800
"""Most ground actions of a world that are looked at."""

MAX_CHECKED_WORK = 600_000_000
"""Work of one check at most: a few seconds, which only huge worlds or ones made to be slow need."""

MAX_EXPANDED_STATES = 40
"""States from the beginning on from which every possible action is tried."""

MAX_SEARCHED_STATES = 120
"""States in which a solution is looked for where the author's own does not work."""

MAX_INSPECTED_STATES = 16
"""States of those nearest to the beginning in which sights, or goals that were not reached, are looked at."""

MAX_PRUNED_LENGTH = 40
"""Longest solution of which it is tried to leave out each action."""


@dataclass(frozen=True, slots=True)
class Solvability:
    """Proven facts about a grounded script."""

    problem: str | None = None
    """Reason why the rulebook cannot be run at all, if so; all else is then unknown."""
    solution_problem: str | None = None
    """Fault of the author's own solution, if any; its absence is one too."""
    shortest: tuple[str, ...] | None = None
    """The best solution that was found, the author's or another; None if none was."""
    exhausted: bool = False
    """True if every state was seen that can be reached: what was not found then does not exist, and `shortest` is the
    shortest."""
    met_at_start: bool = False
    """True if the goal is reached before anything is done, in the environment or one that can be drawn."""
    unproved_draws: tuple[str, ...] = ()
    """Environments that can be drawn and from which no way to the goal was found."""
    unusable: tuple[str, ...] = ()
    """Name templates of actions that can never be possible, wherever one goes: that is certain."""
    never_in_place: tuple[str, ...] = ()
    """Values all of whose actions are refused as `place`, wherever one goes: that is certain."""
    never_made: tuple[str, ...] = ()
    """Effects whose condition held in none of the states that were looked at; none in any state if `exhausted`."""
    faults: tuple[str, ...] = ()
    """Effects that cannot be applied, conditions without an answer, broken invariants, lookups of what is never there:
    where, and how to fix it."""
    difficulty: Difficulty | None = None
    """None if no solution was found."""


def check_solvability(script: Script) -> Solvability:
    """Check a script's world; the result is kept as long as the world is. Never raises; takes a few seconds at most."""
    world = world_or_problem(script)
    return Solvability(problem=world) if isinstance(world, str) else _check(world)


@weakly_cached
def _check(world: World) -> Solvability:
    if not fits(cast("JsonValue", world.script.environment)):
        fault = f"the environment holds what JSON cannot say, is nested too deep or larger than {MAX_STATE_BYTES:,} bytes; make it smaller"
        return Solvability(faults=(fault,))
    checker = _Checker(world)
    try:
        checker.check()
    except WorkLimitExceeded:
        checker.exhausted = False
    return checker.found()


@dataclass
class _Checker:
    """One check under way: what is found so far stays where the work limit is reached."""

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
        """Return what is proved so far."""
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
        """Check everything, the cheapest and most important things first."""
        texts, complete = some_ground_actions(self.world, MAX_CHECKED_ACTIONS)
        rulebook = self.world.script.rulebook
        solution = () if rulebook is None else rulebook.solution
        # What is impossible in this environment may be possible in one that is drawn.
        complete = complete and not (rulebook and rulebook.draws)
        planner = Planner(self.world, (*texts, *solution), WorkLimit(MAX_CHECKED_WORK))
        explorer = Explorer(planner, self.faults)
        start = explorer.begin(cast("JsonValue", self.world.script.environment))
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
            # A solution that was carried out is the better proof.
            used = {value for action in self.shortest or () for value in action.values.values()}
            self.never_in_place = tuple(sorted(never - used))

    def _improve(self, found: Sequence[GroundAction] | None) -> None:
        if found is not None and (self.shortest is None or len(found) < len(self.shortest)):
            self.shortest = tuple(found)

    def _check_beginning(self, start: Node) -> None:
        for at, invariant in enumerate(self.world.invariants, 1):
            if broken := invariant.broken(start.state):
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
        """Look for a way to the goal from each environment that can be drawn, the known solution first."""
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
        """The author's solution up to where it reaches the goal, without what changes nothing; None if it does not
        reach it.
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
        """Ask every action for what it requires here, and read the hints."""
        for number, action in enumerate(explorer.planner.actions):
            explorer.planner.work_limit.charge(node.size)
            unmet = explorer.refused(node, number)
            if unmet is not None and unmet.problem is None:
                where = f"the hint of requirement {unmet.at + 1} of {action.action.spec.name!r}"
                self.faults.fill(where, unmet.requirement.hint, node.state, action.values)

    def _check_goal(self, nodes: Sequence[Node]) -> None:
        """Note conditions of the goal that have no answer in any state."""
        for at, condition in enumerate(self.world.goal, 1):
            answers = [condition.answer(node.state, {}) for node in nodes[:MAX_INSPECTED_STATES]]
            if answers and all(isinstance(answer, str) for answer in answers):
                self.faults.add(
                    f"goal {at}", f"goal condition {at} has no answer in any state that was reached: {answers[0]}"
                )

    def _look_for_uses(self, explorer: Explorer, start: Node, *, complete: bool) -> None:
        """Find actions that can never be possible, among those that were not possible anywhere so far."""
        listed = dict.fromkeys(action.action.spec.name for action in explorer.planner.actions)
        missing = [name for name in listed if name not in explorer.usable]
        if self.exhausted:
            self.unusable = tuple(missing)
        elif missing and complete:
            never = explorer.never_possible(start)
            self.unusable = tuple(name for name in missing if name in never)
