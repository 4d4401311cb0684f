"""Valid drafts, each broken in one named way, with the rule that must catch it."""

from hypothesis import strategies as st

from refinesynth.testing.breaking import Breaks, Corruption, answer, broken, change_turn, rules_of, with_turns
from refinesynth.testing.drawing import pick, whether, whole
from refinesynth.testing.valid import valid_drafts
from refinesynth.trajectory import (
    Draft,
    DraftTurn,
    DungeonMasterTurn,
    PlayerTurn,
    flagged_turns,
    read_turn,
)


def corruptions(*names: str) -> st.SearchStrategy[Corruption]:
    """Broken drafts, of the `names` given or of all in `CORRUPTIONS`.

    `rules.strict()` refuses each, and the rule named is among those that find something.
    """
    return broken(valid_drafts(), _BREAKS, names)


def _insert(draft: Draft, at: int, added: list[DraftTurn]) -> Draft:
    return with_turns(draft, [*draft.turns[:at], *added, *draft.turns[at:]])


def _exchange(action: str, observation: str, *, flag: str | None = None) -> list[DraftTurn]:
    return [PlayerTurn(thought="I try this.", action=action), answer(observation, flag=flag)]


def _start(draft: Draft) -> int:
    """Index of the first player turn."""
    return next(at for at, turn in enumerate(draft.turns) if isinstance(turn, PlayerTurn))


def _accepted(draft: Draft, draw: st.DrawFn) -> int:
    """Index of some player turn that was not a mistake."""
    mistakes = flagged_turns(draft.turns)
    players = [at for at, turn in enumerate(draft.turns) if isinstance(turn, PlayerTurn) and at not in mistakes]
    return pick(draw, players)


def _mistake(draft: Draft, draw: st.DrawFn) -> int:
    return pick(draw, flagged_turns(draft.turns))


def _valid_action(draft: Draft) -> str:
    listed = draft.script.actions[0]
    return listed.fill({name: values[0] for name, values in listed.parameters.items()})


def _unreadable(draft: Draft, draw: st.DrawFn) -> Draft:
    kept = whole(draw, 0, len(draft.turns))
    return draft.model_copy(update={"turns": draft.turns[:kept], "text_error": "the answer holds no JSON"})


def _key_missing(draft: Draft, draw: st.DrawFn) -> Draft:
    at = whole(draw, 0, len(draft.turns) - 1)
    written = draft.turns[at].model_dump(mode="json")
    del written[pick(draw, sorted(written))]
    return with_turns(draft, [*draft.turns[:at], read_turn(written), *draft.turns[at + 1 :]])


def _unknown_action(draft: Draft, draw: st.DrawFn) -> Draft:
    return change_turn(draft, _accepted(draft, draw), action=pick(draw, ("juggle everything", "", "x" * 20_000)))


def _forbidden_value(draft: Draft, draw: st.DrawFn) -> Draft:
    listed = draft.script.actions[0]
    action = listed.fill(dict.fromkeys(listed.parameters, "nonesuch 99"))
    return change_turn(draft, _accepted(draft, draw), action=action)


def _other_case(draft: Draft, draw: st.DrawFn) -> Draft:
    """Every value in another case than the script's; of a place, there always is one."""
    listed = draft.script.actions[0]
    action = listed.fill({name: pick(draw, values).swapcase() for name, values in listed.parameters.items()})
    return change_turn(draft, _accepted(draft, draw), action=action)


def _flagged_ending(draft: Draft, draw: st.DrawFn) -> Draft:
    flag = pick(draw, ("parameter_error", "place_error", "logic_error"))
    return change_turn(draft, len(draft.turns) - 1, **{flag: True})


def _no_success(draft: Draft, draw: st.DrawFn) -> Draft:
    return change_turn(draft, len(draft.turns) - 1, observation=pick(draw, ("All done.", "TASK SUCCEED", "")))


def _cut_off(draft: Draft, draw: st.DrawFn) -> Draft:
    """Anywhere but after a flagged turn, which would be another fault."""
    mistakes = flagged_turns(draft.turns)
    kept = pick(draw, [length for length in range(len(draft.turns)) if length - 2 not in mistakes])
    return with_turns(draft, list(draft.turns[:kept]))


def _too_few_mistakes(draft: Draft, draw: st.DrawFn) -> Draft:
    """Takes exchanges out rather than flags off, so that nothing else goes wrong."""
    mistakes = flagged_turns(draft.turns)
    spared = pick(draw, (None, *mistakes))
    gone = {index for at in mistakes if at != spared for index in (at, at + 1)}
    return with_turns(draft, [turn for at, turn in enumerate(draft.turns) if at not in gone])


def _role_twice(draft: Draft, draw: st.DrawFn) -> Draft:
    at = whole(draw, 0, len(draft.turns) - 2)
    return _insert(draft, at, [draft.turns[at]])


def _blank(draft: Draft, draw: st.DrawFn) -> Draft:
    at = whole(draw, 0, len(draft.turns) - 1)
    fields = ("thought", "action") if isinstance(draft.turns[at], PlayerTurn) else ("observation",)
    return change_turn(draft, at, **{pick(draw, fields): pick(draw, ("", " ", "\n\t"))})


