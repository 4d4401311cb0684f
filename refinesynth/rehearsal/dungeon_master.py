"""DungeonMaster of the rehearsal: replays the history, rules on the newest action with the executor, and words the
ruling.

In grounded play the ruling is given and nothing is replayed.
"""

from collections.abc import Iterator, Mapping
from random import Random
from typing import Any

from pydantic import JsonValue

from refinesynth.rehearsal.families import FAMILIES
from refinesynth.rehearsal.injected_faults import Draws
from refinesynth.rehearsal.phrasing import WORDINGS, infinitive, mistake_reason, one_line, refusal, say
from refinesynth.rehearsal.replayed_history import Exchange, History, Position, initial_position
from refinesynth.rehearsal.scene import label_of
from refinesynth.rehearsal.unknown_scripts import judge_form
from refinesynth.rules.actions import SUCCESS
from refinesynth.trajectory import DungeonMasterTurn, MistakeKind
from refinesynth.world import Ruling


def narrate(draws: Draws, script: JsonValue, history: JsonValue, action: JsonValue) -> DungeonMasterTurn:
    """Return the answer to an action after this history, for any script."""
    text = action if isinstance(action, str) else ""
    exchanges = tuple(_exchanges(history))
    position = position_of(script)
    if position is None:
        return judge_form(draws, script, exchanges, text)
    return answer(draws, History.of(position, exchanges), text)


def position_of(script: JsonValue) -> Position | None:
    """Return the initial position of a script's scene, if its actions are that scene's."""
    label, actions = label_of(script), script.get("actions") if isinstance(script, dict) else None
    if label is None or not isinstance(actions, list):
        return None
    position = initial_position(label)
    names = [action.get("name") if isinstance(action, dict) else None for action in actions]
    return position if sorted(map(str, names)) == sorted(position.scene.verbs) else None


def answer(draws: Draws, history: History, action: str) -> DungeonMasterTurn:
    """Return the answer to an action in a known scene. The flags are the executor's ruling, unless a fault is injected."""
    ruling = history.position.ruling(action)
    rng, wording = draws.rng("answer"), one_line(action)
    if ruling.kind is None:
        if not draws.has_fault("false_alarm"):
            return _accepted(draws, rng, history, action, ruling)
        thought = say(rng, "misread", action=wording)
        observation = _refusal(rng, history, f'"{wording}" is not understood.')
        return DungeonMasterTurn.of_kind(MistakeKind.PARAMETER, thought=thought, observation=observation)
    if ruling.kind is MistakeKind.PARAMETER and draws.has_fault("wrong_parameters"):
        return accept_unknown(draws, history, action)
    reason = mistake_reason(history.position, action, ruling)
    thought = say(rng, f"refused_{ruling.kind}", action=wording, hint=reason)
    return DungeonMasterTurn.of_kind(ruling.kind, thought=thought, observation=_refusal(rng, history, reason))


def accept_unknown(draws: Draws, history: History, action: str) -> DungeonMasterTurn:
    """Return an answer that accepts an unknown action; nothing changes."""
    rng, wording = draws.rng("waved"), one_line(action)
    thought = say(rng, "waved", action=wording)
    return DungeonMasterTurn.of_kind(None, thought=thought, observation=_unused_text(rng, history, f"You {wording}."))


def _accepted(draws: Draws, rng: Random, history: History, action: str, ruling: Ruling) -> DungeonMasterTurn:
    scene = history.position.scene
    ending = f" {SUCCESS}" if ruling.done and not draws.has_fault("no_success") else ""
    observation = _unused_text(rng, history, ruling.text, ending)
    total = len(scene.plot.conditions)
    met = round(ruling.progress * total)
    judgement = say(rng, "carried_out", action=one_line(action), doing=infinitive(history.position, action))
    thought = f"{judgement} {say(rng, 'done') if met == total else say(rng, 'progress', met=met, all=total)}"
    return DungeonMasterTurn.of_kind(None, thought=thought, observation=observation)


def _refusal(rng: Random, history: History, reason: str) -> str:
    texts = [refusal(rng, history.position.scene.family, reason) for _ in range(4)]
    return next((text for text in texts if text not in history.observations), texts[0])


def _unused_text(rng: Random, history: History, text: str, ending: str = "") -> str:
    """Return the text in an unused wording, or with the answer's number if all are used."""
    additions = rng.sample(WORDINGS["nothing_more"], len(WORDINGS["nothing_more"]))
    ways = (f"{sentence}{ending}" for sentence in (text, *(f"{text} {thought}" for thought in additions)))
    numbered = f"{text} (Answer {len(history.exchanges) + 1}.){ending}"
    return next((way for way in ways if way not in history.observations), numbered)


def _exchanges(history: JsonValue) -> Iterator[Exchange]:
    for entry in history if isinstance(history, list) else ():
        if isinstance(entry, dict) and isinstance(action := entry.get("action"), str):
            observation = entry.get("observation")
            text = observation if isinstance(observation, str) else ""
            yield Exchange(action, text, refused=entry.get("mistake") is not None)


_MAX_ATTEMPTS = 5
"""Number of attempts to find an unused wording."""


def word_ruling(
    draws: Draws, script: JsonValue, history: JsonValue, action: JsonValue, ruling: Mapping[str, JsonValue]
) -> dict[str, Any]:
    """Return thought and observation for a given ruling, in any script."""
    wording, label, rng = one_line(action if isinstance(action, str) else ""), label_of(script), draws.rng("word")
    earlier = {exchange.observation for exchange in _exchanges(history)}
    observation = ""
    for _ in range(_MAX_ATTEMPTS):
        observation = _observation(draws, rng, label, wording, ruling)
        if observation not in earlier:
            break
    if draws.has_fault("unseen_name") and (name := _unseen(draws, label, script, wording, ruling)):
        observation = f"{observation} Not far off there is the {name}."
    if draws.has_fault("said_success"):
        observation = f"{observation} {SUCCESS}"
    return {"thought": _thought(rng, wording, ruling), "observation": observation}


def _observation(draws: Draws, rng: Random, label: str | None, wording: str, ruling: Mapping[str, JsonValue]) -> str:
    text = ruling.get("text")
    text = text if isinstance(text, str) else ""
    if ruling.get("transient") is True:
        if draws.has_fault("ignored_failure"):
            return f"You {wording}. It is done now."
        return say(rng, "ruled_hindered")
    accepted = ruling.get("accepted") is True
    if draws.has_fault("contradiction"):
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
    draws: Draws, label: str | None, script: JsonValue, wording: str, ruling: Mapping[str, JsonValue]
) -> str | None:
    """Return the name of something in the scene that the player has neither seen nor heard of."""
    if label is None or not isinstance(script, dict):
        return None
    visible = ruling.get("visible")
    seen = [name for name in visible if isinstance(name, str)] if isinstance(visible, list) else []
    known = " ".join(
        (*seen, wording, *(str(part) for part in (ruling.get("text"), script.get("introduction"), script.get("goal"))))
    ).casefold()
    values = initial_position(label).scene.plot.values
    names = [name for allowed in values.values() for name in allowed if name.casefold() not in known]
    return draws.rng("unseen").choice(names) if names else None
