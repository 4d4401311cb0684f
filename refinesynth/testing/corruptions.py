"""Valid drafts broken in one named way, with the rule that must catch the corruption."""

from collections.abc import Callable, Sequence

from hypothesis import strategies as st

from refinesynth.testing.valid import (
    Breaks,
    Corruption,
    answer,
    broken,
    change_turn,
    integer,
    pick,
    rules_of,
    valid_drafts,
    whether,
    with_turns,
)
from refinesynth.trajectory import (
    Draft,
    DraftTurn,
    DungeonMasterTurn,
    PlayerTurn,
    flagged_turns,
    read_turn,
)


def corruptions(*names: str) -> st.SearchStrategy[Corruption]:
    """Return a strategy for broken drafts of `CORRUPTIONS`, or of the given `names`.

    `rules.strict()` refuses each; the named rule is among those that find something.
    """
    return broken(valid_drafts(), _BREAKS, names)


Position = Callable[[Draft, st.DrawFn], int]
Break = Callable[[Draft, st.DrawFn], Draft]


def _changed(position: Position, **values: Sequence[object]) -> Break:
    """Return a change of one turn: it draws a field, and one of the field's `values`."""

    def change(draft: Draft, draw: st.DrawFn) -> Draft:
        index, name = position(draft, draw), pick(draw, tuple(values))
        return change_turn(draft, index, **{name: pick(draw, values[name])})

    return change


def _opened(minimum: int, maximum: int, observation: str, **flags: str) -> Break:
    """Return an insertion of valid actions before the first one; `{}` in the observation is an action's number."""

    def insert(draft: Draft, draw: st.DrawFn) -> Draft:
        start = next(index for index, turn in enumerate(draft.turns) if isinstance(turn, PlayerTurn))
        answers = [observation.format(number) for number in range(integer(draw, minimum, maximum))]
        return _insert(
            draft, start, [turn for text in answers for turn in _exchange(_valid_action(draft), text, **flags)]
        )

    return insert


def _insert(draft: Draft, index: int, added: Sequence[DraftTurn]) -> Draft:
    return with_turns(draft, [*draft.turns[:index], *added, *draft.turns[index:]])


def _exchange(action: str, observation: str, *, flag: str | None = None) -> list[DraftTurn]:
    return [PlayerTurn(thought="I try this.", action=action), answer(observation, flag=flag)]


def _any(draft: Draft, draw: st.DrawFn) -> int:
    return integer(draw, 0, len(draft.turns) - 1)


def _last(draft: Draft, _: st.DrawFn) -> int:
    return len(draft.turns) - 1


def _early_answer(draft: Draft, draw: st.DrawFn) -> int:
    return pick(draw, [index for index, turn in enumerate(draft.turns[:-1]) if isinstance(turn, DungeonMasterTurn)])


def _action(draft: Draft, draw: st.DrawFn) -> int:
    return pick(draw, [index for index, turn in enumerate(draft.turns) if isinstance(turn, PlayerTurn)])


def _accepted(draft: Draft, draw: st.DrawFn) -> int:
    mistakes = flagged_turns(draft.turns)
    players = [i for i, turn in enumerate(draft.turns) if isinstance(turn, PlayerTurn) and i not in mistakes]
    return pick(draw, players)


def _mistake(draft: Draft, draw: st.DrawFn) -> int:
    return pick(draw, flagged_turns(draft.turns))


def _valid_action(draft: Draft) -> str:
    action = draft.script.actions[0]
    return action.fill({name: values[0] for name, values in action.parameters.items()})


def _key_missing(draft: Draft, draw: st.DrawFn) -> Draft:
    index = _any(draft, draw)
    fields = draft.turns[index].model_dump(mode="json")
    del fields[pick(draw, sorted(fields))]
    return with_turns(draft, [*draft.turns[:index], read_turn(fields), *draft.turns[index + 1 :]])


def _forbidden_value(draft: Draft, draw: st.DrawFn) -> Draft:
    first = draft.script.actions[0]
    action = first.fill(dict.fromkeys(first.parameters, "nonesuch 99"))
    return change_turn(draft, _accepted(draft, draw), action=action)


def _other_case(draft: Draft, draw: st.DrawFn) -> Draft:
    """Write every value in another case than the script's."""
    first = draft.script.actions[0]
    action = first.fill({name: pick(draw, values).swapcase() for name, values in first.parameters.items()})
    return change_turn(draft, _accepted(draft, draw), action=action)


def _cut_off(draft: Draft, draw: st.DrawFn) -> Draft:
    """Cut the draft anywhere except after a flagged turn, which would be another fault."""
    mistakes = flagged_turns(draft.turns)
    length_kept = pick(draw, [length for length in range(len(draft.turns)) if length - 2 not in mistakes])
    return with_turns(draft, list(draft.turns[:length_kept]))


