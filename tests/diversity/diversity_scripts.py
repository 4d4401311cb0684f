"""Scripts, and copies of them that differ in names or words alone."""

import re
from collections.abc import Callable
from functools import cache
from random import Random
from typing import cast

from pydantic import JsonValue

from refinesynth.rehearsal.scene import draw_scene, random_label
from refinesynth.trajectory import Script

REWORDINGS = (
    "Your mission today: {}",
    "Somebody hopes that you will see to this before the evening comes: {}",
    "It would be splendid if, at the end of it all, the following were true. {}",
)


@cache
def drawn(seed: int, *, grounded: bool = False) -> Script:
    """A script of the rehearsal."""
    scene = draw_scene(random_label(Random(seed)))
    return scene.grounded if grounded else scene.script


def renamed(script: Script, name: Callable[[int], str] = "quux {} thing".format) -> Script:
    """A copy in which everything that an action can be given is called otherwise, wherever it is mentioned."""
    names = sorted({value for action in script.actions for values in action.parameters.values() for value in values})
    called = {old: name(number) for number, old in enumerate(names)}
    any_name = re.compile("|".join(rf"\b{re.escape(old)}\b" for old in sorted(names, key=len, reverse=True)) or "(?!)")

    def retold(value: JsonValue) -> JsonValue:
        if isinstance(value, str):
            return any_name.sub(lambda found: called[found[0]], value)
        if isinstance(value, list):
            return [retold(item) for item in value]
        if isinstance(value, dict):
            return {called.get(key, key): retold(item) for key, item in value.items()}
        return value

    data = cast("dict[str, JsonValue]", script.model_dump(mode="json"))
    for part in ("introduction", "goal", "completion_conditions"):
        data[part] = retold(data[part])
    data["environment"] = retold(data["environment"])
    for action in cast("list[dict[str, JsonValue]]", data["actions"]):
        action["parameters"] = retold(action["parameters"])
    if data.get("rulebook"):
        data["rulebook"] = retold(data["rulebook"])
    return Script.model_validate(data)


def reworded(script: Script, how: str = REWORDINGS[0]) -> Script:
    """A copy whose goal is told in other words."""
    aim = re.sub(
        r"^(please |your task is to |you have to )|(, and nothing else)?\.$", "", script.goal, flags=re.IGNORECASE
    )
    return script.model_copy(update={"goal": how.format(aim)})


def shuffled(script: Script, rng: Random) -> Script:
    """A copy with its actions, their values and the environment's keys in another order."""

    def mixed(value: JsonValue) -> JsonValue:
        if isinstance(value, dict):
            return {key: mixed(value[key]) for key in rng.sample(sorted(value), len(value))}
        return value

    actions = tuple(
        action.model_copy(
            update={
                "parameters": {key: tuple(rng.sample(values, len(values))) for key, values in action.parameters.items()}
            }
        )
        for action in script.actions
    )
    environment = {
        key: mixed(script.environment[key]) for key in rng.sample(sorted(script.environment), len(script.environment))
    }
    return script.model_copy(update={"environment": environment, "actions": tuple(rng.sample(actions, len(actions)))})
