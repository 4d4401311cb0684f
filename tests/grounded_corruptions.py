"""Valid grounded drafts, each broken in one named way, with the rule that must catch it.

What is broken is always a statement of the draft that its rulebook contradicts. Where a change may leave everything
true, as when two exchanges change places that have nothing to do with each other, only those are drawn that do not: an
executor without memory plays them and reports.
"""

from collections.abc import Callable
from copy import deepcopy
from typing import Any, cast

from hypothesis import assume
from hypothesis import strategies as st

from refinesynth.testing.grounded_worlds import valid_grounded_drafts
from refinesynth.testing.valid import (
    Breaks,
    Corruption,
    broken,
    change_action,
    change_turn,
    integer,
    pick,
    pick_some,
    rules_of,
    whether,
    with_turns,
)
from refinesynth.trajectory import Draft, DungeonMasterTurn, PlayerTurn, Requirement, Rulebook
from refinesynth.world import Ruling, world_of

_FLAGS = ("parameter_error", "place_error", "logic_error")
_CLAIMS = ("You manage to do it.", "Done.", "It works; the way is free now.")
_COMPLAINTS = ("Nothing happens.", "That does not work.", "You cannot do that.", "Error: no such thing.")
_GOALS = ("The task is complete.", "Congratulations!", "With this you have reached your goal.")


def grounded_corruptions(*names: str) -> st.SearchStrategy[Corruption]:
    """Broken drafts, of the `names` given or of all in `GROUNDED_CORRUPTIONS`.

    `rules.grounded()` refuses each, and the rule named is among those that find something.
    """
    return broken(valid_grounded_drafts(), _BREAKS, names)


def _some(draft: Draft, draw: st.DrawFn, wanted: Callable[[DungeonMasterTurn], bool]) -> int:
    """Index of some answer of a kind; the example is given up if there is none."""
    found = [at for at in _answers(draft) if isinstance(turn := draft.turns[at], DungeonMasterTurn) and wanted(turn)]
    assume(found)
    return pick(draw, found)


def _answers(draft: Draft) -> range:
    """Indices of the turns that answer an action."""
    return range(1 if isinstance(draft.turns[0], PlayerTurn) else 2, len(draft.turns), 2)


def _accepted(turn: DungeonMasterTurn) -> bool:
    return not turn.flagged and not turn.transient


def _is_right(turn: DungeonMasterTurn) -> bool:
    """Not the last one either."""
    return _accepted(turn) and "Task Succeed" not in turn.observation


def _flagged(turn: DungeonMasterTurn) -> bool:
    return turn.flagged


def _transient(turn: DungeonMasterTurn) -> bool:
    return turn.transient


def _any(turn: DungeonMasterTurn) -> bool:
    return bool(turn.role)


def _flag_added(draft: Draft, draw: st.DrawFn) -> Draft:
    return change_turn(draft, _some(draft, draw, lambda turn: not turn.flagged), **{pick(draw, _FLAGS): True})


def _flag_removed(draft: Draft, draw: st.DrawFn) -> Draft:
    return change_turn(draft, _some(draft, draw, _flagged), **dict.fromkeys(_FLAGS, False))


def _flag_of_another_kind(draft: Draft, draw: st.DrawFn) -> Draft:
    at = _some(draft, draw, _flagged)
    wrong = pick(draw, [flag for flag in _FLAGS if not getattr(draft.turns[at], flag)])
    also = whether(draw)
    return change_turn(
        draft, at, **{flag: flag == wrong or (also and getattr(draft.turns[at], flag)) for flag in _FLAGS}
    )


def _progress_changed(draft: Draft, draw: st.DrawFn) -> Draft:
    at = _some(draft, draw, _any)
    turn = draft.turns[at]
    other = [
        value for value in (None, 0.0, 0.25, 0.5, 1.0) if isinstance(turn, DungeonMasterTurn) and value != turn.progress
    ]
    return change_turn(draft, at, progress=pick(draw, other))


def _transient_added(draft: Draft, draw: st.DrawFn) -> Draft:
    """An action that is reported as carried out is reported as failed for a moment."""
    return change_turn(draft, _some(draft, draw, _accepted), transient=True)


def _transient_removed(draft: Draft, draw: st.DrawFn) -> Draft:
    return change_turn(draft, _some(draft, draw, _transient), transient=False)


def _transient_of_a_mistake(draft: Draft, draw: st.DrawFn) -> Draft:
    at = _some(draft, draw, _flagged)
    return change_turn(
        draft, at, transient=True, observation="Not this time. Try again.", **dict.fromkeys(_FLAGS, False)
    )


def _success_claimed(draft: Draft, draw: st.DrawFn) -> Draft:
    at = _some(draft, draw, lambda turn: turn.flagged or turn.transient)
    return change_turn(draft, at, observation=pick(draw, _CLAIMS))


