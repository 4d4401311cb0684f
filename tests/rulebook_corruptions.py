"""Valid grounded scripts, each broken in one named way, with the stage that must catch it."""

from typing import cast

from hypothesis import strategies as st
from samples import with_rulebook

from refinesynth.testing.grounded_worlds import valid_grounded_scripts
from refinesynth.testing.valid import Breaks, Corruption, broken, change_action, integer, pick, rules_of, whether
from refinesynth.trajectory import ActionSpec, Effect, EffectOp, Invariant, Requirement, Rulebook, Script


def rulebook_corruptions(*names: str) -> st.SearchStrategy[Corruption]:
    """Drafts without turns whose grounded script is broken, of the `names` given or of all in `RULEBOOK_CORRUPTIONS`.

    `rules.grounded_script()` refuses each, with `DifficultyBand()` where that is the rule named, and the rule named is
    among those that find something.
    """
    return broken(valid_grounded_scripts(), _BREAKS, names)


def _requires(script: Script, at: int, *more: Requirement) -> Script:
    return change_action(script, at, requires=(*script.actions[at].requires, *more))


_GO, _OPEN, _TAKE, _PUT = range(4)
"""Where a valid grounded script has its actions."""


def _no_rulebook(script: Script, draw: st.DrawFn) -> Script:
    del draw
    return script.imagined()


def _no_condition(script: Script, draw: st.DrawFn) -> Script:
    wrong = pick(draw, ("state.you.at =", "state.you.matches('a')", "place == 'hall'", "map(state)", "'x'.y("))
    if whether(draw):
        return _requires(script, _GO, Requirement(condition=wrong.replace("place", "room")))
    return with_rulebook(script, goal=(wrong, *cast("Rulebook", script.rulebook).goal[1:]))


def _no_path(script: Script, draw: st.DrawFn) -> Script:
    wrong = pick(draw, ("you/at", "", "/places/{room}/open", "/places/{place"))
    return change_action(script, _GO, effects=(Effect(op=EffectOp.SET, path=wrong, value="{place}"),))


def _goal_does_not_fit(script: Script, draw: st.DrawFn) -> Script:
    conditions = ("it is done", *script.completion_conditions) if whether(draw) else ()
    return script.model_copy(update={"completion_conditions": conditions})


def _values_unknown(script: Script, draw: st.DrawFn) -> Script:
    at = pick(draw, (_GO, _OPEN))
    return change_action(script, at, parameters={"place": ("the moon", "Atlantis")})


def _path_to_nowhere(script: Script, draw: st.DrawFn) -> Script:
    wrong = pick(draw, ("/rooms/{place}/open", "/places/{place}/door/open", "/you/at/place"))
    return change_action(script, _OPEN, effects=(Effect(op=EffectOp.SET, path=wrong, value=True),))


def _condition_without_answer(script: Script, draw: st.DrawFn) -> Script:
    wrong = pick(draw, ("state.rooms[place].open", "state.you.at > 3", "state.you.tired"))
    return change_action(script, _GO, requires=(Requirement(condition=wrong),))


def _invariant_broken(script: Script, draw: st.DrawFn) -> Script:
    del draw
    return with_rulebook(
        script, invariants=(Invariant(condition="size(state.you.holding) == 1", sentence="Never empty-handed."),)
    )


def _done_already(script: Script, draw: st.DrawFn) -> Script:
    done = pick(draw, ("true", "size(state.you.holding) == 0"))
    return with_rulebook(script, goal=(done,) * len(script.completion_conditions), solution=())


def _solution_stops_short(script: Script, draw: st.DrawFn) -> Script:
    solution = cast("Rulebook", script.rulebook).solution
    return with_rulebook(script, solution=solution[: integer(draw, 1, len(solution) - 1)])


def _solution_goes_wrong(script: Script, draw: st.DrawFn) -> Script:
    solution = cast("Rulebook", script.rulebook).solution
    wrong = pick(draw, ("juggle everything", "go to the moon", solution[-1]))
    return with_rulebook(script, solution=(wrong, *solution))


def _goal_out_of_reach(script: Script, draw: st.DrawFn) -> Script:
    rulebook = cast("Rulebook", script.rulebook)
    goal = pick(draw, ("false", "size(state.you.holding) == 2", "state.you.at == 'the moon'"))
    return with_rulebook(script, goal=(goal, *rulebook.goal[1:]), solution=())


def _never_usable(script: Script, draw: st.DrawFn) -> Script:
    """One more way to look, which is never possible: it asks for what no action brings about, and that is certain in a
    world of any size.
    """
    never = pick(draw, ("false", "state.lamp == 'lit'", "state.lamp != 'out' && state.you.at != 'the moon'"))
    stare = script.actions[-1].model_copy(
        update={"name": "stare", "pattern": "stare", "requires": (Requirement(condition=never),)}
    )
    environment = {**script.environment, "lamp": "out"}
    return script.model_copy(update={"environment": environment, "actions": (*script.actions, stare)})


def _too_easy(script: Script, draw: st.DrawFn) -> Script:
    """All that is asked for is to ring a bell."""
    del draw
    ring = ActionSpec(
        name="ring", pattern="ring", effects=(Effect(op=EffectOp.SET, path="/bell", value="rung"),), reveals="It rings."
    )
    rung = script.model_copy(
        update={"environment": {**script.environment, "bell": "silent"}, "actions": (*script.actions, ring)}
    )
    return with_rulebook(rung, goal=("state.bell == 'rung'",) * len(script.completion_conditions), solution=("ring",))


_BREAKS: Breaks[Script] = {
    "no rulebook": ("RulebookCompiles", _no_rulebook),
    "no condition": ("RulebookCompiles", _no_condition),
    "no path": ("RulebookCompiles", _no_path),
    "goal does not fit": ("GoalFitsConditions", _goal_does_not_fit),
    "values unknown": ("ValuesExist", _values_unknown),
    "path to nowhere": ("RulebookRuns", _path_to_nowhere),
    "condition without an answer": ("RulebookRuns", _condition_without_answer),
    "invariant broken": ("RulebookRuns", _invariant_broken),
    "done already": ("NotYetDone", _done_already),
    "solution stops short": ("SolutionWorks", _solution_stops_short),
    "solution goes wrong": ("SolutionWorks", _solution_goes_wrong),
    "goal out of reach": ("Solvable", _goal_out_of_reach),
    "never usable": ("ActionsUsable", _never_usable),
    "too easy": ("DifficultyBand", _too_easy),
}

RULEBOOK_CORRUPTIONS = rules_of(_BREAKS)
"""Name of each corruption to the class name of the stage that must catch it."""
