"""DungeonMaster of the rehearsal: replays the history, rules on the newest action with the executor, and words the
ruling.

In grounded play the ruling is given and nothing is replayed.
"""

from collections.abc import Iterator, Mapping
from random import Random
from typing import Any

from pydantic import JsonValue

from refinesynth.rehearsal.families import FAMILIES
from refinesynth.rehearsal.injected_faults import Luck
from refinesynth.rehearsal.phrasing import WORDINGS, meaning, reason, refusal, say, shown
from refinesynth.rehearsal.replayed_history import Exchange, Past, Position, opening
from refinesynth.rehearsal.scene import label_of
from refinesynth.rehearsal.unknown_scripts import judge_plainly
from refinesynth.rules.ending import SUCCESS
from refinesynth.trajectory import DungeonMasterTurn, MistakeKind
from refinesynth.world import Ruling


def narrate(luck: Luck, script: JsonValue, history: JsonValue, action: JsonValue) -> DungeonMasterTurn:
    """Return the answer to an action after this history, for any script."""
    text = action if isinstance(action, str) else ""
    exchanges = tuple(_exchanges(history))
    position = world_of(script)
    if position is None:
        return judge_plainly(luck, script, exchanges, text)
    return answer(luck, Past.of(position, exchanges), text)


def world_of(script: JsonValue) -> Position | None:
    """Return the initial position of a script's scene, if its actions are that scene's."""
    label, actions = label_of(script), script.get("actions") if isinstance(script, dict) else None
    if label is None or not isinstance(actions, list):
        return None
    position = opening(label)
    names = [action.get("name") if isinstance(action, dict) else None for action in actions]
    return position if sorted(map(str, names)) == sorted(position.scene.verbs) else None


def answer(luck: Luck, past: Past, action: str) -> DungeonMasterTurn:
    """Return the answer to an action in a known scene. The flags are the executor's ruling, unless a fault is injected."""
    ruling = past.position.ruling(action)
    rng, wording = luck.rng("answer"), shown(action)
    if ruling.kind is None:
        if not luck.strikes("false_alarm"):
            return _accepted(luck, rng, past, action, ruling)
        thought = say(rng, "misread", action=wording)
        observation = _refusal(rng, past, f'"{wording}" is not understood.')
        return DungeonMasterTurn.of_kind(MistakeKind.PARAMETER, thought=thought, observation=observation)
    if ruling.kind is MistakeKind.PARAMETER and luck.strikes("wrong_parameters"):
        return waved(luck, past, action)
    why = reason(past.position, action, ruling)
    thought = say(rng, f"refused_{ruling.kind}", action=wording, hint=why)
    return DungeonMasterTurn.of_kind(ruling.kind, thought=thought, observation=_refusal(rng, past, why))


def waved(luck: Luck, past: Past, action: str) -> DungeonMasterTurn:
    """Return an answer that accepts an unknown action; nothing changes."""
    rng, wording = luck.rng("waved"), shown(action)
    thought = say(rng, "waved", action=wording)
    return DungeonMasterTurn.of_kind(None, thought=thought, observation=_fresh(rng, past, f"You {wording}."))


def _accepted(luck: Luck, rng: Random, past: Past, action: str, ruling: Ruling) -> DungeonMasterTurn:
    scene = past.position.scene
    ending = f" {SUCCESS}" if ruling.done and not luck.strikes("no_success") else ""
    observation = _fresh(rng, past, ruling.text, ending)
    total = len(scene.plot.conditions)
    met = round(ruling.progress * total)
    judgement = say(rng, "carried_out", action=shown(action), doing=meaning(past.position, action))
    thought = f"{judgement} {say(rng, 'done') if met == total else say(rng, 'progress', met=met, all=total)}"
    return DungeonMasterTurn.of_kind(None, thought=thought, observation=observation)


def _refusal(rng: Random, past: Past, why: str) -> str:
    ways = [refusal(rng, past.position.scene.family, why) for _ in range(4)]
    return next((text for text in ways if text not in past.observed), ways[0])


