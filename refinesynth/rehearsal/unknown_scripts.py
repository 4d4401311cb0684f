"""Play in scripts that the rehearsal did not write, or wrote for a user's tools.

Their worlds cannot be executed: the DungeonMaster judges only the form of actions, and the Player tries the listed
actions. With a user's tools, the goal is a number of calls; other scripts never report success.
"""

import re
from collections.abc import Mapping, Sequence
from typing import Any, cast

from pydantic import JsonValue, ValidationError

from refinesynth.actions.matching import match_action
from refinesynth.rehearsal.injected_faults import Draws
from refinesynth.rehearsal.openai_wire import items
from refinesynth.rehearsal.phrasing import one_line, say
from refinesynth.rehearsal.replayed_history import Exchange
from refinesynth.rules.actions import SUCCESS
from refinesynth.trajectory import ActionSpec, DungeonMasterTurn, MistakeKind, ParameterType, PlayerTurn, Script

_LINE = re.compile(r"^- (?P<name>[^:(\n]+)(?P<rest>.*)$", re.MULTILINE)
_VALUES = re.compile(r"\{(?P<name>[^{}]*)\} is one of: (?P<values>[^;)]*)")
_TYPES = re.compile(r"\{(?P<name>[^{}]*)\} is (?!one of: )(?P<words>[^;)]*)")
_SHARED = re.compile(r"^\{(?P<name>[^{}\n]*)\} is one of: (?P<values>.*)$", re.MULTILINE)

_MAX_ACTIONS = 40

CALLS = re.compile(r"\bScene calls-(?P<count>[0-9]{1,3})\.")
"""Label of a world for a user's tools, with the number of calls that reach its goal."""


def write_for_tools(tools: Sequence[ActionSpec], count: int, *, grounded: bool) -> dict[str, Any]:
    """Return a script as JSON in which `count` calls of any of these tools reach the goal."""
    laws = {"effects": [{"op": "add", "path": "/calls", "value": 1}], "reveals": "Call {state:/calls} has succeeded."}
    values = [
        {name: (*tool.choices(name), *tool.type_of(name).samples(), "it")[0] for name in tool.placeholders}
        for tool in tools
    ]
    samples = list(map(ActionSpec.fill, tools, values))
    script = {
        "introduction": f"Scene calls-{count}. A program is at hand that answers calls.",
        "environment": {"calls": 0},
        "goal": f"Make {count} calls that succeed.",
        "completion_conditions": [f"{count} calls have succeeded."],
        "actions": [{"name": tool.name.partition(" ")[0], **laws} for tool in tools],
        "rulebook": {
            "goal": [f"state.calls >= {count}"],
            "solution": [samples[index % len(samples)] for index in range(count)],
        },
    }
    return script if grounded else {key: value for key, value in script.items() if key not in {"actions", "rulebook"}}


def judge_completion(script: JsonValue, history: JsonValue) -> dict[str, Any]:
    """Return the judgement on the completion conditions in the world of a user's tools, after these exchanges and a
    successful call.
    """
    needed = CALLS.search(str(script.get("introduction"))) if isinstance(script, dict) else None
    exchanges = (cast("dict[str, Any]", exchange) for exchange in items(history) if isinstance(exchange, dict))
    calls = sum(exchange.get("mistake") is None for exchange in exchanges) + 1
    return {"thought": f"{calls} calls have succeeded.", "done": needed is not None and calls >= int(needed["count"])}


def judge_form(draws: Draws, script: JsonValue, exchanges: Sequence[Exchange], text: str) -> DungeonMasterTurn:
    """Return the answer to an action: accepted if the script lists it with allowed values, else a parameter error."""
    try:
        parsed = Script.from_llm(script)
        actions, needed = parsed.actions, CALLS.search(parsed.introduction)
    except (ValidationError, RecursionError):
        actions, needed = (), None
    wording, known = one_line(text), match_action(actions, text) is not None
    rng = draws.rng("plain")
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


def improvise(draws: Draws, task: str, exchanges: Sequence[Exchange], *, misname: bool = False) -> PlayerTurn:
    """Return a listed action with listed values, preferably a new one; with `misname`, first one that does not exist,
    then the intended one.
    """
    rng = draws.rng("improvised")
    tried = {exchange.action for exchange in exchanges}
    shared = _values(_SHARED, task)
    choices = [_filled(draws, line, shared) for line in list(_LINE.finditer(task))[:_MAX_ACTIONS]] or ["look around"]
    untried = [choice for choice in choices if choice not in tried]
    meant = [
        choice for choice in choices if exchanges and exchanges[-1].refused and _misname(choice) == exchanges[-1].action
    ]
    action = rng.choice(meant or untried or choices)
    return PlayerTurn(thought=say(rng, "plain_tries"), action=_misname(action) if misname and not meant else action)


def _misname(action: str) -> str:
    first, space, rest = action.partition(" ")
    return f"{first}_now{space}{rest}"


def _filled(draws: Draws, line: re.Match[str], shared: Mapping[str, list[str]]) -> str:
    spec = ActionSpec(name=line["name"].strip() or "look around", pattern=".")
    rng = draws.rng(line["name"])
    kinds = ((match["name"], ParameterType.from_words(match["words"])) for match in _TYPES.finditer(line["rest"]))
    typed = {name: [*kind.samples()] for name, kind in kinds if kind is not None and kind.samples()}
    values = {**typed, **shared, **_values(_VALUES, line["rest"])}
    return spec.fill({name: rng.choice(values.get(name, ["it"])).strip() or "it" for name in spec.placeholders})


def _values(pattern: re.Pattern[str], text: str) -> dict[str, list[str]]:
    return {match["name"]: match["values"].split(", ") for match in pattern.finditer(text)}