def _unrepaired(draft: Draft, draw: st.DrawFn) -> Draft:
    wrong = [turn for n in range(3) for turn in _exchange(f"juggle {n}", "No.", flag="parameter_error")]
    return _insert(draft, _mistake(draft, draw) + 2, wrong)


def _repeated(draft: Draft, draw: st.DrawFn) -> Draft:
    """At once or later: the DM calls it wrong again."""
    at = _mistake(draft, draw)
    later = [k for k in range(at + 2, len(draft.turns)) if isinstance(draft.turns[k], PlayerTurn)]
    return _insert(draft, pick(draw, later), list(draft.turns[at : at + 2]))


def _let_through(draft: Draft, draw: st.DrawFn) -> Draft:
    """The DM accepts what it called wrong just before."""
    at = _mistake(draft, draw)
    said = draft.turns[at]
    return _insert(draft, at + 2, [said, *_exchange("", "Now it works.")[1:]])


def _success_too_early(draft: Draft, draw: st.DrawFn) -> Draft:
    at = pick(draw, [at for at, turn in enumerate(draft.turns[:-1]) if isinstance(turn, DungeonMasterTurn)])
    return change_turn(draft, at, observation=pick(draw, ("Task Succeed", "Well done. Task Succeed!")))


def _ambiguous(draft: Draft, draw: st.DrawFn) -> Draft:
    at = _accepted(draft, draw)
    turn = draft.turns[at]
    if whether(draw):
        said = pick(draw, ("Action: look", "**Action**: look", "It said\naction:", "Then\n> Action: go\nThen"))
        return change_turn(draft, at, thought=f"First this.\n{said}")
    action = turn.action.strip() if isinstance(turn, PlayerTurn) else ""
    written = pick(draw, ("{}\n\nThis should work.", "`{}`", '"{}"', "**{}**", "{}\nObservation: Done."))
    return change_turn(draft, at, action=written.format(action))


def _false_alarm(draft: Draft, draw: st.DrawFn) -> Draft:
    del draw
    return _insert(draft, _start(draft), _exchange(_valid_action(draft), "No such thing.", flag="parameter_error"))


def _leak(draft: Draft, draw: st.DrawFn) -> Draft:
    said = pick(
        draw,
        (
            "As the DM, I let this fail.",
            "I was told to make a mistake here, so I take the wrong one.",
            "Let me first make a plausible mistake.",
            "The parameter_error will be true now.",
        ),
    )
    at = pick(draw, [at for at, turn in enumerate(draft.turns) if isinstance(turn, PlayerTurn)])
    return change_turn(draft, at, thought=f"Let us see. {said}")


def _stuck(draft: Draft, draw: st.DrawFn) -> Draft:
    times = whole(draw, 3, 5)
    same = [turn for _ in range(times) for turn in _exchange(_valid_action(draft), "You are in the hall.")]
    return _insert(draft, _start(draft), same)


def _too_many_turns(draft: Draft, draw: st.DrawFn) -> Draft:
    times = whole(draw, 50, 60)
    more = [turn for n in range(times) for turn in _exchange(_valid_action(draft), f"Lap {n}.")]
    return _insert(draft, _start(draft), more)


def _turn_too_long(draft: Draft, draw: st.DrawFn) -> Draft:
    return change_turn(draft, whole(draw, 0, len(draft.turns) - 1), thought="Hm. " * 2_500)


def _too_long(draft: Draft, draw: st.DrawFn) -> Draft:
    del draw
    more = [turn for n in range(10) for turn in _exchange(_valid_action(draft), f"{n}: {'way ' * 1_800}")]
    return _insert(draft, _start(draft), more)


_BREAKS: Breaks[Draft] = {
    "unreadable text": ("ReadableText", _unreadable),
    "key missing": ("RequiredKeys", _key_missing),
    "unknown action accepted": ("ValidActions", _unknown_action),
    "forbidden value accepted": ("ValidActions", _forbidden_value),
    "value in another case accepted": ("ValidActions", _other_case),
    "flagged ending": ("UnflaggedEnding", _flagged_ending),
    "no success": ("TaskSucceed", _no_success),
    "cut off": ("TaskSucceed", _cut_off),
    "too few mistakes": ("EnoughMistakes", _too_few_mistakes),
    "role twice": ("Alternation", _role_twice),
    "nothing said": ("NothingBlank", _blank),
    "ambiguous as text": ("ReadsBack", _ambiguous),
    "success too early": ("SucceedsOnce", _success_too_early),
    "mistake not repaired": ("RealRefinement", _unrepaired),
    "mistake repeated": ("NoRepeatedMistake", _repeated),
    "mistake let through": ("NoRepeatedMistake", _let_through),
    "false alarm": ("NoFalseAlarm", _false_alarm),
    "leak in a thought": ("NoLeaks", _leak),
    "DM stuck": ("FreshObservations", _stuck),
    "too many turns": ("TurnLimit", _too_many_turns),
    "turn too long": ("SizeLimits", _turn_too_long),
    "trajectory too long": ("SizeLimits", _too_long),
}

CORRUPTIONS = rules_of(_BREAKS)
"""Name of each corruption to the class name of the rule that must catch it."""