def _fresh(rng: Random, past: Past, text: str, ending: str = "") -> str:
    """Return the text in an unused wording, or with the answer's number if all are used."""
    more = rng.sample(WORDINGS["nothing_more"], len(WORDINGS["nothing_more"]))
    ways = (f"{sentence}{ending}" for sentence in (text, *(f"{text} {thought}" for thought in more)))
    return next(
        (way for way in ways if way not in past.observed), f"{text} (Answer {len(past.exchanges) + 1}.){ending}"
    )


def _exchanges(history: JsonValue) -> Iterator[Exchange]:
    for entry in history if isinstance(history, list) else ():
        if isinstance(entry, dict) and isinstance(action := entry.get("action"), str):
            observation = entry.get("observation")
            seen = observation if isinstance(observation, str) else ""
            yield Exchange(action, seen, refused=entry.get("mistake") is not None)


_TRIES = 4
"""Number of attempts to find an unused wording."""


def word(
    luck: Luck, script: JsonValue, history: JsonValue, action: JsonValue, ruling: Mapping[str, JsonValue]
) -> dict[str, Any]:
    """Return thought and observation for a given ruling, in any script."""
    wording = shown(action if isinstance(action, str) else "")
    label = label_of(script)
    said_before = {exchange.observation for exchange in _exchanges(history)}
    rng = luck.rng("word")
    ways = (_observation(luck, rng, label, wording, ruling) for _ in range(_TRIES))
    observation = next((way for way in ways if way not in said_before), None) or _observation(
        luck, rng, label, wording, ruling
    )
    if luck.strikes("unseen_name") and (name := _unseen(luck, label, script, wording, ruling)):
        observation = f"{observation} Not far off there is the {name}."
    if luck.strikes("said_success"):
        observation = f"{observation} {SUCCESS}"
    return {"thought": _thought(rng, wording, ruling), "observation": observation}


def _observation(luck: Luck, rng: Random, label: str | None, wording: str, ruling: Mapping[str, JsonValue]) -> str:
    text = ruling.get("text")
    text = text if isinstance(text, str) else ""
    if ruling.get("transient") is True:
        if luck.strikes("ignored_failure"):
            return f"You {wording}. It is done now."
        return say(rng, "ruled_hindered")
    accepted = ruling.get("accepted") is True
    if luck.strikes("contradiction"):
        return say(rng, "ruled_undone" if accepted else "ruled_done", action=wording)
    if accepted:
        return f"{text or f'You {wording}.'} {say(rng, 'ruled_more')}".rstrip()
    family = FAMILIES.get((label or "").rpartition("-")[0])
    if family is None or text == "Nothing happens.":
        return text or "Nothing happens."
    return refusal(rng, family, text)


def _thought(rng: Random, wording: str, ruling: Mapping[str, JsonValue]) -> str:
    if ruling.get("transient") is True:
        return say(rng, "ruled_passing", action=wording)
    kind, text = ruling.get("mistake"), ruling.get("text")
    if isinstance(kind, str) and kind in list(MistakeKind):
        return say(rng, f"refused_{kind}", action=wording, hint=text if isinstance(text, str) else "")
    return say(rng, "ruled_allowed", action=wording)


def _unseen(
    luck: Luck, label: str | None, script: JsonValue, wording: str, ruling: Mapping[str, JsonValue]
) -> str | None:
    """Return the name of something in the scene that the player has neither seen nor heard of."""
    if label is None or not isinstance(script, dict):
        return None
    visible = ruling.get("visible")
    seen = [name for name in visible if isinstance(name, str)] if isinstance(visible, list) else []
    known = " ".join(
        (*seen, wording, *(str(part) for part in (ruling.get("text"), script.get("introduction"), script.get("goal"))))
    ).casefold()
    values = opening(label).scene.plot.values
    names = [name for allowed in values.values() for name in allowed if name.casefold() not in known]
    return luck.rng("unseen").choice(names) if names else None
