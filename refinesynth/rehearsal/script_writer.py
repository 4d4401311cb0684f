"""The ScriptWriter: draws a scene for a persona and writes it down."""

from typing import Any

from pydantic import JsonValue

from refinesynth.rehearsal.faults import Luck
from refinesynth.rehearsal.memory import opening
from refinesynth.rehearsal.scene import label_in, random_label
from refinesynth.trajectory import Script

_MOST_PERSONA = 160
"""How much of a persona is repeated in an introduction, in characters."""


def write(luck: Luck, scene: Luck, persona: str, previous: JsonValue) -> dict[str, Any]:
    """A script for a persona, as JSON; `scene` draws which one.

    A script that was refused is, every other time, written again as it should be; else there is another.
    """
    label = label_of(previous) if scene.pick("mend", (True, False)) else None
    script = opening(label or random_label(scene.rng("label"))).scene.script
    written: dict[str, Any] = script.model_dump(mode="json")
    written["introduction"] = dedicated(script, persona)
    if luck.strikes("ambiguous_pattern"):
        blur(luck, script, written)
    return written


def label_of(previous: JsonValue) -> str | None:
    """The label of the scene that a script, or a part of one, is about."""
    introduction = previous.get("introduction") if isinstance(previous, dict) else None
    return label_in(introduction) if isinstance(introduction, str) else None


def dedicated(script: Script, persona: str) -> str:
    """The introduction with a sentence about whom this is done for, on one line.

    What a persona says stands after the scene's label, so it names no other scene.
    """
    line = " ".join(persona.split())
    if not line:
        return script.introduction
    cut = line if len(line) <= _MOST_PERSONA else f"{line[:_MOST_PERSONA].rstrip()}..."
    return f"{script.introduction} You do this for the following person: {cut}"


def blur(luck: Luck, script: Script, written: dict[str, Any]) -> None:
    """Let the pattern of an action with one placeholder take whatever follows its first word, or any first word."""
    chosen = [at for at, action in enumerate(script.actions) if len(action.placeholders) == 1]
    at = luck.rng("blurred").choice(chosen)
    written["actions"][at]["pattern"] = r"^\s*\S+\s+(.+?)\s*$"
