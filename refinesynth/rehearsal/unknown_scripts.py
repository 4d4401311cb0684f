"""Play in scripts that the rehearsal did not write, or wrote for a user's tools.

Their worlds cannot be executed: the DungeonMaster judges only the form of actions, and the Player tries the listed
actions. With a user's tools, the goal is a number of calls; other scripts never report success.
"""

import re
from collections.abc import Mapping, Sequence
from typing import Any, cast

from pydantic import JsonValue, ValidationError

from refinesynth.actions.matching import match_action
from refinesynth.rehearsal.injected_faults import Luck
from refinesynth.rehearsal.openai_wire import items
from refinesynth.rehearsal.phrasing import say, shown
from refinesynth.rehearsal.replayed_history import Exchange
from refinesynth.rules.ending import SUCCESS
from refinesynth.trajectory import ActionSpec, DungeonMasterTurn, MistakeKind, ParameterType, PlayerTurn, Script

_LINE = re.compile(r"^- (?P<name>[^:(\n]+)(?P<rest>.*)$", re.MULTILINE)
_VALUES = re.compile(r"\{(?P<name>[^{}]*)\} is one of: (?P<values>[^;)]*)")
_TYPES = re.compile(r"\{(?P<name>[^{}]*)\} is (?!one of: )(?P<words>[^;)]*)")
_SHARED = re.compile(r"^\{(?P<name>[^{}\n]*)\} is one of: (?P<values>.*)$", re.MULTILINE)

_MOST_ACTIONS = 40

CALLS = re.compile(r"\bScene calls-(?P<count>[0-9]{1,3})\.")
"""Label of a world for a user's tools, with the number of calls that reach its goal."""


def write_for_tools(tools: Sequence[ActionSpec], count: int, *, grounded: bool) -> dict[str, Any]:
    """Return a script as JSON in which `count` calls of any of these tools reach the goal."""
    laws = {"effects": [{"op": "add", "path": "/calls", "value": 1}], "reveals": "Call {state:/calls} has succeeded."}
    values = [
        {name: (*one.choices(name), *one.type_of(name).samples(), "it")[0] for name in one.placeholders}
        for one in tools
    ]
    samples = list(map(ActionSpec.fill, tools, values))
    script = {
        "introduction": f"Scene calls-{count}. A program is at hand that answers calls.",
        "environment": {"calls": 0},
        "goal": f"Make {count} calls that succeed.",
        "completion_conditions": [f"{count} calls have succeeded."],
        "actions": [{"name": one.name.partition(" ")[0], **laws} for one in tools],
        "rulebook": {
            "goal": [f"state.calls >= {count}"],
            "solution": [samples[at % len(samples)] for at in range(count)],
        },
    }
    return script if grounded else {key: each for key, each in script.items() if key not in {"actions", "rulebook"}}


def see_completion(script: JsonValue, history: JsonValue) -> dict[str, Any]:
    """Return the judgement on the completion conditions in the world of a user's tools, after these exchanges and a
    successful call.
    """
    needed = CALLS.search(str(script.get("introduction"))) if isinstance(script, dict) else None
    exchanges = (cast("dict[str, Any]", one) for one in items(history) if isinstance(one, dict))
    made = sum(one.get("mistake") is None for one in exchanges) + 1
    return {"thought": f"{made} calls have succeeded.", "done": needed is not None and made >= int(needed["count"])}


def judge_plainly(luck: Luck, script: JsonValue, exchanges: Sequence[Exchange], text: str) -> DungeonMasterTurn:
    """Return the answer to an action: accepted if the script lists it with allowed values, else a parameter error."""
    try:
        read = Script.from_llm(script)
        actions, needed = read.actions, CALLS.search(read.introduction)
    except (ValidationError, RecursionError):
        actions, needed = (), None
    wording, known = shown(text), match_action(actions, text) is not None
    rng = luck.rng("plain")
    if known:
        answer = say(rng, "plain_accepted", text=wording)
        thought = f'"{wording}" is an available action with allowed values.'
    else:
        answer = f'Nothing happens. No action is written like "{wording}".'
        thought = f'"{wording}" is not the form of an available action with allowed values.'
    if any(exchange.observation == answer for exchange in exchanges):
        answer = f"{answer} This is answer {len(exchanges) + 1}."
    if known and needed and sum(not exchange.refused for exchange in exchanges) + 1 >= int(needed["count"]):
        answer = f"{answer} {SUCCESS}"
    return DungeonMasterTurn.of_kind(None if known else MistakeKind.PARAMETER, thought=thought, observation=answer)


def improvise(luck: Luck, task: str, exchanges: Sequence[Exchange], *, slips: bool = False) -> PlayerTurn:
    """Return a listed action with listed values, preferably a new one; with `slips`, first one that does not exist and
    then the intended one.
    """
    rng = luck.rng("improvised")
    tried = {exchange.action for exchange in exchanges}
    shared = _values(_SHARED, task)
    choices = [_filled(luck, line, shared) for line in list(_LINE.finditer(task))[:_MOST_ACTIONS]] or ["look around"]
    untried = [choice for choice in choices if choice not in tried]
    meant = [
        choice for choice in choices if exchanges and exchanges[-1].refused and _slip(choice) == exchanges[-1].action
    ]
    action = rng.choice(meant or untried or choices)
    return PlayerTurn(thought=say(rng, "plain_tries"), action=_slip(action) if slips and not meant else action)


def _slip(action: str) -> str:
    first, space, rest = action.partition(" ")
    return f"{first}_now{space}{rest}"


def _filled(luck: Luck, line: re.Match[str], shared: Mapping[str, list[str]]) -> str:
    spec = ActionSpec(name=line["name"].strip() or "look around", pattern=".")
    rng = luck.rng(line["name"])
    kinds = ((found["name"], ParameterType.from_words(found["words"])) for found in _TYPES.finditer(line["rest"]))
    typed = {name: [*kind.samples()] for name, kind in kinds if kind is not None and kind.samples()}
    values = {**typed, **shared, **_values(_VALUES, line["rest"])}
    return spec.fill({name: rng.choice(values.get(name, ["it"])).strip() or "it" for name in spec.placeholders})


def _values(pattern: re.Pattern[str], text: str) -> dict[str, list[str]]:
    return {found["name"]: found["values"].split(", ") for found in pattern.finditer(text)}
