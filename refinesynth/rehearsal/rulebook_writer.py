"""The ScriptWriter of grounded play: draws a scene that has what is wanted, and writes it down with its rulebook."""

from collections.abc import Mapping
from typing import Any

from pydantic import JsonValue

from refinesynth.rehearsal.faults import Luck
from refinesynth.rehearsal.memory import opening
from refinesynth.rehearsal.plants import plant
from refinesynth.rehearsal.scene import GROUNDED, Scene, is_grounded, outline, random_label
from refinesynth.rehearsal.script_writer import blur, dedicated, label_of

_MOST_LABELS = 200
"""Scenes that are looked at for their features."""

_MOST_SCENES = 8
"""Scenes that are drawn whole for the length of their solution."""

_NO_BAND = (1, 1_000)


def write(
    luck: Luck, scene: Luck, persona: str, wanted: Mapping[str, JsonValue], blocks: Mapping[str, JsonValue]
) -> tuple[str, dict[str, Any]]:
    """What kind of answer, and the answer: a grounded script as JSON; `scene` draws which.

    A script that was refused is, every other time, written again as it should be; else there is another. What no scene
    can offer is left out: one has as many of the features as any that was found.
    """
    label = _grounded(label_of(blocks.get("previous"))) if scene.pick("mend", (True, False)) else None
    drawn = opening(label or _label(scene, wanted)).scene
    return "grounded script", _told(luck, drawn, persona)


def _told(luck: Luck, scene: Scene, persona: str) -> dict[str, Any]:
    written: dict[str, Any] = scene.grounded.model_dump(mode="json")
    written["introduction"] = dedicated(scene.grounded, persona)
    if luck.strikes("ambiguous_pattern"):
        blur(luck, scene.grounded, written)
    plant(luck, scene, written)
    return written


def _label(scene: Luck, wanted: Mapping[str, JsonValue]) -> str:
    """A scene with the features and the length that are wanted, as nearly as some tries find one."""
    least, most = _band(wanted.get("actions"))
    given = wanted.get("features")
    asked = frozenset(name for name in given if isinstance(name, str)) if isinstance(given, list) else frozenset[str]()
    rng = scene.rng("label")
    found: list[tuple[int, bool, str]] = []
    for _ in range(_MOST_LABELS):
        label = f"{random_label(rng)}{GROUNDED}"
        about = outline(label)
        # How much is missing, then whether it is likely to be too short or too long.
        found.append((len(asked - about.features), not least <= about.steps <= most, label))
        if sum(not lacking and not misfit for lacking, misfit, _ in found) == _MOST_SCENES:
            break
    chosen = [label for *_, label in sorted(found, key=lambda one: one[:2])[:_MOST_SCENES]]
    if (least, most) == _NO_BAND:
        return chosen[0]
    return next((label for label in chosen if least <= _length(label) <= most), chosen[0])


def _band(given: JsonValue) -> tuple[int, int]:
    match given:
        case [int(least), int(most)]:
            return least, most
        case _:
            return _NO_BAND


def _length(label: str) -> int:
    rulebook = opening(label).scene.grounded.rulebook
    return len(rulebook.solution) if rulebook else 0


def _grounded(label: str | None) -> str | None:
    """The label of the grounded scene; one that is imagined has such a sibling."""
    return label if label is None or is_grounded(label) else f"{label}{GROUNDED}"
