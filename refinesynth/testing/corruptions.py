"""Valid drafts broken in one named way, with the rule that must catch the corruption."""

from collections.abc import Callable, Sequence

from hypothesis import strategies as st
from pydantic import JsonValue

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
    valid_scripts,
    whether,
    with_turns,
)
from refinesynth.trajectory import (
    ActionSpec,
    Draft,
    DraftTurn,
    DungeonMasterTurn,
    PlayerTurn,
    Script,
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


def script_corruptions(*names: str) -> st.SearchStrategy[Corruption]:
    """Return a strategy for drafts with a broken script and no turns, of `SCRIPT_CORRUPTIONS` or the given `names`.

    `rules.script()` refuses each; the named rule is among those that find something.
    """
    return broken(valid_scripts(), _SCRIPT_BREAKS, names)


def _with(script: Script, *actions: ActionSpec) -> Script:
    return script.model_copy(update={"actions": actions})


def _change_first(script: Script, **fields: object) -> Script:
    """Change the first action, which in a valid script has the parameters `thing` and `place`."""
    return _with(script, script.actions[0].model_copy(update=fields), *script.actions[1:])


def _refused_pattern(script: Script, draw: st.DrawFn) -> Script:
    refused = (r"(?=take).*", r"(\w+) \1", "(unclosed", "x{5000}", "(a{999}){999}", "x" * 3_000)
    return _change_first(script, pattern=pick(draw, refused))


def _groups_do_not_fit(script: Script, draw: st.DrawFn) -> Script:
    verb = script.actions[0].name.partition(" ")[0]
    wrong = (f"{verb} (.+)", f"({verb}) (.+) from (.+)", f"{verb} (?P<thing>.+) from (?P<where>.+)", f"{verb} .+")
    return _change_first(script, pattern=pick(draw, wrong))


def _misses_template(script: Script, draw: st.DrawFn) -> Script:
    verb = script.actions[0].name.partition(" ")[0]
    wrong = (f"{verb}(.+)of(.+)", f"{verb} (thing) from (place)", f"{verb}ing (.+) from (.+)", f"(.+) {verb} (.+)")
    return _change_first(script, pattern=pick(draw, wrong))


def _ambiguous_pattern(script: Script, draw: st.DrawFn) -> Script:
    catches = pick(draw, (".+", r"\s*(?:.*) *", r"\S+(?: .*)?"))
    return _with(script, *script.actions, ActionSpec(name="anything else", pattern=catches))


def _matches_nothing(script: Script, draw: st.DrawFn) -> Script:
    pattern = pick(draw, ("(?:hum)?", "(?:hum)*", "hum|", "^(?:hum|$)"))
    return _with(script, *script.actions, ActionSpec(name="hum", pattern=pattern))


def _parameter_missing(script: Script, draw: st.DrawFn) -> Script:
    removed = pick(draw, ("thing", "place"))
    kept = {name: values for name, values in script.actions[0].parameters.items() if name != removed}
    return _change_first(script, parameters=kept)


def _parameter_spare(script: Script, draw: st.DrawFn) -> Script:
    added = pick(draw, ("tool", "Thing", "place "))
    return _change_first(script, parameters={**script.actions[0].parameters, added: ()})


def _same_name(script: Script, draw: st.DrawFn) -> Script:
    first = script.actions[0]
    name = pick(draw, (first.name, first.name.upper(), f" {first.name}  "))
    return _with(script, *script.actions, ActionSpec(name=name, pattern="hum"))


def _too_many_actions(script: Script, draw: st.DrawFn) -> Script:
    more = integer(draw, 40, 60)
    return _with(script, *script.actions, *(ActionSpec(name=f"hum {n}", pattern=f"hum {n}") for n in range(more)))


def _environment(script: Script, draw: st.DrawFn) -> Script:
    deep: JsonValue = "bottom"
    for _ in range(integer(draw, 13, 50)):
        deep = {"in": deep}
    large: JsonValue = {"items": "thing " * integer(draw, 10_000, 12_000)}
    empty: JsonValue = {}
    return script.model_copy(update={"environment": pick(draw, (empty, deep, large))})


_SCRIPT_BREAKS: Breaks[Script] = {
    "refused pattern": ("PatternsCompile", _refused_pattern),
    "groups do not fit": ("GroupsFitPlaceholders", _groups_do_not_fit),
    "misses its template": ("PatternsMatchTheirTemplates", _misses_template),
    "ambiguous pattern": ("PatternsAreUnambiguous", _ambiguous_pattern),
    "matches nothing": ("PatternsNeedText", _matches_nothing),
    "parameter missing": ("PlaceholdersHaveParameters", _parameter_missing),
    "parameter to spare": ("PlaceholdersHaveParameters", _parameter_spare),
    "same name": ("UniqueNames", _same_name),
    "too few actions": ("ActionCount", lambda script, draw: _with(script, *script.actions[: integer(draw, 0, 2)])),
    "too many actions": ("ActionCount", _too_many_actions),
    "environment out of limits": ("EnvironmentLimits", _environment),
}

SCRIPT_CORRUPTIONS = rules_of(_SCRIPT_BREAKS)
"""Script rule that must catch a corruption, by the corruption's name."""
