"""How far a state is from the goal, guessed by reasoning backwards, and which actions look helpful.

Each condition that does not hold yet costs what the cheapest action costs that would make it hold: one, and whatever that
action's own unmet requirements cost. The cheapest actions together are a relaxed plan, and their number is the guess (the FF
heuristic of classical planning), made for conditions that one can only ask: whether an action would make one hold is
found out by trying its effects, with its requirements set aside.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

from pydantic import JsonValue

from refinesynth.world.ground import Fact, GroundAction, overlap

UNREACHED = 1_000_000
"""Distance of a goal that no actions seem to reach."""

_PARTLY = 3
"""What a change costs more that touches a condition and does not yet make it hold."""

_SWEEPS = 50
"""Most rounds in which costs are carried from requirements to what needs them."""


class Guess(NamedTuple):
    """What a guide makes of a state."""

    distance: int
    """Actions that the goal seems to need from here; neither a lower nor an upper bound."""
    helpful: tuple[GroundAction, ...]
    """Actions possible now with which the cheapest ways to the goal begin."""


class _Way(NamedTuple):
    """Actions that make a condition hold, the first one first."""

    actions: tuple[GroundAction, ...]
    extra: int = 0


class _Touches(NamedTuple):
    """What actions do to a condition that does not hold."""

    achieve: tuple[GroundAction, ...]
    change: tuple[GroundAction, ...]
    """What it reads changes; it still does not hold."""


@dataclass
class Guide:
    """Guesses for one goal and one set of actions; remembers what it tried."""

    actions: tuple[GroundAction, ...]
    goal: tuple[Fact, ...]
    _touching: dict[Fact, tuple[GroundAction, ...]] = field(default_factory=dict[Fact, "tuple[GroundAction, ...]"])
    _enabling: dict[GroundAction, tuple[GroundAction, ...]] = field(
        default_factory=dict[GroundAction, "tuple[GroundAction, ...]"]
    )
    _tried: dict[tuple[Fact, bytes | None], _Touches] = field(
        default_factory=dict["tuple[Fact, bytes | None]", _Touches]
    )

    def look(self, state: JsonValue) -> Guess:
        """How far the goal seems, and what to do next."""
        return _View(self, state).guess()

    def ways(self, fact: Fact, state: JsonValue) -> Iterator[_Way]:
        """Ways to make a condition hold that does not.

        By one action; else by two, the first of which decides where the second one writes; else by changing what it reads.
        """
        fixed, moving = self._try(fact, state)
        achieve = (*fixed.achieve, *moving.achieve)
        if achieve:
            yield from (_Way((action,)) for action in achieve)
            return
        pairs = [
            (first, second)
            for second in self.touching(fact)
            for first in self.enabling(second)
            if first is not second and fact.holds(second.relaxed(first.relaxed(state)))
        ]
        yield from (_Way(pair) for pair in pairs)
        if not pairs:
            yield from (_Way((action,), _PARTLY) for action in (*fixed.change, *moving.change))

    def _try(self, fact: Fact, state: JsonValue) -> tuple[_Touches, _Touches]:
        """What touching actions do to the condition.

        First those that always write the same, whose outcome is remembered, then those that write where the state says.
        """
        touching = self.touching(fact)
        question = fact.question(state)
        known = self._tried.get((fact, question))
        if known is None:
            known = _outcomes(fact, question, [action for action in touching if not action.lookups], state)
            self._tried[fact, question] = known
        return known, _outcomes(fact, question, [action for action in touching if action.lookups], state)

    def touching(self, fact: Fact) -> tuple[GroundAction, ...]:
        """Actions that write what this condition reads."""
        if fact not in self._touching:
            self._touching[fact] = tuple(
                action
                for action in self.actions
                if any(overlap(write, read) for write in action.writes for read in fact.reads)
            )
        return self._touching[fact]

    def enabling(self, action: GroundAction) -> tuple[GroundAction, ...]:
        """Actions that write what decides where this one writes."""
        if action not in self._enabling:
            self._enabling[action] = tuple(
                other
                for other in self.actions
                if any(overlap(write, read) for write in other.writes for read in action.lookups)
            )
        return self._enabling[action]


def _outcomes(fact: Fact, question: bytes | None, actions: list[GroundAction], state: JsonValue) -> _Touches:
    achieve: list[GroundAction] = []
    change: list[GroundAction] = []
    for action in actions:
        after = action.relaxed(state)
        if after is state:
            continue
        if fact.holds(after):
            achieve.append(action)
        elif fact.question(after) != question:
            change.append(action)
    return _Touches(tuple(achieve), tuple(change))


class _Link(NamedTuple):
    """A way together with the unmet requirements of its actions."""

    way: _Way
    needs: tuple[Fact, ...]


@dataclass
class _View:
    """A guide's reasoning about one state."""

    guide: Guide
    state: JsonValue
    _held: dict[Fact, bool] = field(default_factory=dict[Fact, bool])
    _links: dict[Fact, tuple[_Link, ...]] = field(default_factory=dict[Fact, "tuple[_Link, ...]"])
    _costs: dict[Fact, int] = field(default_factory=dict[Fact, int])

    def guess(self) -> Guess:
        goal = self._unmet(self.guide.goal)
        self._explore(goal)
        self._settle()
        if any(self._costs[fact] >= UNREACHED for fact in goal):
            return Guess(UNREACHED, ())
        chosen: dict[GroundAction, int] = {}
        helpful: dict[GroundAction, None] = {}
        seen = set(goal)
        queue = list(goal)
        for fact in queue:
            links = self._links[fact]
            best = [link for link in links if self._cost(link) == self._costs[fact]]
            for action in best[0].way.actions:
                chosen[action] = max(chosen.get(action, 0), 1 + best[0].way.extra)
            helpful.update(
                (link.way.actions[0], None) for link in best if not self._unmet(link.way.actions[0].requires)
            )
            # All equally cheap ways are followed for what helps, though only the first one counts for the distance.
            following = [need for link in best for need in link.needs if need not in seen]
            seen.update(following)
            queue.extend(dict.fromkeys(following))
        return Guess(sum(chosen.values()), tuple(helpful))

    def _explore(self, goal: tuple[Fact, ...]) -> None:
        """Find the ways of all conditions that matter."""
        queue = list(goal)
        for fact in queue:
            if fact in self._links:
                continue
            ways = self.guide.ways(fact, self.state)
            self._links[fact] = tuple(
                _Link(
                    way, self._unmet(tuple(dict.fromkeys(need for action in way.actions for need in action.requires)))
                )
                for way in ways
            )
            queue.extend(need for link in self._links[fact] for need in link.needs if need not in self._links)

    def _settle(self) -> None:
        """Carry costs from requirements to what needs them, until none changes."""
        self._costs = dict.fromkeys(self._links, UNREACHED)
        order = tuple(reversed(self._links))
        for _ in range(_SWEEPS):
            changed = False
            for fact in order:
                cost = min((self._cost(link) for link in self._links[fact]), default=UNREACHED)
                if cost < self._costs[fact]:
                    self._costs[fact] = cost
                    changed = True
            if not changed:
                break

    def _cost(self, link: _Link) -> int:
        total = len(link.way.actions) + link.way.extra
        for need in link.needs:
            total += self._costs[need]
        return min(total, UNREACHED)

    def _unmet(self, facts: tuple[Fact, ...]) -> tuple[Fact, ...]:
        unmet: list[Fact] = []
        for fact in facts:
            held = self._held.get(fact)
            if held is None:
                held = self._held[fact] = fact.holds(self.state)
            if not held:
                unmet.append(fact)
        return tuple(unmet)
