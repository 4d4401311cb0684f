"""The planner as the repairer in an executed world: the next action of a plan to the goal, and a thought in varied words."""

from random import Random

from pydantic import JsonValue

from refinesynth.actions.wording import quoted
from refinesynth.episode.conversation import Unanswerable
from refinesynth.episode.play import Turns
from refinesynth.rules.rule import Violation
from refinesynth.trajectory import PlayerTurn
from refinesynth.world import World, plan
from refinesynth.world.ground import MAX_GROUND_ACTIONS, some_ground_actions

_TRIED = 16
"""Most other first actions of which a way to the goal is looked for."""
_LONGER = 2
"""Most actions by which the way of another first action is longer than the shortest that is found."""


def planned_repair(
    world: World, turns: Turns, states: tuple[JsonValue, JsonValue], draw: Random, *, branch: int = 0
) -> PlayerTurn:
    """Return the turn after `turns`: what was wrong with the last action, if it was, and the next action to the goal.

    Args:
        world: Whose actions and goal.
        turns: Turns so far, of which the last two are an action and its answer.
        states: The world before that action, and now.
        draw: Chance, which varies the words.
        branch: Number of other first actions, shortest ways first, that are passed over as far as there are so many.

    Raises:
        Unanswerable: No way to the goal is found. The last action is refused if it changed the world, else all turns.
    """
    # Imported here: it brings the families of the rehearsal's worlds with it.
    from refinesynth.rehearsal.wording import say

    (before, state), last = states, turns[-2]
    tried = last.action if isinstance(last, PlayerTurn) else ""
    known = world.script.rulebook.solution if world.script.rulebook is not None else ()
    way = _way(world, state, known)
    if not way:
        message = f"After {quoted(tried)} no way to the goal is found. Take a different action before that."
        at, kept = len(turns) - 2, before != state
        raise Unanswerable(
            turns, Violation(rule="Planner", turn=at, code="goal_lost", message=message, keeps_prefix=kept)
        )
    firsts = [way[0], *(_others(world, state, way, known) if branch else ())]
    action = firsts[min(branch, len(firsts) - 1)]
    ruling = world.step(before, tried)
    looking_back = say(draw, "going_on" if ruling.kind is None else f"understood_{ruling.kind}", hint=ruling.text)
    return PlayerTurn(thought=f"{looking_back} {say(draw, 'repairing', doing=action)}".strip(), action=action)


def _way(world: World, state: JsonValue, known: tuple[str, ...]) -> tuple[str, ...] | None:
    """Return a plan; the author's solution mostly has all actions that are needed, and few others."""
    if world.done(state):
        return ()
    return plan(world, state, candidates=known) or plan(world, state)


def _others(world: World, state: JsonValue, way: tuple[str, ...], known: tuple[str, ...]) -> list[str]:
    """Return other first actions after which the goal is hardly farther, those of the shortest ways first."""
    rulings = ((text, world.step(state, text)) for text in some_ground_actions(world, MAX_GROUND_ACTIONS)[0])
    possible = [(text, ruling.state) for text, ruling in rulings if ruling.kind is None and ruling.state != state]
    useful = sorted(possible, key=lambda one: one[0] not in (*way, *known))[:_TRIED]
    found = [(len(rest), text) for text, new in useful if (rest := _way(world, new, known)) is not None]
    return [text for length, text in sorted(found) if text != way[0] and length < len(way) + _LONGER]
