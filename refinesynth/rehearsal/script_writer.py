"""ScriptWriter of the rehearsal: draws a scene for a persona and writes its script, for grounded play with a rulebook.

Faults are injected into a rulebook's JSON, each for one stage of the script rules.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, cast

from pydantic import JsonValue

from refinesynth.rehearsal.injected_faults import Luck
from refinesynth.rehearsal.openai_wire import dumped
from refinesynth.rehearsal.replayed_history import opening
from refinesynth.rehearsal.scene import GROUNDED, Scene, is_grounded, label_of, outline, random_label
from refinesynth.trajectory import Script

_MOST_PERSONA = 160
"""Length of a quoted persona in an introduction, in characters."""


def write(luck: Luck, scene: Luck, persona: str, previous: JsonValue) -> dict[str, Any]:
    """Return a script for a persona as JSON, of the scene that `scene` draws.

    About half of the refused scripts are written again, for the same scene; otherwise another scene is drawn. Faults
    are drawn anew.
    """
    label = label_of(previous) if scene.pick("mend", (True, False)) else None
    script = opening(label or random_label(scene.rng("label"), scene.faults.families)).scene.script
    written: dict[str, Any] = script.model_dump(mode="json")
    written["introduction"] = dedicated(script, persona)
    if luck.strikes("ambiguous_pattern"):
        blur(luck, script, written)
    return written


def dedicated(script: Script, persona: str) -> str:
    """Return the introduction with a sentence about the persona after the scene's label, on one line."""
    line = " ".join(persona.split())
    if not line:
        return script.introduction
    cut = line if len(line) <= _MOST_PERSONA else f"{line[:_MOST_PERSONA].rstrip()}..."
    return f"{script.introduction} You do this for the following person: {cut}"


def blur(luck: Luck, script: Script, written: dict[str, Any]) -> None:
    """Make the pattern of an action with one placeholder too wide."""
    chosen = [at for at, action in enumerate(script.actions) if len(action.placeholders) == 1]
    at = luck.rng("blurred").choice(chosen)
    written["actions"][at]["pattern"] = r"^\s*\S+\s+(.+?)\s*$"


_NOWHERE = "nowhere at all"
"""A value that does not exist anywhere."""

_UNREADABLE = (
    "{} &&",
    "not ({})",
    "({}) and true",
    "inventory.size() > 0 && ({})",
    "len(state) > 0 && ({})",
    "state.filter(x, {}",
)
"""Conditions in other languages, or cut off."""


def plant(luck: Luck, scene: Scene, written: dict[str, Any]) -> None:
    """Inject the faults that affect this request into a grounded script's JSON, in place."""
    for fault, spoil in _PLANTS.items():
        if luck.strikes(fault):
            spoil(luck, scene, written)


def _bad_condition(luck: Luck, _: Scene, written: dict[str, Any]) -> None:
    """Break a requirement or a goal condition, so it does not compile."""
    rng = luck.rng("bad condition")
    requirements = [one for action in written["actions"] for one in action.get("requires", ())]
    goal = written["rulebook"]["goal"]
    chosen = rng.randrange(len(requirements) + len(goal))
    way = rng.choice(_UNREADABLE)
    if chosen < len(requirements):
        requirements[chosen]["condition"] = way.format(requirements[chosen]["condition"])
    else:
        at = chosen - len(requirements)
        goal[at] = way.format(goal[at])


def _dangling_pointer(luck: Luck, scene: Scene, written: dict[str, Any]) -> None:
    """Let an effect of the solution point to a path that does not exist."""
    steps = _templates(scene, written["rulebook"]["solution"])
    effects = [
        effect for action in written["actions"] if action["name"] in steps for effect in action.get("effects", ())
    ]
    effect = luck.rng("dangling pointer").choice(effects)
    first, _, rest = effect["path"][1:].partition("/")
    effect["path"] = f"/the_{first}/{rest}"


def _wrong_solution(luck: Luck, _: Scene, written: dict[str, Any]) -> None:
    """Remove one action of the solution."""
    solution = written["rulebook"]["solution"]
    del solution[luck.rng("wrong solution").randrange(len(solution))]


