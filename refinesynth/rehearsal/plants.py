"""Faults of a rulebook, planted into a script as JSON: each is one that a stage of the script's checks is there to
find.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, cast

from refinesynth.rehearsal.faults import Luck
from refinesynth.rehearsal.scene import Scene
from refinesynth.rehearsal.wire import dumped

_NOWHERE = "nowhere at all"
"""A value that nothing has."""

_UNREADABLE = (
    "{} &&",
    "not ({})",
    "({}) and true",
    "inventory.size() > 0 && ({})",
    "len(state) > 0 && ({})",
    "state.filter(x, {}",
)
"""Conditions as a writer gives them who takes CEL for another language, or breaks off."""


def plant(luck: Luck, scene: Scene, written: dict[str, Any]) -> None:
    """Let those faults that strike this request get into a grounded script's JSON, in place."""
    for fault, spoil in _PLANTS.items():
        if luck.strikes(fault):
            spoil(luck, scene, written)


def _bad_condition(luck: Luck, _: Scene, written: dict[str, Any]) -> None:
    """A requirement, or now and then a condition of the goal, does not compile."""
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
    """An effect of an action that the solution needs points to where nothing is."""
    steps = _templates(scene, written["rulebook"]["solution"])
    effects = [
        effect for action in written["actions"] if action["name"] in steps for effect in action.get("effects", ())
    ]
    effect = luck.rng("dangling pointer").choice(effects)
    first, _, rest = effect["path"][1:].partition("/")
    effect["path"] = f"/the_{first}/{rest}"


def _wrong_solution(luck: Luck, _: Scene, written: dict[str, Any]) -> None:
    """One action is left out of the solution, which needs them all."""
    solution = written["rulebook"]["solution"]
    del solution[luck.rng("wrong solution").randrange(len(solution))]


def _met_goal(_: Luck, scene: Scene, written: dict[str, Any]) -> None:
    """The goal is how things are already."""
    condition, place, value = _fact(scene)
    written["completion_conditions"] = [f"{place} is {value}."]
    written["rulebook"] |= {"goal": [f"{condition} == {dumped(value)}"], "solution": []}


def _unreachable_goal(_: Luck, scene: Scene, written: dict[str, Any]) -> None:
    """The goal wants something, too, that nothing can bring about; there is no solution to be wrong."""
    condition, place = _fact(scene)[:2]
    written["completion_conditions"].append(f"{place} is {_NOWHERE}.")
    written["rulebook"]["goal"].append(f"{condition} == {dumped(_NOWHERE)}")
    written["rulebook"]["solution"] = []


def _useless_action(luck: Luck, scene: Scene, written: dict[str, Any]) -> None:
    """An action that the solution does without needs something that never is so, as nothing brings it about."""
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
    """The goal has a condition more or less than there are sentences."""
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
"""Field of `Faults` to what it does; the first ones ask what the solution is, which later ones may change."""


def _templates(scene: Scene, texts: Iterable[str]) -> frozenset[str]:
    """Which actions these texts are, by their templates."""
    return frozenset(read[0].spec.name for text in texts if (read := scene.world.read(text)))


def _fact(scene: Scene) -> tuple[str, str, str]:
    """A text in the state that says where the player is: as CEL, in words, and what it says."""
    keys, value = next(_texts((), scene.plot.state))
    return f"state{''.join(f'[{dumped(key)}]' for key in keys)}", " ".join(keys), value


def _texts(keys: tuple[str, ...], state: Mapping[str, Any]) -> Iterator[tuple[tuple[str, ...], str]]:
    for key, value in state.items():
        if isinstance(value, str):
            yield (*keys, key), value
        elif isinstance(value, dict):
            yield from _texts((*keys, key), cast("Mapping[str, Any]", value))
