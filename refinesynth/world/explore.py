"""Exploration of a world: states, possible actions in each, and the rulebook faults found."""

from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from itertools import chain, islice
from typing import NamedTuple

from pydantic import JsonValue

from refinesynth.errors import Inapplicable
from refinesynth.world.expression import state_digest
from refinesynth.world.ground_actions import Fact, GroundAction, Place, overlap
from refinesynth.world.planner import Planner
from refinesynth.world.text_template import Pointer, Template

MAX_FAULTS = 16
"""Maximum number of reported faults."""

_MAX_REACH_STATES = 16
"""Maximum number of states in the test whether the goal is out of reach, if refusals have effects."""


class RulebookFaults:
    """Faults in order of discovery, one per place of the rulebook."""

    def __init__(self) -> None:
        self._messages: dict[str, str] = {}
        self._lookups: dict[tuple[str, Pointer], bool] = {}

    def messages(self) -> tuple[str, ...]:
        """Return all faults as messages to the author, at most `MAX_FAULTS`."""
        places = dict.fromkeys(place for (place, _), found in self._lookups.items() if not found)
        fault = "looks up what was never there; mend the pointer, or put it into the state"
        return (*self._messages.values(), *(f"{place} {fault}" for place in places))[:MAX_FAULTS]

    def add(self, place: str, message: str) -> None:
        """Record a fault, unless one at the same place is known."""
        self._messages.setdefault(place, message)

    def add_problem(self, problem: str, text: str) -> None:
        """Record the reason why an action could not be executed."""
        # A problem names its place before the colon and the reason after it.
        self.add(problem.partition(": ")[0], f"{problem} (tried: {text!r})")

    def record_condition(self, text: str, name: str, answer: bool | str) -> None:
        """Record that a condition of an action with this text has no answer, if it has none."""
        if isinstance(answer, str):
            place = f"the condition of {name}"
            self.add(place, f"{place} has no answer: {answer} (tried: {text!r})")

    def check_lookups(self, place: str, template: Template, state: JsonValue, values: Mapping[str, str]) -> None:
        """Record for each lookup of a text whether it finds a value here or found one before."""
        for part in template.parts:
            if isinstance(part, Pointer) and not self._lookups.get((place, part)):
                self._lookups[place, part] = False
                with suppress(Inapplicable):
                    part.read(state, values)
                    self._lookups[place, part] = True


@dataclass(frozen=True, slots=True, eq=False)
class Node:
    """A reached state; equal states share one object."""

    state: JsonValue
    answers: dict[Fact, bool | str] = field(default_factory=dict[Fact, "bool | str"])
    """Known answers in this state, or reasons why there is none."""


class BreadthFirstResult(NamedTuple):
    """Result of a breadth-first search."""

    nodes: tuple[Node, ...]
    """Expanded nodes."""
    plan: tuple[GroundAction, ...] | None
    """Shortest known plan to the goal, if any."""
    exhausted: bool
    """True if no state is left to expand."""