def _met_goal(_: Luck, scene: Scene, written: dict[str, Any]) -> None:
    """Use a goal that holds from the start."""
    condition, place, value = _fact(scene)
    written["completion_conditions"] = [f"{place} is {value}."]
    written["rulebook"] |= {"goal": [f"{condition} == {dumped(value)}"], "solution": []}


def _unreachable_goal(_: Luck, scene: Scene, written: dict[str, Any]) -> None:
    """Add a goal condition that nothing can establish."""
    condition, place = _fact(scene)[:2]
    written["completion_conditions"].append(f"{place} is {_NOWHERE}.")
    written["rulebook"]["goal"].append(f"{condition} == {dumped(_NOWHERE)}")
    written["rulebook"]["solution"] = []


def _useless_action(luck: Luck, scene: Scene, written: dict[str, Any]) -> None:
    """Add a requirement that never holds to an action outside the solution, if there is one, else to any action."""
    steps = _templates(scene, written["rulebook"]["solution"])
    spare = [action for action in written["actions"] if action["name"] not in steps]
    action = luck.rng("useless action").choice(spare or written["actions"])
    never = {
        "condition": "has(state.season) && state.season == 'winter'",
        "kind": "logic",
        "hint": "Not in this season.",
    }
    action["requires"] = [never, *action.get("requires", ())]


def _misaligned_goal(luck: Luck, _: Scene, written: dict[str, Any]) -> None:
    """Remove a goal condition or add a sentence, so goal and sentences do not correspond."""
    if len(written["completion_conditions"]) > 1 and luck.pick("misaligned", (True, False)):
        written["rulebook"]["goal"].pop()
    else:
        written["completion_conditions"].append("Everything else is as it was.")


_PLANTS: Mapping[str, Callable[[Luck, Scene, dict[str, Any]], None]] = {
    "dangling_pointer": _dangling_pointer,
    "useless_action": _useless_action,
    "wrong_solution": _wrong_solution,
    "met_goal": _met_goal,
    "unreachable_goal": _unreachable_goal,
    "misaligned_goal": _misaligned_goal,
    "bad_condition": _bad_condition,
}
"""Field of `Faults` to its function; the first ones need the solution, which later ones may change."""


def _templates(scene: Scene, texts: Iterable[str]) -> frozenset[str]:
    return frozenset(read[0].spec.name for text in texts if (read := scene.world.read(text)))


def _fact(scene: Scene) -> tuple[str, str, str]:
    keys, value = next(_texts((), scene.plot.state))
    return f"state{''.join(f'[{dumped(key)}]' for key in keys)}", " ".join(keys), value


def _texts(keys: tuple[str, ...], state: Mapping[str, Any]) -> Iterator[tuple[tuple[str, ...], str]]:
    for key, value in state.items():
        if isinstance(value, str):
            yield (*keys, key), value
        elif isinstance(value, dict):
            yield from _texts((*keys, key), cast("Mapping[str, Any]", value))


_MOST_LABELS = 200
"""Maximum number of scenes whose features are compared."""

_MOST_SCENES = 8
"""Maximum number of scenes drawn to measure their solution."""

_NO_BAND = (1, 1_000)


def write_grounded(
    luck: Luck, scene: Luck, persona: str, wanted: Mapping[str, JsonValue], blocks: Mapping[str, JsonValue]
) -> tuple[str, dict[str, Any]]:
    """Return the kind of answer and a grounded script as JSON, of the scene that `scene` draws.

    About half of the refused scripts are written again, for the same scene; faults are drawn anew. Another scene has as
    many of the requested features as possible among the drawn ones.
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
    """Return the label with the best match of features and length among several draws."""
    least, most = _band(wanted.get("actions"))
    given = wanted.get("features")
    asked = frozenset(name for name in given if isinstance(name, str)) if isinstance(given, list) else frozenset[str]()
    rng = scene.rng("label")
    found: list[tuple[int, bool, str]] = []
    for _ in range(_MOST_LABELS):
        label = f"{random_label(rng, scene.faults.families)}{GROUNDED}"
        about = outline(label)
        # First the number of missing features, then whether the length is likely to be out of range.
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
    """Return the label of the grounded version of a scene."""
    return label if label is None or is_grounded(label) else f"{label}{GROUNDED}"