def _would_be_success_reported(draft: Draft, draw: st.DrawFn) -> Draft:
    """An action that failed for a moment is reported as carried out."""
    at = _some(draft, draw, _transient)
    return change_turn(draft, at, observation=_rulings(draft)[_answers(draft).index(at)].text)


def _failure_claimed(draft: Draft, draw: st.DrawFn) -> Draft:
    at = _some(draft, draw, _is_right)
    return change_turn(draft, at, observation=pick(draw, _COMPLAINTS))


def _goal_claimed(draft: Draft, draw: st.DrawFn) -> Draft:
    at = _some(draft, draw, lambda turn: "Task Succeed" not in turn.observation)
    observation = draft.turns[at].model_dump()["observation"]
    return change_turn(draft, at, observation=f"{observation} {pick(draw, _GOALS)}")


def _hidden_named(draft: Draft, draw: st.DrawFn) -> Draft:
    """The observation names something that is not visible."""
    world = world_of(draft.script)
    before = world.visible(draft.script.environment)
    found: list[tuple[int, str]] = []
    for at, ruling in zip(_answers(draft), _rulings(draft), strict=True):
        known = " ".join(
            (*before, *ruling.visible, ruling.text, draft.turns[at - 1].model_dump()["action"], draft.script.goal)
        )
        found.extend((at, name) for name in sorted(world.names) if name not in known)
        # What failed for a moment showed nothing; and what could be seen before an action may be spoken of after it.
        before = before if cast("DungeonMasterTurn", draft.turns[at]).transient else ruling.visible
    assume(found)
    at, name = pick(draw, found)
    observation = draft.turns[at].model_dump()["observation"]
    return change_turn(draft, at, observation=f"There is {name}, too. {observation}")


def _success_removed(draft: Draft, draw: st.DrawFn) -> Draft:
    return change_turn(draft, len(draft.turns) - 1, observation=pick(draw, ("It is in its place.", "TASK SUCCEED")))


def _success_added(draft: Draft, draw: st.DrawFn) -> Draft:
    at = _some(draft, draw, lambda turn: "Task Succeed" not in turn.observation)
    cut = whether(draw)
    observation = draft.turns[at].model_dump()["observation"]
    broken = change_turn(draft, at, observation=f"{observation} Task Succeed")
    return with_turns(broken, broken.turns[: at + 1]) if cut else broken


def _cut_off(draft: Draft, draw: st.DrawFn) -> Draft:
    return with_turns(draft, draft.turns[: pick(draw, _answers(draft)[:-1]) + 1])


def _goes_on(draft: Draft, draw: st.DrawFn) -> Draft:
    """The goal is reached, and something is done after it."""
    last = draft.turns[-1]
    more = (
        PlayerTurn(thought="One more look.", action="look"),
        last.model_copy(update={"observation": "Here. Task Succeed"}),
    )
    cut = change_turn(draft, len(draft.turns) - 1, observation="It is in its place.") if whether(draw) else draft
    return with_turns(cut, (*cut.turns, *more))


def _order_changed(draft: Draft, draw: st.DrawFn) -> Draft:
    starts = [at - 1 for at in _answers(draft)]
    one, other = sorted(pick_some(draw, starts, least=2, most=2))
    turns = list(draft.turns)
    turns[one : one + 2], turns[other : other + 2] = turns[other : other + 2], turns[one : one + 2]
    return _untrue(with_turns(draft, turns))


def _exchange_dropped(draft: Draft, draw: st.DrawFn) -> Draft:
    at = pick(draw, _answers(draft)) - 1
    return _untrue(with_turns(draft, (*draft.turns[:at], *draft.turns[at + 2 :])))


def _exchange_doubled(draft: Draft, draw: st.DrawFn) -> Draft:
    at = pick(draw, _answers(draft)) - 1
    return _untrue(with_turns(draft, (*draft.turns[: at + 2], *draft.turns[at:])))


def _action_changed(draft: Draft, draw: st.DrawFn) -> Draft:
    """Another action is answered as the one that was taken."""
    at = pick(draw, _answers(draft)) - 1
    others = [turn.action for turn in draft.turns if isinstance(turn, PlayerTurn)]
    return _untrue(change_turn(draft, at, action=pick(draw, (*others, "juggle everything", "look"))))


def _state_changed(draft: Draft, draw: st.DrawFn) -> Draft:
    """The play is reported for a world in which the player begins elsewhere, or something is open that was shut."""
    environment: dict[str, Any] = deepcopy(draft.script.environment)
    you, places = environment["you"], environment["places"]
    place = pick(draw, sorted(places))
    spot = places[place]
    if whether(draw):
        you["at"] = place
    else:
        spot["open"] = not spot["open"]
    return _untrue(_in(draft, environment=environment))


def _effect_lost(draft: Draft, draw: st.DrawFn) -> Draft:
    """An action of the rulebook no longer does what it did."""
    at = pick(draw, [at for at, action in enumerate(draft.script.actions) if action.effects])
    return _untrue(_law(draft, at, effects=()))