def _too_few_mistakes(draft: Draft, draw: st.DrawFn) -> Draft:
    """Remove whole exchanges; removed flags alone would cause further faults."""
    mistakes = flagged_turns(draft.turns)
    kept = pick(draw, (None, *mistakes))
    removed = {index for at in mistakes if at != kept for index in (at, at + 1)}
    return with_turns(draft, [turn for at, turn in enumerate(draft.turns) if at not in removed])


def _role_twice(draft: Draft, draw: st.DrawFn) -> Draft:
    index = integer(draw, 0, len(draft.turns) - 2)
    return _insert(draft, index, [draft.turns[index]])


def _blank(draft: Draft, draw: st.DrawFn) -> Draft:
    index = _any(draft, draw)
    fields = ("thought", "action") if isinstance(draft.turns[index], PlayerTurn) else ("observation",)
    return change_turn(draft, index, **{pick(draw, fields): pick(draw, ("", " ", "\n\t"))})


def _unrepaired(draft: Draft, draw: st.DrawFn) -> Draft:
    mistakes = [turn for n in range(3) for turn in _exchange(f"juggle {n}", "No.", flag="parameter")]
    return _insert(draft, _mistake(draft, draw) + 2, mistakes)


def _repeated(draft: Draft, draw: st.DrawFn) -> Draft:
    """Insert a mistake and its refusal again, at once or later."""
    index = _mistake(draft, draw)
    later = [i for i in range(index + 2, len(draft.turns)) if isinstance(draft.turns[i], PlayerTurn)]
    return _insert(draft, pick(draw, later), list(draft.turns[index : index + 2]))


def _let_through(draft: Draft, draw: st.DrawFn) -> Draft:
    """Let the DungeonMaster accept an action right after its refusal."""
    index = _mistake(draft, draw)
    refusal = draft.turns[index]
    return _insert(draft, index + 2, [refusal, *_exchange("", "Now it works.")[1:]])


def _ambiguous(draft: Draft, draw: st.DrawFn) -> Draft:
    index = _accepted(draft, draw)
    turn = draft.turns[index]
    if whether(draw):
        suffix = pick(draw, ("Action: look", "**Action**: look", "It said\naction:", "Then\n> Action: go\nThen"))
        return change_turn(draft, index, thought=f"First this.\n{suffix}")
    action = turn.action.strip() if isinstance(turn, PlayerTurn) else ""
    form = pick(draw, ("{}\n\nThis should work.", "`{}`", '"{}"', "**{}**", "{}\nObservation: Done."))
    return change_turn(draft, index, action=form.format(action))


_LEAKS = (
    "As the DM, I let this fail.",
    "I was told to make a mistake here, so I take the wrong one.",
    "Let me first make a plausible mistake.",
    "The parameter_error will be true now.",
)

_BREAKS: Breaks[Draft] = {
    "unreadable text": (
        "ReadableText",
        lambda draft, draw: draft.model_copy(
            update={
                "turns": draft.turns[: integer(draw, 0, len(draft.turns))],
                "text_error": "the answer holds no JSON",
            }
        ),
    ),
    "key missing": ("RequiredKeys", _key_missing),
    "unknown action accepted": ("ValidActions", _changed(_accepted, action=("juggle everything", "", "x" * 20_000))),
    "forbidden value accepted": ("ValidActions", _forbidden_value),
    "value in another case accepted": ("ValidActions", _other_case),
    "flagged ending": (
        "UnflaggedEnding",
        _changed(_last, parameter_error=(True,), place_error=(True,), logic_error=(True,)),
    ),
    "no success": ("TaskSucceed", _changed(_last, observation=("All done.", "TASK SUCCEED", ""))),
    "cut off": ("TaskSucceed", _cut_off),
    "too few mistakes": ("EnoughMistakes", _too_few_mistakes),
    "role twice": ("Alternation", _role_twice),
    "nothing said": ("NothingBlank", _blank),
    "ambiguous as text": ("ReadsBack", _ambiguous),
    "success too early": (
        "SucceedsOnce",
        _changed(_early_answer, observation=("Task Succeed", "Well done. Task Succeed!")),
    ),
    "mistake not repaired": ("RealRefinement", _unrepaired),
    "mistake repeated": ("NoRepeatedMistake", _repeated),
    "mistake let through": ("NoRepeatedMistake", _let_through),
    "false alarm": ("NoFalseAlarm", _opened(1, 1, "No such thing.", flag="parameter")),
    "leak in a thought": ("NoLeaks", _changed(_action, thought=[f"Let us see. {leak}" for leak in _LEAKS])),
    "DM stuck": ("FreshObservations", _opened(3, 5, "You are in the hall.")),
    "too many turns": ("TurnLimit", _opened(50, 60, "Lap {}.")),
    "turn too long": ("SizeLimits", _changed(_any, thought=("Hm. " * 2_500,))),
    "trajectory too long": ("SizeLimits", _opened(10, 10, f"{{}}: {'way ' * 1_800}")),
}

CORRUPTIONS = rules_of(_BREAKS)
"""Rule that must catch a corruption, by the corruption's name."""
