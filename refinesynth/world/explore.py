"""Exploration of a world: states, possible actions in each, and the rulebook faults found.

Conditions keep their answer in the next state unless an action wrote a value that they read, so a further state is much
cheaper than a full evaluation.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from itertools import chain, islice
from typing import NamedTuple

from pydantic import JsonValue

from refinesynth.trajectory import MistakeKind
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

    def notice(self, text: str, name: str, answer: bool | str) -> None:
        """Record that a condition of an action with this text holds or has no answer."""
        if answer is True:
            self.held.add(name)
        elif isinstance(answer, str):
            where = f"the condition of {name}"
            self.add(where, f"{where} has no answer: {answer} (tried: {text!r})")

    def fill(self, where: str, template: Template, state: JsonValue, values: Mapping[str, str]) -> None:
        """Record for each lookup of a text whether it finds a value here or found one before."""
        for part in template.parts:
            if isinstance(part, Pointer) and not self._looked_up.get((where, part)):
                self._looked_up[where, part] = False
                with suppress(Inapplicable):
                    part.read(state, values)
                    self._looked_up[where, part] = True


@dataclass(frozen=True, slots=True, eq=False)
class Node:
    """A reached state; equal states share one object."""

    state: JsonValue
    before: "Node | None" = None
    """State from which it was reached first."""
    writes: tuple[Place, ...] = ()
    """Places that were written on the way from there."""
    answers: dict[Fact, bool | str] = field(default_factory=dict[Fact, "bool | str"])
    """Known answers in this state, or reasons why there is none."""


class BreadthFirstResult(NamedTuple):
    """Result of a breadth-first search."""

    nodes: tuple[Node, ...]
    """Expanded nodes."""
    way: tuple[GroundAction, ...] | None
    """Shortest known way to the goal, if any."""
    exhausted: bool
    """True if no state is left to expand."""


class Explorer:
    """Reached states of a world."""

    def __init__(self, planner: Planner) -> None:
        self.planner = planner
        self.faults = RulebookFaults()
        self._usable: set[str] = set()
        """Name templates of actions that were possible in some state."""
        self._costly = [action for action in planner.actions if action.costs]
        self._facts = dict.fromkeys((*(fact for action in planner.actions for fact in action.requires), *planner.goal))
        self._readers: dict[Place, list[Fact]] = {}
        for fact in self._facts:
            for place in fact.reads:
                self._readers.setdefault(place, []).append(fact)
        self._reading: dict[Place, frozenset[Fact]] = {}
        self._touching: dict[tuple[Place, ...], frozenset[Fact]] = {}
        self._only_lists: dict[Place, bool] = {}
        self._nodes: dict[bytes | None, Node] = {}
        # Not stored in the nodes, which would form reference cycles that outlive the check.
        self._following: dict[Node, tuple[tuple[GroundAction, Node], ...]] = {}

    def node(self, state: JsonValue, before: Node | None = None, writes: tuple[Place, ...] = ()) -> Node:
        """Return the node of a state that was reached from another one, if any, by writing to these places."""
        return self._nodes.setdefault(state_digest(state), Node(state, before, writes))

    def done(self, node: Node) -> bool:
        """Return whether the goal is reached."""
        return all(self._ask(node, fact) is True for fact in self.planner.goal)

    def expand(self, node: Node) -> tuple[tuple[GroundAction, Node], ...]:
        """Return all possible actions that change the state, with their resulting nodes."""
        following = self._following.get(node)
        if following is None:
            following = self._following[node] = tuple(self._successors(node, self.planner.actions))
        return following

    def _successors(self, node: Node, actions: Iterable[GroundAction]) -> Iterator[tuple[GroundAction, Node]]:
        """Yield those of these actions that are possible and change the state, with their resulting nodes."""
        for action in actions:
            if not self._possible(node, action):
                continue
            notice = partial(self.faults.notice, action.text)
            try:
                new = self.planner.world.after(node.state, action.action, action.values, notice)
            except Inapplicable as error:
                self.faults.met(str(error), action.text)
                continue
            name = action.action.spec.name
            self._usable.add(name)
            words = action.action.observation(node.state, new, action.values, notice)
            self.faults.fill(f"reveals of {name!r}", words, new, action.values)
            if new is not node.state:
                yield action, self.node(new, node, action.writes)

    def mistakes(self, node: Node) -> tuple[Node, ...]:
        """Return the nodes that result from all refused actions that change the state."""
        found: list[Node] = []
        for action in self._costly:
            unmet = action.action.unmet(node.state, action.values)
            if unmet is None:
                continue
            notice = partial(self.faults.notice, action.text)
            try:
                new = self.planner.world.after_mistake(node.state, action.action, action.values, unmet, notice)
            except Inapplicable as error:
                self.faults.met(str(error), action.text)
                continue
            if new is not node.state:
                found.append(self.node(new, node, action.costs))
        return tuple(found)

    def follow(self, node: Node, actions: Iterable[GroundAction]) -> tuple[Node, ...]:
        """Return `node` and the states along these actions, up to one that is not possible or changes nothing."""
        nodes = [node]
        for action in actions:
            _, after = next(self._successors(nodes[-1], (action,)), (action, None))
            if after is None:
                break
            nodes.append(after)
        return tuple(nodes)

    def breadth_first(self, start: Node, most: int) -> BreadthFirstResult:
        """Expand at most `most` states, nearest first; goal states behind the first are not expanded.

        Refusals with effects are explored last and are not part of the way.
        """
        ways: dict[Node, tuple[GroundAction, ...]] = {start: ()}
        queue = [start]
        found: tuple[GroundAction, ...] | None = () if self.done(start) else None
        for node, step, after in self._spread(queue, most):
            ways[after] = (*ways[node], *step)
            if found is None and self.done(after):
                found = ways[after]
        if len(queue) <= most and self._costly:
            list(self._spread(queue, most, mistakes=True))
        return BreadthFirstResult(tuple(queue[:most]), found, exhausted=len(queue) <= most)

    def _spread(
        self, queue: list[Node], most: int, *, mistakes: bool = False
    ) -> Iterator[tuple[Node, tuple[GroundAction, ...], Node]]:
        """Expand at most `most` states of the queue. Yield each new state after the one that leads there by an action,
        or with `mistakes` by none, and append it to the queue unless the goal is reached.
        """
        known = set(queue)
        for node in islice(queue, most):  # which grows meanwhile
            wrong = (((), after) for after in (self.mistakes(node) if mistakes else ()))
            for step, after in (*wrong, *(((action,), after) for action, after in self.expand(node))):
                if after not in known:
                    known.add(after)
                    if not self.done(after):
                        queue.append(after)
                    yield node, step, after

    def out_of_reach(self, node: Node) -> bool:
        """Return whether the goal is provably unreachable from here with the known actions.

        False is no proof of the contrary.
        """
        if not self._conceivable(node).issuperset(self.planner.goal):
            return True
        if not self._costly:
            return False
        # With mistakes, `_conceivable` is too optimistic: it assumes that they can establish all that they touch.
        queue = [node]
        spread = self._spread(queue, _MAX_FLOODED, mistakes=True)
        return not any(self.done(after) for _, _, after in spread) and len(queue) <= _MAX_FLOODED

    def unusable(self, start: Node, *, exhausted: bool) -> tuple[str, ...]:
        """Return name templates of actions that were possible in no state so far, and if not all states are known
        (`exhausted`), are provably impossible from the start on in every form, for the known actions.
        """
        conceivable, usable = self._conceivable(start), self._usable
        if not exhausted:
            usable = usable.union(
                action.action.spec.name for action in self.planner.actions if conceivable.issuperset(action.requires)
            )
        names = dict.fromkeys(action.action.spec.name for action in self.planner.actions)
        return tuple(name for name in names if name not in usable)

    def _conceivable(self, node: Node) -> set[Fact]:
        """Return the conditions that may ever hold after this state, if each written place may take any value."""
        possible = {fact for fact in self._facts if self._ask(node, fact) is True}
        for action in self._costly:
            possible |= self._touched(action.costs)
        waiting = [*self.planner.actions]
        while useful := [action for action in waiting if possible.issuperset(action.requires)]:
            for action in useful:
                possible |= self._touched(action.writes)
            left = set(waiting).difference(useful)
            waiting = [action for action in waiting if action in left]
        return possible

    def never_made(self) -> tuple[str, ...]:
        """Return the names of effects whose condition never held so far."""
        effects = dict.fromkeys(
            effect.name
            for action in (ground.action for ground in self.planner.actions)
            for effect in (*action.effects, *(effect for need in action.requires for effect in need.effects))
            if effect.when is not None or effect.otherwise
        )
        return tuple(name for name in effects if name not in self.faults.held)

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

    def _never(self, facts: list[Fact], conceivable: set[Fact], nodes: Sequence[Node] | None) -> bool:
        """Return whether these conditions hold together in no reachable state."""
        if not conceivable.issuperset(facts) or any(map(self._never_shown, facts)):
            return True
        return nodes is not None and not any(all(self._ask(node, fact) is True for fact in facts) for node in nodes)

    def _never_shown(self, fact: Fact) -> bool:
        """Return whether a condition requires a visible name that no sight could show in the initial state, and that is
        brought into view only by actions that require the same condition.
        """
        name, world = fact.sought, self.planner.world
        if name is None or not world.visibility.sights or name in shown_anywhere(world):
            return False
        looked_at = [ShownFact(sight, {}, name).reads[0] for sight in world.visibility.sights if sight.path is not None]
        # A refusal's effects apply if a requirement is unmet, so they count even if the action has this condition.
        writes = {
            write
            for action in self.planner.actions
            for write in (*(action.writes if fact not in action.requires else ()), *action.costs)
        }
        for write in writes:
            place = write
            if write[-1:] != (Item(name),) and isinstance(write[-1], Item):
                listed = self._only_lists.get(write[:-1])
                if listed is None:  # asked for many names, and slow in a large state
                    listed = self._only_lists[write[:-1]] = only_lists(world, write[:-1])
                place = write if listed else write[:-1]  # an item that is added to a text may complete the name
            if any(overlap(place, other) for other in looked_at):
                return False
        return True

    def _possible(self, node: Node, action: GroundAction) -> bool:
        for fact in action.requires:
            answer = self._ask(node, fact)
            if answer is not True:
                unmet = action.action.unmet(node.state, action.values) if isinstance(answer, str) else None
                if unmet is not None and unmet.problem is not None:
                    self.faults.met(unmet.problem, action.text)
                return False
        return True

    def _ask(self, node: Node, fact: Fact) -> bool | str:
        answer = node.answers.get(fact)
        if answer is None:
            # The answer is that of the last state whose way wrote to a place that the condition reads.
            asked = node
            while asked.before is not None and fact not in asked.answers and fact not in self._touched(asked.writes):
                asked = asked.before
            if fact not in asked.answers:
                asked.answers[fact] = fact.answer(asked.state)
            answer = node.answers[fact] = asked.answers[fact]
        return answer

    def _touched(self, writes: tuple[Place, ...]) -> frozenset[Fact]:
        """Return the conditions that read one of these places."""
        touched = self._touching.get(writes)
        if touched is None:
            for write in writes:
                if write not in self._reading:
                    readers = (facts for read, facts in self._readers.items() if overlap(write, read))
                    self._reading[write] = frozenset(chain.from_iterable(readers))
            touched = self._touching[writes] = frozenset(chain.from_iterable(self._reading[write] for write in writes))
        return touched
