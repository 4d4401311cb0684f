"""Exploration of a world: states, what can be done in each, and the faults met on the way.

What holds in a state is carried over to the next one, except where an action wrote what a condition reads. So a further
state costs a fraction of asking every action again.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from hashlib import blake2b

from pydantic import JsonValue

from refinesynth.trajectory import MistakeKind
from refinesynth.world.compiled_action import CompiledAction, Unmet
from refinesynth.world.effects import Notice
from refinesynth.world.executor import World
from refinesynth.world.expression import json_bytes
from refinesynth.world.ground_actions import BASE, Fact, GroundAction, Item, Place, ShownFact, overlap
from refinesynth.world.hidden_places import only_lists, shown_anywhere
from refinesynth.world.planner import Planner
from refinesynth.world.rulebook_errors import Inapplicable
from refinesynth.world.text_template import Pointer, Template

MAX_FAULTS = 16
"""Most faults that are reported of one rulebook."""

_MAX_FLOODED = 16
"""Most states from which it is found out whether the goal is out of reach, where mistakes change something."""

_WATCHED = 8
"""Checks of an action's `when`s and texts; more where one never held."""


class RulebookFaults:
    """Faults in the order in which they were met, each place of the rulebook once."""

    def __init__(self) -> None:
        self._messages: dict[str, str] = {}
        self._watched: dict[str, int] = {}
        self.held: set[str] = set()
        """Names of effects and texts whose condition held where they were watched."""
        self._looked_up: dict[tuple[str, Pointer], bool] = {}

    def messages(self) -> tuple[str, ...]:
        """All of them, as messages to the author, at most `MAX_FAULTS`."""
        missing = (where for (where, _), found in self._looked_up.items() if not found)
        lost = (
            f"{where} looks up what was never there; mend the pointer, or put it into the state" for where in missing
        )
        return (*self._messages.values(), *dict.fromkeys(lost))[:MAX_FAULTS]

    def add(self, where: str, what: str) -> None:
        """Note a fault, unless one of the same place is known."""
        self._messages.setdefault(where, what)

    def met(self, problem: str, text: str) -> None:
        """Note why an action could not be carried out."""
        # Up to the colon a problem says where it is, and after it what it found.
        self.add(problem.partition(": ")[0], f"{problem} (tried: {text!r})")

    def unanswered(self, action: CompiledAction, state: JsonValue, values: Mapping[str, str], text: str) -> None:
        """Note a requirement without an answer, if it decides about an action."""
        unmet = action.unmet(state, values)
        if unmet is not None and unmet.problem is not None:
            self.met(unmet.problem, text)

    def check_sights(self, world: World, state: JsonValue) -> None:
        """Note sights that have no answer in this state."""
        problem = world.visibility.names_in(state).problem
        if problem is not None:
            self.add("the sights", problem)

    def watches(self, action: CompiledAction) -> bool:
        """Return whether there is anything left to see of an action."""
        times = self._watched.get(action.spec.name, 0)
        return times < _WATCHED or not self.held.issuperset(action.conditional())

    def watch(
        self, action: CompiledAction, state: JsonValue, new: JsonValue, values: Mapping[str, str], text: str
    ) -> None:
        """Check an action that was carried out: the conditions of its effects, and the lookups of its observation."""
        self._watched[action.spec.name] = self._watched.get(action.spec.name, 0) + 1
        notice = self.noticing(text)
        action.applied(state, values, notice)
        words = action.observation(state, new, values, notice)
        self.fill(f"reveals of {action.spec.name!r}", words, new, values)

    def noticing(self, text: str) -> Notice:
        """Return an observer that notes conditions that hold, or have no answer, when an action with this text is tried."""

        def notice(name: str, answer: bool | str) -> None:
            if answer is True:
                self.held.add(name)
            elif isinstance(answer, str):
                where = f"the condition of {name}"
                self.add(where, f"{where} has no answer: {answer} (tried: {text!r})")

        return notice

    def fill(self, where: str, template: Template, state: JsonValue, values: Mapping[str, str]) -> None:
        """Note for each lookup of a text whether it finds anything."""
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
    """A state that was reached; the same object however it was reached."""

    state: JsonValue
    size: int
    """Bytes of the state, as JSON."""
    truth: bytearray
    """Knowledge of each condition here."""


@dataclass(frozen=True, slots=True, eq=False)
class BreadthFirstResult:
    """Result of a breadth-first search."""

    nodes: tuple[Node, ...]
    """Those that were expanded."""
    way: tuple[GroundAction, ...] | None
    """The shortest way to the goal, if there is one as far as was seen."""
    exhausted: bool
    """True if no state is left to expand."""


