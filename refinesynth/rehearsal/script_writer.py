"""ScriptWriter of the rehearsal: draws a scene for a persona and writes its script, for grounded play with a rulebook.

Faults are injected into a rulebook's JSON, each for one stage of the script rules.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, cast

from pydantic import JsonValue

from refinesynth.rehearsal.injected_faults import Draws
from refinesynth.rehearsal.openai_wire import dumps, items
from refinesynth.rehearsal.replayed_history import initial_position
from refinesynth.rehearsal.scene import GROUNDED, Scene, label_of, outline, random_label

_MAX_PERSONA = 160
"""Length of a quoted persona in an introduction, in characters."""


def write(
    draws: Draws, scene_draws: Draws, persona: str, previous: JsonValue, wanted: Mapping[str, JsonValue] | None = None
) -> dict[str, Any]:
    """Return a script for a persona as JSON, of a scene of `scene_draws`; a grounded one if features are `wanted`.

    About half of the refused scripts are mended: written again for the same scene, without faults. Otherwise another
    scene is drawn, with as many of the wanted features as possible.
    """
    mended = label_of(previous) if scene_draws.pick("mend", (True, False)) else None
    if wanted is None:
        label = mended or random_label(scene_draws.rng("label"), scene_draws.faults.families)
    else:
        label = f"{mended.removesuffix(GROUNDED)}{GROUNDED}" if mended else _label(scene_draws, wanted)
    scene = initial_position(label).scene
    script = scene.script if wanted is None else scene.executed
    line = " ".join(persona.split())
    shortened = line if len(line) <= _MAX_PERSONA else f"{line[:_MAX_PERSONA].rstrip()}..."
    dedication = f" You do this for the following person: {shortened}" if line else ""
    written: dict[str, Any] = script.model_dump(mode="json")
    written["introduction"] = f"{script.introduction}{dedication}"
    for fault, spoil in _FAULTS.items() if mended is None else ():
        if (wanted is not None or fault == "ambiguous_pattern") and draws.has_fault(fault):
            spoil(draws, scene, written)
    return written


def _ambiguous_pattern(draws: Draws, scene: Scene, written: dict[str, Any]) -> None:
    indices = [index for index, action in enumerate(scene.script.actions) if len(action.placeholders) == 1]
    written["actions"][draws.rng("blurred").choice(indices)]["pattern"] = r"^\s*\S+\s+(.+?)\s*$"


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


def _bad_condition(draws: Draws, _: Scene, written: dict[str, Any]) -> None:
    rng, goal = draws.rng("bad condition"), written["rulebook"]["goal"]
    requirements = [(one, "condition") for action in written["actions"] for one in action.get("requires", ())]
    container, key = rng.choice([*requirements, *((goal, index) for index in range(len(goal)))])
    container[key] = rng.choice(_UNREADABLE).format(container[key])


def _dangling_pointer(draws: Draws, scene: Scene, written: dict[str, Any]) -> None:
    steps = _templates(scene, written["rulebook"]["solution"])
    effects = [
        effect for action in written["actions"] if action["name"] in steps for effect in action.get("effects", ())
    ]
    effect = draws.rng("dangling pointer").choice(effects)
    first, _, rest = effect["path"][1:].partition("/")
    effect["path"] = f"/the_{first}/{rest}"


def _wrong_solution(draws: Draws, _: Scene, written: dict[str, Any]) -> None:
    solution = written["rulebook"]["solution"]
    del solution[draws.rng("wrong solution").randrange(len(solution))]


def _met_goal(_: Draws, scene: Scene, written: dict[str, Any]) -> None:
    condition, place, value = _fact(scene)
    written["completion_conditions"] = [f"{place} is {value}."]
    written["rulebook"] |= {"goal": [f"{condition} == {dumps(value)}"], "solution": []}


def _unreachable_goal(_: Draws, scene: Scene, written: dict[str, Any]) -> None:
    condition, place = _fact(scene)[:2]
    written["completion_conditions"].append(f"{place} is {_NOWHERE}.")
    written["rulebook"]["goal"].append(f"{condition} == {dumps(_NOWHERE)}")
    written["rulebook"]["solution"] = []


def _useless_action(draws: Draws, scene: Scene, written: dict[str, Any]) -> None:
    """Add a requirement that never holds to an action outside the solution, if there is one, else to any action."""
    steps = _templates(scene, written["rulebook"]["solution"])
    spare = [action for action in written["actions"] if action["name"] not in steps]
    action = draws.rng("useless action").choice(spare or written["actions"])
    never = {
        "condition": "has(state.season) && state.season == 'winter'",
        "kind": "logic",
        "hint": "Not in this season.",
    }
    action["requires"] = [never, *action.get("requires", ())]


def _misaligned_goal(draws: Draws, _: Scene, written: dict[str, Any]) -> None:
    if len(written["completion_conditions"]) > 1 and draws.pick("misaligned", (True, False)):
        written["rulebook"]["goal"].pop()
    else:
        written["completion_conditions"].append("Everything else is as it was.")


_FAULTS: Mapping[str, Callable[[Draws, Scene, dict[str, Any]], None]] = {
    "ambiguous_pattern": _ambiguous_pattern,
    "dangling_pointer": _dangling_pointer,
    "useless_action": _useless_action,
    "wrong_solution": _wrong_solution,
    "met_goal": _met_goal,
    "unreachable_goal": _unreachable_goal,
    "misaligned_goal": _misaligned_goal,
    "bad_condition": _bad_condition,
}
"""Field of `Faults`, which describes the fault, to the function that makes it; the first ones need the solution, which
later ones may change."""


def _templates(scene: Scene, texts: Iterable[str]) -> frozenset[str]:
    return frozenset(parsed[0].spec.name for text in texts if (parsed := scene.world.read(text)))


def _fact(scene: Scene) -> tuple[str, str, str]:
    keys, value = next(_texts((), scene.plot.state))
    return f"state{''.join(f'[{dumps(key)}]' for key in keys)}", " ".join(keys), value


def _texts(keys: tuple[str, ...], state: Mapping[str, Any]) -> Iterator[tuple[tuple[str, ...], str]]:
    for key, value in state.items():
        if isinstance(value, str):
            yield (*keys, key), value
        elif isinstance(value, dict):
            yield from _texts((*keys, key), cast("Mapping[str, Any]", value))


_MAX_LABELS = 200
"""Maximum number of scenes whose features are compared."""

_MAX_SCENES = 8
"""Maximum number of scenes drawn to measure their solution."""


def _label(scene_draws: Draws, wanted: Mapping[str, JsonValue]) -> str:
    """Return the label with the best match of features and length among several draws."""
    match wanted.get("actions"):
        case [int(least), int(most)]:
            lengths = range(least, most + 1)
        case _:
            lengths = range(1_001)
    features = {name for name in items(wanted.get("features")) if isinstance(name, str)}
    rng = scene_draws.rng("label")
    candidates: list[tuple[int, bool, str]] = []
    for _ in range(_MAX_LABELS):
        label = f"{random_label(rng, scene_draws.faults.families)}{GROUNDED}"
        outlined = outline(label)
        # First the number of missing features, then whether the length is likely to be out of range.
        candidates.append((len(features - outlined.features), outlined.steps not in lengths, label))
        if sum(not missing and not misfit for missing, misfit, _ in candidates) == _MAX_SCENES:
            break
    chosen = [label for *_, label in sorted(candidates, key=lambda entry: entry[:2])[:_MAX_SCENES]]
    return next((label for label in chosen if _length(label) in lengths), chosen[0])


def _length(label: str) -> int:
    rulebook = initial_position(label).scene.executed.rulebook
    return len(rulebook.solution) if rulebook else 0
