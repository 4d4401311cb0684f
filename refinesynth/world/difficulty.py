"""How hard a world is, measured on the best solution that was found."""

from collections.abc import Sequence

from refinesynth.trajectory import Difficulty
from refinesynth.world.explore import Explorer, Node
from refinesynth.world.ground import Fact, GroundAction

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
    """Whether a single action, taken instead of one of the solution's, can make the goal unreachable; None if that is
    not known.

    `complete` says whether the explorer knows all actions. An action counts as safe if the rest of the solution can be
    carried out after it, or if it can be undone; as fatal if it is certain that nothing leads to the goal.
    """
    deviations = _Deviations(explorer, set(path), complete=complete)
    unknown = False
    for at, node in enumerate(path[:-1]):
        for _, after in explorer.expand(node):
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
        """Whether the goal cannot be reached from this state; None if that is not known. `rest` is what was to be done
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
        """Whether these actions lead from here to the goal or to a state that is safe; those on the way are safe then
        too.
        """
        nodes = self._explorer.follow(node, actions)
        for at, each in enumerate(nodes):
            if each in self._safe or self._explorer.done(each):
                self._safe.update(nodes[: at + 1])
                return True
        return False
