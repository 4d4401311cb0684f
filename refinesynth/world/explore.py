"""Exploration of a world: states, possible actions in each, and the rulebook faults found.

Conditions keep their answer in the next state unless an action wrote a value that they read, so a further state is much
cheaper than a full evaluation.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from pydantic import JsonValue

from refinesynth.trajectory import MistakeKind
from refinesynth.world.compiled_action import CompiledAction
from refinesynth.world.effects import Notice
from refinesynth.world.executor import World
from refinesynth.world.expression import state_digest
from refinesynth.world.ground_actions import Fact, GroundAction, Item, Place, ShownFact, overlap
from refinesynth.world.hidden_places import only_lists, shown_anywhere
from refinesynth.world.planner import Planner
from refinesynth.world.rulebook_errors import Inapplicable
from refinesynth.world.text_template import Pointer, Template

MAX_FAULTS = 16
"""Maximum number of reported faults."""

_MAX_FLOODED = 16
"""Maximum number of states in the test whether the goal is out of reach, if refusals have effects."""


class RulebookFaults:
    """Faults in order of discovery, one per place of the rulebook."""

    def __init__(self) -> None:
        self._messages: dict[str, str] = {}
        self.held: set[str] = set()
        """Names of effects and texts whose condition held."""
        self._looked_up: dict[tuple[str, Pointer], bool] = {}

    def messages(self) -> tuple[str, ...]:
        """Return all faults as messages to the author, at most `MAX_FAULTS`."""
        missing = (where for (where, _), found in self._looked_up.items() if not found)
        lost = (
            f"{where} looks up what was never there; mend the pointer, or put it into the state" for where in missing
        )
        return (*self._messages.values(), *dict.fromkeys(lost))[:MAX_FAULTS]

    def add(self, where: str, what: str) -> None:
        """Record a fault, unless one at the same place is known."""
        self._messages.setdefault(where, what)

    def met(self, problem: str, text: str) -> None:
        """Record the reason why an action could not be executed."""
        # A problem names its place before the colon and the reason after it.
        self.add(problem.partition(": ")[0], f"{problem} (tried: {text!r})")

    def unanswered(self, action: CompiledAction, state: JsonValue, values: Mapping[str, str], text: str) -> None:
        """Record a requirement without an answer, if it decides the ruling."""
        unmet = action.unmet(state, values)
        if unmet is not None and unmet.problem is not None:
            self.met(unmet.problem, text)

    def check_sights(self, world: World, state: JsonValue) -> None:
        """Record the fault of the sights in this state, if any."""
        problem = world.visibility.names_in(state).problem
        if problem is not None:
            self.add("the sights", problem)

    def noticing(self, text: str) -> Notice:
        """Return a callback that records which conditions of an action with this text hold or have no answer."""

        def notice(name: str, answer: bool | str) -> None:
            if answer is True:
                self.held.add(name)
            elif isinstance(answer, str):
                where = f"the condition of {name}"
                self.add(where, f"{where} has no answer: {answer} (tried: {text!r})")

        return notice

    def fill(self, where: str, template: Template, state: JsonValue, values: Mapping[str, str]) -> None:
        """Record for each lookup of a text whether it finds a value here or found one before."""
        for part in template.parts:
            if isinstance(part, Pointer) and not self._looked_up.get((where, part)):
                self._looked_up[where, part] = _finds(part, state, values)


def _finds(pointer: Pointer, state: JsonValue, values: Mapping[str, str]) -> bool:
    try:
        pointer.read(state, values)
    except Inapplicable:
        return False
    return True


_UNASKED, _HOLDS, _FAILS, _UNANSWERED = range(4)


@dataclass(slots=True, eq=False)
class Node:
    """A reached state; equal states share one object."""

    state: JsonValue
    truth: bytearray
    """Known answers of each condition in this state."""


@dataclass(frozen=True, slots=True, eq=False)
class BreadthFirstResult:
    """Result of a breadth-first search."""

    nodes: tuple[Node, ...]
    """Expanded nodes."""
    way: tuple[GroundAction, ...] | None
    """Shortest known way to the goal, if any."""
    exhausted: bool
    """True if no state is left to expand."""


class Explorer:
    """Reached states of a world."""

    def __init__(self, planner: Planner, faults: RulebookFaults) -> None:
        self.planner = planner
        self.faults = faults
        self.usable: set[str] = set()
        """Name templates of actions that were possible in some state."""
        self._numbers: dict[Fact, int] = {}
        self._needs = [self._numbered(action.requires) for action in planner.actions]
        self._at = {action.text: at for at, action in enumerate(planner.actions)}
        self._costly = [at for at, action in enumerate(planner.actions) if action.costs]
        self._goal = self._numbered(planner.goal)
        self._facts = tuple(self._numbers)
        self._readers: dict[Place, list[int]] = {}
        for number, fact in enumerate(self._facts):
            for place in fact.reads:
                self._readers.setdefault(place, []).append(number)
        self._written: dict[Place, frozenset[int]] = {}
        self._grown_at: dict[Place, Place] = {}
        self._nodes: dict[bytes | None, Node] = {}
        # Not stored in the nodes, which would form reference cycles that outlive the check.
        self._following: dict[Node, tuple[tuple[GroundAction, Node], ...]] = {}

    def begin(self, state: JsonValue) -> Node:
        """Return the node of an initial state."""
        return self._node(state)

    def done(self, node: Node) -> bool:
        """Return whether the goal is reached."""
        return all(self._ask(node, number) == _HOLDS for number in self._goal)

    def expand(self, node: Node) -> tuple[tuple[GroundAction, Node], ...]:
        """Return all possible actions that change the state, with their resulting nodes."""
        following = self._following.get(node)
        if following is None:
            following = self._following[node] = tuple(self._successors(node, range(len(self._needs))))
        return following

    def _successors(self, node: Node, numbers: Iterable[int]) -> list[tuple[GroundAction, Node]]:
        """Return those of these actions that are possible and change the state, with their resulting nodes."""
        found: list[tuple[GroundAction, Node]] = []
        for number in numbers:
            if not self._possible(node, number):
                continue
            action = self.planner.actions[number]
            notice = self.faults.noticing(action.text)
            try:
                new = self.planner.world.after(node.state, action.action, action.values, notice)
            except Inapplicable as error:
                self.faults.met(str(error), action.text)
                continue
            spec = action.action.spec
            self.usable.add(spec.name)
            words = action.action.observation(node.state, new, action.values, notice)
            self.faults.fill(f"reveals of {spec.name!r}", words, new, action.values)
            if new is not node.state:
                found.append((action, self._node(new, node, action.writes)))
        return found

    def mistakes(self, node: Node) -> tuple[Node, ...]:
        """Return the nodes that result from all refused actions that change the state."""
        found: list[Node] = []
        for number in self._costly:
            action = self.planner.actions[number]
            unmet = action.action.unmet(node.state, action.values)
            if unmet is None:
                continue
            notice = self.faults.noticing(action.text)
            try:
                new = self.planner.world.after_mistake(node.state, action.action, action.values, unmet, notice)
            except Inapplicable as error:
                self.faults.met(str(error), action.text)
                continue
            if new is not node.state:
                found.append(self._node(new, node, action.costs))
        return tuple(found)

    def follow(self, node: Node, actions: Iterable[GroundAction]) -> tuple[Node, ...]:
        """Return `node` and the states along these actions, up to one that is not possible or changes nothing."""
        nodes = [node]
        for action in actions:
            found = self._successors(nodes[-1], (self._at[action.text],))
            if not found:
                break
            nodes.append(found[0][1])
        return tuple(nodes)

    def breadth_first(self, start: Node, most: int) -> BreadthFirstResult:
        """Expand at most `most` states, nearest first; goal states behind the first are not expanded.

        Refusals with effects are explored last and are not part of the way.
        """
        ways: dict[int, tuple[GroundAction, ...]] = {id(start): ()}
        queue = [start]
        found: tuple[GroundAction, ...] | None = () if self.done(start) else None
        at = 0
        while at < len(queue) and at < most:
            node = queue[at]
            way = ways[id(node)]
            at += 1
            for action, after in self.expand(node):
                if id(after) in ways:
                    continue
                ways[id(after)] = (*way, action)
                if self.done(after):
                    found = found if found is not None else ways[id(after)]
                else:
                    queue.append(after)
        if at == len(queue) and self._costly:
            at, _ = self._flood(queue, most)
        return BreadthFirstResult(tuple(queue[:at]), found, exhausted=at == len(queue))

    def _flood(self, queue: list[Node], most: int) -> tuple[int, bool]:
        """Explore from these states with right actions and mistakes, and append new states to `queue`. Return the
        number of expanded states, at most `most`, and whether the goal was reached.
        """
        known, won = set(queue), False
        for at, node in enumerate(queue):
            if at >= most:
                return at, won
            for after in (*self.mistakes(node), *(after for _, after in self.expand(node))):
                if after not in known:
                    known.add(after)
                    if self.done(after):
                        won = True
                    else:
                        queue.append(after)
        return len(queue), won

    def out_of_reach(self, node: Node) -> bool:
        """Return whether the goal is provably unreachable from here with the known actions.

        False is no proof of the contrary.
        """
        if not self._conceivable(node).issuperset(self._goal):
            return True
        if not self._costly:
            return False
        # With mistakes, `_conceivable` is too optimistic: it assumes that they can establish all that they touch.
        queue = [node]
        expanded, won = self._flood(queue, _MAX_FLOODED)
        return expanded == len(queue) and not won

    def never_possible(self, node: Node) -> frozenset[str]:
        """Return name templates of actions that are provably impossible from here on in every form, for the known
        actions.
        """
        conceivable = self._conceivable(node)
        names = {action.action.spec.name for action in self.planner.actions}
        return frozenset(
            names.difference(
                action.action.spec.name
                for action, needs in zip(self.planner.actions, self._needs, strict=True)
                if conceivable.issuperset(needs)
            )
        )

    def _conceivable(self, node: Node) -> set[int]:
        """Return the conditions that may ever hold after this state, if each written place may take any value."""
        possible = {number for number in range(len(self._facts)) if self._ask(node, number) == _HOLDS}
        for number in self._costly:
            possible |= self._touched(self.planner.actions[number].costs)
        waiting = list(range(len(self._needs)))
        while useful := [at for at in waiting if possible.issuperset(self._needs[at])]:
            for at in useful:
                possible |= self._touched(self.planner.actions[at].writes)
            left = set(waiting).difference(useful)
            waiting = [at for at in waiting if at in left]
        return possible

    def never_made(self) -> tuple[str, ...]:
        """Return the names of effects whose condition never held so far."""
        names = dict.fromkeys(name for action in self.planner.actions for name in action.action.conditional())
        return tuple(name for name in names if name not in self.faults.held)

    def never_in_place(self, start: Node, nodes: Sequence[Node] | None) -> frozenset[str]:
        """Return values whose actions all have a `place` requirement that holds in no reachable state.

        Proven for the known actions. `nodes` are all reachable states, if known.
        """
        conceivable, free, fact = self._conceivable(start), set[str](), self.planner.facts.fact
        for action in self.planner.actions:
            places = (
                [fact(part, action.values) for part in requirement.condition.conjuncts]
                for requirement in action.action.requires
                if requirement.kind is MistakeKind.PLACE
            )
            if not any(self._never(facts, conceivable, nodes) for facts in places):
                free.update(action.values.values())
        return self.planner.world.names.difference(free)

    def _never(self, facts: list[Fact], conceivable: set[int], nodes: Sequence[Node] | None) -> bool:
        """Return whether these conditions hold together in no reachable state."""
        numbers = [self._numbers[fact] for fact in facts]
        if not conceivable.issuperset(numbers) or any(map(self._never_shown, facts)):
            return True
        return nodes is not None and not any(
            all(self._ask(node, number) == _HOLDS for number in numbers) for node in nodes
        )

    def _never_shown(self, fact: Fact) -> bool:
        """Return whether a condition requires a visible name that no sight could show in the initial state, and that is
        brought into view only by actions that require the same condition.
        """
        name, sights = fact.sought, self.planner.world.visibility.sights
        if name is None or not sights or name in shown_anywhere(self.planner.world):
            return False
        looked_at = [ShownFact(sight, {}, name).reads[0] for sight in sights if sight.path is not None]
        return not any(
            overlap(write if write[-1:] == (Item(name),) else self._grown(write), place)
            for action in self.planner.actions
            # A refusal's effects apply if a requirement is unmet, so they count even if the action has this condition.
            for write in (*(action.writes if fact not in action.requires else ()), *action.costs)
            for place in looked_at
        )

    def _grown(self, write: Place) -> Place:
        """Return the place of a write, without the item if adding it could extend a text."""
        if not write or not isinstance(write[-1], Item):
            return write
        grown = self._grown_at.get(write)
        if grown is None:
            listed = only_lists(self.planner.world.script.environment, write[:-1])
            grown = self._grown_at[write] = write if listed else write[:-1]
        return grown

    def unmet(self, node: Node, facts: Iterable[Fact]) -> tuple[Fact, ...]:
        """Return the unmet facts; they are requirements or goal conditions."""
        return tuple(fact for fact in facts if self._ask(node, self._numbers[fact]) != _HOLDS)

    def _numbered(self, facts: Iterable[Fact]) -> tuple[int, ...]:
        return tuple(self._numbers.setdefault(fact, len(self._numbers)) for fact in facts)

    def _possible(self, node: Node, number: int) -> bool:
        for need in self._needs[number]:
            known = node.truth[need] or self._ask(node, need)
            if known != _HOLDS:
                if known == _UNANSWERED:
                    action = self.planner.actions[number]
                    self.faults.unanswered(action.action, node.state, action.values, action.text)
                return False
        return True

    def _ask(self, node: Node, number: int) -> int:
        known = node.truth[number]
        if known == _UNASKED:
            answer = self._facts[number].answer(node.state)
            known = _UNANSWERED if isinstance(answer, str) else _HOLDS if answer else _FAILS
            node.truth[number] = known
        return known

    def _node(self, state: JsonValue, before: Node | None = None, writes: tuple[Place, ...] = ()) -> Node:
        """Return the node of a state that was reached from another one by writing to these places."""
        digest = state_digest(state)
        node = self._nodes.get(digest)
        if node is None:
            truth = bytearray(len(self._facts)) if before is None else bytearray(before.truth)
            for number in self._touched(writes):
                truth[number] = _UNASKED
            node = self._nodes[digest] = Node(state, truth)
        return node

    def _touched(self, writes: tuple[Place, ...]) -> frozenset[int]:
        """Return the conditions that read one of these places."""
        found: frozenset[int] = frozenset()
        for write in writes:
            touched = self._written.get(write)
            if touched is None:
                readers = (numbers for read, numbers in self._readers.items() if overlap(write, read))
                touched = self._written[write] = frozenset(number for numbers in readers for number in numbers)
            found |= touched
        return found
