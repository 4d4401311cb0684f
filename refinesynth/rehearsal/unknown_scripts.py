"""Play in scripts that the rehearsal has not written.

Their worlds cannot be executed: the DungeonMaster judges only the form of actions and never reports success; the Player
tries the listed actions.
"""

import re
from collections.abc import Mapping, Sequence

from pydantic import JsonValue, ValidationError

from refinesynth.actions.matching import match_action
from refinesynth.rehearsal.injected_faults import Luck
from refinesynth.rehearsal.phrasing import say, shown
from refinesynth.rehearsal.replayed_history import Exchange
from refinesynth.trajectory import ActionSpec, DungeonMasterTurn, PlayerTurn, Script

_LINE = re.compile(r"^- (?P<name>[^:(\n]+)(?P<rest>.*)$", re.MULTILINE)
_VALUES = re.compile(r"\{(?P<name>[^{}]*)\} is one of: (?P<values>[^;)]*)")
_SHARED = re.compile(r"^\{(?P<name>[^{}\n]*)\} is one of: (?P<values>.*)$", re.MULTILINE)

_MOST_ACTIONS = 40


def judge_plainly(luck: Luck, script: JsonValue, exchanges: Sequence[Exchange], text: str) -> DungeonMasterTurn:
    """Accept an action that the script lists, with allowed values."""
    try:
        actions = Script.from_llm(script).actions
    except (ValidationError, RecursionError):
        actions = ()
    said, known = shown(text), match_action(actions, text) is not None
    rng = luck.rng("plain")
    if known:
        answer = say(rng, "plain_accepted", text=said)
        thought = f'"{said}" is an available action with allowed values.'
    else:
        answer = f'Nothing happens. No action is written like "{said}".'
        thought = f'"{said}" is not the form of an available action with allowed values.'
    if any(exchange.observation == answer for exchange in exchanges):
        answer = f"{answer} This is answer {len(exchanges) + 1}."
    return DungeonMasterTurn(
        thought=thought, observation=answer, parameter_error=not known, place_error=False, logic_error=False
    )


def improvise(luck: Luck, task: str, exchanges: Sequence[Exchange]) -> PlayerTurn:
    """A listed action with listed values, preferably a new one."""
    rng = luck.rng("improvised")
    tried = {exchange.action for exchange in exchanges}
    shared = _values(_SHARED, task)
    choices = [_filled(luck, line, shared) for line in list(_LINE.finditer(task))[:_MOST_ACTIONS]] or ["look around"]
    untried = [choice for choice in choices if choice not in tried]
    return PlayerTurn(thought=say(rng, "plain_tries"), action=rng.choice(untried or choices))


def _filled(luck: Luck, line: re.Match[str], shared: Mapping[str, list[str]]) -> str:
    spec = ActionSpec(name=line["name"].strip() or "look around", pattern=".")
    rng = luck.rng(line["name"])
    given = {**shared, **_values(_VALUES, line["rest"])}
    return spec.fill({name: rng.choice(given.get(name, ["it"])).strip() or "it" for name in spec.placeholders})


def _values(pattern: re.Pattern[str], text: str) -> dict[str, list[str]]:
    return {found["name"]: found["values"].split(", ") for found in pattern.finditer(text)}