class Explorer:
    """Reached states of a world."""

    def __init__(self, planner: Planner) -> None:
        self.planner = planner
        self.faults = RulebookFaults()
        self._usable: set[str] = set()
        """Name templates of actions that were possible in some state."""
        self._with_refusal_effects = [action for action in planner.actions if action.refusal_writes]
        self._facts = dict.fromkeys((*(fact for action in planner.actions for fact in action.requires), *planner.goal))
        self._readers: dict[Place, list[Fact]] = {}
        for fact in self._facts:
            for place in fact.reads:
                self._readers.setdefault(place, []).append(fact)
        self._reading: dict[Place, frozenset[Fact]] = {}
        self._nodes: dict[bytes | None, Node] = {}
        # Not stored in the nodes, which would form reference cycles that outlive the check.
        self._successor_cache: dict[Node, tuple[tuple[GroundAction, Node], ...]] = {}

    def node(self, state: JsonValue) -> Node:
        """Return the node of a state."""
        return self._nodes.setdefault(state_digest(state), Node(state))

    def is_goal(self, node: Node) -> bool:
        """Return whether the goal is reached."""
        return all(self._answer(node, fact) is True for fact in self.planner.goal)

    def expand(self, node: Node) -> tuple[tuple[GroundAction, Node], ...]:
        """Return all possible actions that change the state, with their resulting nodes."""
        successors = self._successor_cache.get(node)
        if successors is None:
            successors = self._successor_cache[node] = tuple(self._successors(node, self.planner.actions))
        return successors

    def _successors(self, node: Node, actions: Iterable[GroundAction]) -> Iterator[tuple[GroundAction, Node]]:
        """Yield those of these actions that are possible and change the state, with their resulting nodes."""
        for action in actions:
            if not self._is_possible(node, action):
                continue
            trace = partial(self.faults.record_condition, action.text)
            try:
                new = self.planner.world.state_after(node.state, action.action, action.values, trace)
            except Inapplicable as error:
                self.faults.add_problem(str(error), action.text)
                continue
            name = action.action.spec.name
            self._usable.add(name)
            template = action.action.observation(node.state, new, action.values, trace)
            self.faults.check_lookups(f"reveals of {name!r}", template, new, action.values)
            if new is not node.state:
                yield action, self.node(new)

    def mistakes(self, node: Node) -> tuple[Node, ...]:
        """Return the nodes that result from all refused actions that change the state."""
        nodes: list[Node] = []
        for action in self._with_refusal_effects:
            unmet = action.action.first_unmet(node.state, action.values)
            if unmet is None:
                continue
            trace = partial(self.faults.record_condition, action.text)
            try:
                new = self.planner.world.state_after_mistake(node.state, action.action, action.values, unmet, trace)
            except Inapplicable as error:
                self.faults.add_problem(str(error), action.text)
                continue
            if new is not node.state:
                nodes.append(self.node(new))
        return tuple(nodes)

    def follow(self, node: Node, actions: Iterable[GroundAction]) -> tuple[Node, ...]:
        """Return `node` and the states along these actions, up to one that is not possible or changes nothing."""
        nodes = [node]
        for action in actions:
            _, successor = next(self._successors(nodes[-1], (action,)), (action, None))
            if successor is None:
                break
            nodes.append(successor)
        return tuple(nodes)

    def breadth_first(self, start: Node, max_states: int) -> BreadthFirstResult:
        """Expand at most `max_states` states, nearest first; goal states behind the first are not expanded.

        Refusals with effects are explored last and are not part of the plan.
        """
        plans: dict[Node, tuple[GroundAction, ...]] = {start: ()}
        queue = [start]
        plan: tuple[GroundAction, ...] | None = () if self.is_goal(start) else None
        for node, step, successor in self._expand_queue(queue, max_states):
            plans[successor] = (*plans[node], *step)
            if plan is None and self.is_goal(successor):
                plan = plans[successor]
        if len(queue) <= max_states and self._with_refusal_effects:
            list(self._expand_queue(queue, max_states, mistakes=True))
        return BreadthFirstResult(tuple(queue[:max_states]), plan, exhausted=len(queue) <= max_states)

    def _expand_queue(
        self, queue: list[Node], max_states: int, *, mistakes: bool = False
    ) -> Iterator[tuple[Node, tuple[GroundAction, ...], Node]]:
        """Expand at most `max_states` states of the queue. Yield each new state after the one that leads there by an
        action, or with `mistakes` by none, and append it to the queue unless the goal is reached.
        """
        seen = set(queue)
        for node in islice(queue, max_states):  # which grows meanwhile
            refused = (((), successor) for successor in (self.mistakes(node) if mistakes else ()))
            for step, successor in (*refused, *(((action,), successor) for action, successor in self.expand(node))):
                if successor not in seen:
                    seen.add(successor)
                    if not self.is_goal(successor):
                        queue.append(successor)
                    yield node, step, successor

    def is_goal_unreachable(self, node: Node) -> bool:
        """Return whether the goal is provably unreachable from here with the known actions.

        False is no proof of the contrary.
        """
        if not self._reachable_facts(node).issuperset(self.planner.goal):
            return True
        if not self._with_refusal_effects:
            return False
        # With mistakes, `_reachable_facts` is too optimistic: it assumes that they can establish all that they touch.
        queue = [node]
        expansions = self._expand_queue(queue, _MAX_REACH_STATES, mistakes=True)
        return not any(self.is_goal(successor) for _, _, successor in expansions) and len(queue) <= _MAX_REACH_STATES

    def unusable(self, start: Node, *, exhausted: bool) -> tuple[str, ...]:
        """Return name templates of actions that were possible in no state so far, and if not all states are known
        (`exhausted`), are provably impossible from the start on in every form, for the known actions.
        """
        reachable, usable = self._reachable_facts(start), self._usable
        if not exhausted:
            usable = usable.union(
                action.action.spec.name for action in self.planner.actions if reachable.issuperset(action.requires)
            )
        names = dict.fromkeys(action.action.spec.name for action in self.planner.actions)
        return tuple(name for name in names if name not in usable)

    def _reachable_facts(self, node: Node) -> set[Fact]:
        """Return the conditions that may ever hold after this state, if each written place may take any value."""
        reachable = {fact for fact in self._facts if self._answer(node, fact) is True}
        for action in self._with_refusal_effects:
            reachable |= self._affected(action.refusal_writes)
        pending = [*self.planner.actions]
        while applicable := [action for action in pending if reachable.issuperset(action.requires)]:
            for action in applicable:
                reachable |= self._affected(action.writes)
            remaining = set(pending).difference(applicable)
            pending = [action for action in pending if action in remaining]
        return reachable

    def _is_possible(self, node: Node, action: GroundAction) -> bool:
        for fact in action.requires:
            answer = self._answer(node, fact)
            if answer is not True:
                unmet = action.action.first_unmet(node.state, action.values) if isinstance(answer, str) else None
                if unmet is not None and unmet.problem is not None:
                    self.faults.add_problem(unmet.problem, action.text)
                return False
        return True

    def _answer(self, node: Node, fact: Fact) -> bool | str:
        answer = node.answers.get(fact)
        if answer is None:
            answer = node.answers[fact] = fact.answer(node.state)
        return answer

    def _affected(self, writes: tuple[Place, ...]) -> frozenset[Fact]:
        """Return the conditions that read one of these places."""
        for write in writes:
            if write not in self._reading:
                readers = (facts for read, facts in self._readers.items() if overlap(write, read))
                self._reading[write] = frozenset(chain.from_iterable(readers))
        return frozenset(chain.from_iterable(self._reading[write] for write in writes))