class Explorer:
    """A world's states as far as they were reached. Every method raises `WorkLimitExceeded` where the planner's work is
    done.
    """

    def __init__(self, planner: Planner, faults: RulebookFaults) -> None:
        self.planner = planner
        self.faults = faults
        self.usable: set[str] = set()
        """Name templates of actions that were possible somewhere."""
        self._numbers: dict[Fact, int] = {}
        self._needs = [self._numbered(action.requires) for action in planner.actions]
        fact = planner.facts.fact
        self._parts = [
            [
                self._numbered(fact(part, action.values) for part in requirement.condition.conjuncts)
                for requirement in action.action.requires
            ]
            for action in planner.actions
        ]
        """For each action and each of its requirements, the numbers of its conditions."""
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
        self._nodes: dict[bytes, Node] = {}
        # Not in the nodes: they lead back to one another, and reference cycles outlive the check.
        self._following: dict[Node, tuple[tuple[GroundAction, Node], ...]] = {}

    def begin(self, state: JsonValue) -> Node:
        """The node of the state from which everything else is reached."""
        return self._node(state)

    def done(self, node: Node) -> bool:
        """Return whether the goal is reached."""
        return all(self._ask(node, number) == _HOLDS for number in self._goal)

    def expand(self, node: Node) -> tuple[tuple[GroundAction, Node], ...]:
        """Return what every possible action that changes something leads to."""
        following = self._following.get(node)
        if following is None:
            following = self._following[node] = tuple(self._successors(node, range(len(self._needs))))
        return following

    def _successors(self, node: Node, numbers: Iterable[int]) -> list[tuple[GroundAction, Node]]:
        """Return what these actions lead to, as far as they are possible and change something."""
        self.planner.work_limit.size = node.size
        found: list[tuple[GroundAction, Node]] = []
        for number in numbers:
            if not self._possible(node, number):
                continue
            action = self.planner.actions[number]
            try:
                new = self.planner.after(action, node.state)
            except Inapplicable as error:
                self.faults.met(str(error), action.text)
                continue
            self.usable.add(action.action.spec.name)
            if self.faults.watches(action.action):
                action.charge_watched(node.state)
                self.faults.watch(action.action, node.state, new, action.values, action.text)
            if new is not node.state:
                found.append((action, self._node(new, node, action.writes)))
        return found

    def mistakes(self, node: Node) -> tuple[Node, ...]:
        """Return what every refused action that changes something leads to."""
        world, work_limit = self.planner.world, self.planner.work_limit
        work_limit.size = node.size
        found: list[Node] = []
        for number in self._costly:
            unmet, action = self.refused(node, number), self.planner.actions[number]
            if unmet is None or unmet.problem is not None or not unmet.requirement.effects:
                continue
            action.charge_price(unmet.at, node.state)
            notice = self.faults.noticing(action.text)
            try:
                new = world.after_mistake(node.state, action.action, action.values, unmet, notice)
            except Inapplicable as error:
                self.faults.met(str(error), action.text)
                continue
            if new is not node.state:
                asked = (*(invariant.condition for invariant in world.invariants), *world.goal)
                work_limit.charge(sum(one.work(new, {}, node.size) + BASE for one in asked))
                found.append(self._node(new, node, action.costs))
        return tuple(found)

    def refused(self, node: Node, number: int) -> Unmet | None:
        """Return the first requirement of the action with this index that does not hold here."""
        action, work_limit = self.planner.actions[number], self.planner.work_limit
        work_limit.charge(BASE)
        for at, (requirement, parts) in enumerate(zip(action.action.requires, self._parts[number], strict=True)):
            if all(self._ask(node, part) == _HOLDS for part in parts):
                continue
            work_limit.charge(requirement.condition.work(node.state, action.values, node.size) + BASE)
            answer = requirement.condition.answer(node.state, action.values)
            fault = f"requirement {at + 1} of {action.action.spec.name!r}: {answer}"
            return Unmet(at, requirement, fault if isinstance(answer, str) else None)
        return None

    def follow(self, node: Node, actions: Iterable[GroundAction]) -> tuple[Node, ...]:
        """The states along these actions, the first one included, up to one that is not possible."""
        nodes = [node]
        for action in actions:
            found = self._successors(nodes[-1], (self._at[action.text],))
            if not found:
                break
            nodes.append(found[0][1])
        return tuple(nodes)

    def breadth_first(self, start: Node, most: int) -> BreadthFirstResult:
        """Expand at most `most` states, the nearest ones first; none where the goal is reached.

        Mistakes that change something are made last, and the way has none.
        """
        ways: dict[int, tuple[GroundAction, ...]] = {id(start): ()}
        if self.done(start):
            return BreadthFirstResult((), (), exhausted=True)
        queue = [start]
        found: tuple[GroundAction, ...] | None = None
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
        """Go on from these states by right actions and by mistakes; return how many of the states then in the queue are
        expanded, at most `most`, and whether the goal is reached behind one.
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
        """Return whether it is certain that the goal cannot be reached from here, however long one tries, with the actions
        that are known.

        False says nothing.
        """
        if not self._conceivable(node).issuperset(self._goal):
            return True
        if not self._costly:
            return False
        # What mistakes may change, any of them may be thought to mend.
        queue = [node]
        expanded, won = self._flood(queue, _MAX_FLOODED)
        return expanded == len(queue) and not won

    def never_possible(self, node: Node) -> frozenset[str]:
        """Name templates of actions no form of which can ever be possible from here on; certain for the actions that
        are known.
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
        """Conditions that may hold some time after this state, if everything that an action writes to may become
        anything; no others can.
        """
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
        """Names of effects whose condition held nowhere so far."""
        names = dict.fromkeys(name for action in self.planner.actions for name in action.action.conditional())
        return tuple(name for name in names if name not in self.faults.held)

    def never_in_place(self, start: Node, nodes: Sequence[Node] | None) -> frozenset[str]:
        """Values all of whose actions have a requirement of the kind `place` that holds in no state that can be reached.

        Certain for the actions that are known. `nodes` are all states that can be reached, if that is known.
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
        """Return whether these conditions hold together in no state that can be reached."""
        numbers = [self._numbers[fact] for fact in facts]
        if not conceivable.issuperset(numbers) or any(map(self._never_shown, facts)):
            return True
        return nodes is not None and not any(
            all(self._ask(node, number) == _HOLDS for number in numbers) for node in nodes
        )

    def _never_shown(self, fact: Fact) -> bool:
        """Return whether it asks for a name that is nowhere where a sight may ever look, and is brought there by no action that
        can be done without it.
        """
        name, sights = fact.sought, self.planner.world.visibility.sights
        if name is None or not sights or name in shown_anywhere(self.planner.world):
            return False
        looked_at = [ShownFact(sight, {}, name).reads[0] for sight in sights if sight.path is not None]
        return not any(
            overlap(write if write[-1:] == (Item(name),) else self._grown(write), place)
            for action in self.planner.actions
            # A price is paid just where something does not hold.
            for write in (*(action.writes if fact not in action.requires else ()), *action.costs)
            for place in looked_at
        )

    def _grown(self, write: Place) -> Place:
        """The place of a write: without its item, where what is added could make a text longer."""
        if not write or not isinstance(write[-1], Item):
            return write
        grown = self._grown_at.get(write)
        if grown is None:
            listed = only_lists(self.planner.world.script.environment, write[:-1])
            grown = self._grown_at[write] = write if listed else write[:-1]
        return grown

    def unmet(self, node: Node, facts: Iterable[Fact]) -> tuple[Fact, ...]:
        """Return which of these do not hold here; they are requirements or of the goal."""
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
            self.planner.work_limit.size = node.size
            answer = self._facts[number].answer(node.state)
            known = _UNANSWERED if isinstance(answer, str) else _HOLDS if answer else _FAILS
            node.truth[number] = known
        return known

    def _node(self, state: JsonValue, before: Node | None = None, writes: tuple[Place, ...] = ()) -> Node:
        """The node of a state that was reached from another one by writing to these places."""
        encoded = json_bytes(state, sort=True) or b""
        self.planner.work_limit.charge(len(encoded) + BASE)
        digest = blake2b(encoded, digest_size=16).digest()
        node = self._nodes.get(digest)
        if node is None:
            truth = bytearray(len(self._facts)) if before is None else bytearray(before.truth)
            for number in self._touched(writes):
                truth[number] = _UNASKED
            node = self._nodes[digest] = Node(state, len(encoded), truth)
        return node

    def _touched(self, writes: tuple[Place, ...]) -> frozenset[int]:
        """Conditions that may change with what is written to these places."""
        found: frozenset[int] = frozenset()
        for write in writes:
            touched = self._written.get(write)
            if touched is None:
                readers = (numbers for read, numbers in self._readers.items() if overlap(write, read))
                touched = self._written[write] = frozenset(number for numbers in readers for number in numbers)
            found |= touched
        return found