def _law_added(draft: Draft, draw: st.DrawFn) -> Draft:
    at = integer(draw, 0, len(draft.script.actions) - 1)
    return _untrue(_law(draft, at, requires=(*draft.script.actions[at].requires, Requirement(condition="false"))))


def _laws_lost(draft: Draft, draw: st.DrawFn) -> Draft:
    """An action that was called wrong is refused no longer."""
    rulings = [ruling for ruling in _rulings(draft) if ruling.kind is not None and ruling.action is not None]
    assume(rulings)
    refused = pick(draw, rulings).action
    at = next(at for at, action in enumerate(draft.script.actions) if action.name == refused)
    return _untrue(_law(draft, at, requires=()))


def _goal_changed(draft: Draft, draw: st.DrawFn) -> Draft:
    rulebook = cast("Rulebook", draft.script.rulebook)
    other = pick(draw, ("false", "true", "size(state.you.holding) == 1"))
    return _untrue(_in(draft, rulebook=rulebook.model_copy(update={"goal": (other, *rulebook.goal[1:])})))


def _no_rulebook(draft: Draft, draw: st.DrawFn) -> Draft:
    del draw
    return draft.model_copy(update={"script": draft.script.imagined()})


def _in(draft: Draft, **fields: object) -> Draft:
    return draft.model_copy(update={"script": draft.script.model_copy(update=fields)})


def _law(draft: Draft, at: int, **fields: object) -> Draft:
    return draft.model_copy(update={"script": change_action(draft.script, at, **fields)})


def _rulings(draft: Draft) -> list[Ruling]:
    """What the world says of each action; of a transient failure, what would have come of it."""
    world, rulings = world_of(draft.script), list[Ruling]()
    state = draft.script.environment
    for at in _answers(draft):
        ruling = world.step(state, cast("PlayerTurn", draft.turns[at - 1]).action)
        rulings.append(ruling)
        state = state if cast("DungeonMasterTurn", draft.turns[at]).transient else ruling.state
    return rulings


def _untrue(draft: Draft) -> Draft:
    """The draft, if a flag, a progress or the success in it is not what its rulebook says; else the example is given
    up.
    """
    world = world_of(draft.script)
    progress, done = world.progress(draft.script.environment), False
    for at, ruling in zip(_answers(draft), _rulings(draft), strict=True):
        turn = cast("DungeonMasterTurn", draft.turns[at])
        if turn.mistake_kind is not ruling.kind or (turn.transient and not ruling.changed):
            return draft
        progress, done = (progress, done) if turn.transient else (ruling.progress, ruling.done)
        if turn.progress != progress or done != ("Task Succeed" in turn.observation):
            return draft
    assume(not done)
    return draft


def _repeated_in_vain(draft: Draft, draw: st.DrawFn) -> Draft:
    """What was refused is tried again at once, and refused again."""
    found = [at for at, ruling in zip(_answers(draft), _rulings(draft), strict=True) if ruling.kind is not None]
    at = pick(draw, found) + 1
    return with_turns(draft, [*draft.turns[:at], *draft.turns[at - 2 : at], *draft.turns[at:]])


_BREAKS: Breaks[Draft] = {
    "mistake repeated in vain": ("NoRepeatedMistake", _repeated_in_vain),
    "flag added": ("Replays", _flag_added),
    "flag removed": ("Replays", _flag_removed),
    "flag of another kind": ("Replays", _flag_of_another_kind),
    "progress changed": ("Replays", _progress_changed),
    "transient failure of a mistake": ("Replays", _transient_of_a_mistake),
    "success removed": ("Replays", _success_removed),
    "success added": ("Replays", _success_added),
    "cut off": ("Replays", _cut_off),
    "goes on after the goal": ("Replays", _goes_on),
    "order changed": ("Replays", _order_changed),
    "exchange dropped": ("Replays", _exchange_dropped),
    "exchange doubled": ("Replays", _exchange_doubled),
    "action changed": ("Replays", _action_changed),
    "state changed": ("Replays", _state_changed),
    "effect lost": ("Replays", _effect_lost),
    "law added": ("Replays", _law_added),
    "laws lost": ("Replays", _laws_lost),
    "goal changed": ("Replays", _goal_changed),
    "no rulebook": ("Replays", _no_rulebook),
    "transient failure added": ("WordsAgree", _transient_added),
    "transient failure removed": ("WordsAgree", _transient_removed),
    "success claimed": ("WordsAgree", _success_claimed),
    "would-be success reported": ("WordsAgree", _would_be_success_reported),
    "failure claimed": ("WordsAgree", _failure_claimed),
    "goal claimed": ("WordsAgree", _goal_claimed),
    "hidden thing named": ("WordsAgree", _hidden_named),
}

GROUNDED_CORRUPTIONS = rules_of(_BREAKS)
"""Name of each corruption to the class name of the rule that must catch it."""
