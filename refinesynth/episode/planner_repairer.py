"""Planner as the repairer in an executed world: the next action of a plan, with a thought in varied words."""

from collections.abc import Sequence
from random import Random

from pydantic import JsonValue

from refinesynth.actions.matching import meaning
from refinesynth.actions.wording import quoted
from refinesynth.episode.conversation import Unanswerable
from refinesynth.episode.play import Turns
from refinesynth.rules.rule import Violation
from refinesynth.trajectory import DungeonMasterTurn, PlayerTurn
from refinesynth.world import World, check_solvability, plan
from refinesynth.world.ground_actions import MAX_GROUND_ACTIONS, some_ground_actions
from refinesynth.world.planner import carried_out

_STATES = 300
"""Maximum number of states in a search, if no known solution leads to the goal."""
_TRIED = 16
"""Maximum number of other first actions for which a plan is searched."""


def way_to_goal(world: World, turns: Turns, state: JsonValue, planned: tuple[str, ...] = ()) -> tuple[str, ...] | None:
    """Return actions from `state`, the state after `turns`, to the goal; None if none are found.

    The rest of a known plan is preferred: of `planned`, of the author's solution, or of the shortest solution from the
    script check. A search is the last resort.
    """
    return _way(world, state, (planned, *_known(world, turns)), most=_STATES)


def first_actions(world: World, turns: Turns, state: JsonValue) -> list[str]:
    """Return alternative first actions: that of `way_to_goal`, then other actions with an equally short plan or after
    which the refused action is possible. Candidates are actions that change something, known plans first.
    """
    way, known = way_to_goal(world, turns, state), _known(world, turns)
    if not way:
        return []
    rulings = ((text, world.step(state, text)) for text in some_ground_actions(world, MAX_GROUND_ACTIONS)[0])
    possible = [(text, ruling.state) for text, ruling in rulings if ruling.kind is None and ruling.state != state]
    useful = sorted(possible, key=lambda one: not any(one[0] in each for each in (way, *known)))[:_TRIED]
    found = [way[0]]
    for text, new in useful:
        others = tuple(other for other in way if other != text)
        rest = _way(world, new, (others, *known), most=_STATES // 4)
        if text == way[0] or rest is None:
            continue
        if len(rest) < len(way) or world.step(new, _tried(turns)).kind is None:
            found.append(text)
    return found


def worded(world: World, tried: str, before: JsonValue, action: str, draw: Random) -> PlayerTurn:
    """Return a planned turn: its thought explains the next action and, if `tried` was a mistake in the state `before`,
    that mistake. `draw` varies the words.
    """
    # Imported here because it imports the rehearsal's families of worlds.
    from refinesynth.rehearsal.phrasing import say

    ruling = world.step(before, tried)
    looking_back = say(draw, "going_on" if ruling.kind is None else f"understood_{ruling.kind}", hint=ruling.text)
    looking_ahead = say(draw, "repairing", doing=quoted(action))
    return PlayerTurn(thought=f"{looking_back} {looking_ahead}".strip(), action=action)


def goal_lost(turns: Turns) -> Unanswerable:
    """Return the error for the last action of `turns`, after which no plan to the goal is found."""
    message = f"After {quoted(_tried(turns))} no way to the goal is found. Take a different action before that."
    return Unanswerable(turns, Violation(rule="Planner", turn=len(turns) - 2, code="goal_lost", message=message))


def _tried(turns: Turns) -> str:
    last = turns[-2]
    return last.action if isinstance(last, PlayerTurn) else ""


def _known(world: World, turns: Turns) -> tuple[tuple[str, ...], ...]:
    """Return the author's solution, its actions that are not done after `turns`, and the shortest known solution."""
    rulebook = world.script.rulebook
    solution = () if rulebook is None else rulebook.solution
    done = [
        meaning(world.script, act.action)
        for act, answer in zip(turns[::2], turns[1::2], strict=True)
        if isinstance(act, PlayerTurn) and isinstance(answer, DungeonMasterTurn)
        if not (answer.flagged or answer.transient)
    ]
    undone: list[str] = []
    for text in solution:
        if (meant := meaning(world.script, text)) in done:
            done.remove(meant)
        else:
            undone.append(text)
    return solution, tuple(undone), check_solvability(world.script).shortest or ()


def _way(world: World, state: JsonValue, known: Sequence[tuple[str, ...]], *, most: int) -> tuple[str, ...] | None:
    left = [found for way in dict.fromkeys(known) if (found := _rest(world, state, way)) is not None]
    if left:
        return min(left, key=len)
    # A known plan usually has all required actions and few others.
    candidates = dict.fromkeys(text for way in known for text in way)
    return plan(world, state, candidates=candidates, most=most) or plan(world, state, most=most)


def _rest(world: World, state: JsonValue, way: tuple[str, ...]) -> tuple[str, ...] | None:
    """Return the shortest suffix of a plan that reaches the goal from here, without actions that have no effect;
    None if there is none.
    """
    rests = (carried_out(world, state, way[at:]) for at in range(len(way), -1, -1))
    return next((rest for rest in rests if rest is not None), None)
