"""The planner as the repairer in an executed world: the next action of a plan to the goal, and a thought in varied words."""

from random import Random

from pydantic import JsonValue

from refinesynth.actions.wording import quoted
from refinesynth.episode.conversation import Unanswerable
from refinesynth.episode.play import Turns
from refinesynth.rules.rule import Violation
from refinesynth.trajectory import PlayerTurn
from refinesynth.world import World, plan


def planned_repair(world: World, turns: Turns, states: tuple[JsonValue, JsonValue], draw: Random) -> PlayerTurn:
    """Return the turn after `turns`: what was wrong with the last action, if it was, and the next action to the goal.

    Args:
        world: Whose actions and goal.
        turns: Turns so far, of which the last two are an action and its answer.
        states: The world before that action, and now.
        draw: Chance, which varies the words.

    Raises:
        Unanswerable: No way to the goal is found. The last action is refused if it changed the world, else all turns.
    """
    # Imported here: it brings the families of the rehearsal's worlds with it.
    from refinesynth.rehearsal.wording import say

    (before, state), last = states, turns[-2]
    tried = last.action if isinstance(last, PlayerTurn) else ""
    known = world.script.rulebook.solution if world.script.rulebook is not None else ()
    # The author's solution mostly has all actions that are needed, and few others.
    way = plan(world, state, candidates=known) or plan(world, state)
    if not way:
        message = f"After {quoted(tried)} no way to the goal is found. Take a different action before that."
        at, kept = len(turns) - 2, before != state
        raise Unanswerable(
            turns, Violation(rule="Planner", turn=at, code="goal_lost", message=message, keeps_prefix=kept)
        )
    ruling = world.step(before, tried)
    looking_back = say(draw, "going_on" if ruling.kind is None else f"understood_{ruling.kind}", hint=ruling.text)
    return PlayerTurn(thought=f"{looking_back} {say(draw, 'repairing', doing=way[0])}".strip(), action=way[0])
