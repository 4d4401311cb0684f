"""The DungeonMaster of an executed world: puts a ruling into words. It decides nothing and replays nothing."""

from collections.abc import Iterator, Mapping
from random import Random
from typing import Any

from pydantic import JsonValue

from refinesynth.rehearsal.families import FAMILIES
from refinesynth.rehearsal.faults import Luck
from refinesynth.rehearsal.memory import opening
from refinesynth.rehearsal.reasons import shown
from refinesynth.rehearsal.scene import label_in
from refinesynth.rehearsal.wording import refusal, say
from refinesynth.rules.ending import SUCCESS
from refinesynth.trajectory import MistakeKind

_TRIES = 4
"""How often another way to say the same is looked for."""


def word(
    luck: Luck, script: JsonValue, history: JsonValue, action: JsonValue, ruling: Mapping[str, JsonValue]
) -> dict[str, Any]:
    """Thought and observation for a ruling, which may be anything, in a script that may be anything."""
    said = shown(action if isinstance(action, str) else "")
    introduction = script.get("introduction") if isinstance(script, dict) else None
    label = label_in(introduction) if isinstance(introduction, str) else None
    said_before = frozenset(_said_before(history))
    rng = luck.rng("word")
    ways = (_observation(luck, rng, label, said, ruling) for _ in range(_TRIES))
    observation = next((way for way in ways if way not in said_before), None) or _observation(
        luck, rng, label, said, ruling
    )
    if luck.strikes("unseen_name") and (name := _unseen(luck, label, script, said, ruling)):
        observation = f"{observation} Not far off there is the {name}."
    if luck.strikes("said_success"):
        observation = f"{observation} {SUCCESS}"
    return {"thought": _thought(rng, said, ruling), "observation": observation}


def _observation(luck: Luck, rng: Random, label: str | None, said: str, ruling: Mapping[str, JsonValue]) -> str:
    """What the player perceives, in one of several ways."""
    text = ruling.get("text")
    text = text if isinstance(text, str) else ""
    if ruling.get("transient") is True:
        if luck.strikes("ignored_failure"):
            return f"You {said}. It is done now."
        return say(rng, "ruled_hindered")
    accepted = ruling.get("accepted") is True
    if luck.strikes("contradiction"):
        return say(rng, "ruled_undone" if accepted else "ruled_done", action=said)
    if accepted:
        return f"{text or f'You {said}.'} {say(rng, 'ruled_more')}".rstrip()
    family = FAMILIES.get((label or "").rpartition("-")[0])
    if family is None or text == "Nothing happens.":
        return text or "Nothing happens."
    return refusal(rng, family, text)


def _thought(rng: Random, said: str, ruling: Mapping[str, JsonValue]) -> str:
    if ruling.get("transient") is True:
        return say(rng, "ruled_passing", action=said)
    kind, text = ruling.get("mistake"), ruling.get("text")
    if isinstance(kind, str) and kind in list(MistakeKind):
        return say(rng, f"refused_{kind}", action=said, hint=text if isinstance(text, str) else "")
    return say(rng, "ruled_allowed", action=said)


def _unseen(luck: Luck, label: str | None, script: JsonValue, said: str, ruling: Mapping[str, JsonValue]) -> str | None:
    """Something of the scene's world that the player can neither see nor has heard of."""
    if label is None or not isinstance(script, dict):
        return None
    visible = ruling.get("visible")
    seen = [name for name in visible if isinstance(name, str)] if isinstance(visible, list) else []
    known = " ".join(
        (*seen, said, *(str(part) for part in (ruling.get("text"), script.get("introduction"), script.get("goal"))))
    ).casefold()
    values = opening(label).scene.plot.values
    names = [name for allowed in values.values() for name in allowed if name.casefold() not in known]
    return luck.rng("unseen").choice(names) if names else None


def _said_before(history: JsonValue) -> Iterator[str]:
    for entry in history if isinstance(history, list) else ():
        if isinstance(entry, dict) and isinstance(observation := entry.get("observation"), str):
            yield observation
