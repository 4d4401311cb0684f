"""ScienceWorld: elementary science in text, 90 instances, worded and scored as by AgentBoard.

The simulator is a Java program that ends with this process.
"""

import re
import shutil
from collections.abc import Sequence
from importlib import import_module
from typing import Any

from refinesynth.evaluate.environments.environment import (
    AGENTBOARD,
    CHECK,
    Action,
    BadInstance,
    Benchmark,
    Instance,
    Source,
    Start,
    Step,
    labels,
)

_FILES = f"scienceworld/test.jsonl of {AGENTBOARD}"
SIMPLIFICATIONS = "selfWateringFlowerPots,openContainers,openDoors,noElectricalAction"
_MAX_ACTION = 1_000
"""Most characters of an action; the simulator parses longer ones word by word, which takes seconds."""
_SIMULATOR_STEPS = 1_000_000
"""Step limit of the simulator, which no episode reaches."""

_REFUSED = re.compile(
    r"No known action matches|It's not clear how|I'm not sure how|You can't |That container is empty"
    r"|.* (?:is not moveable|does not contain any liquids)"
)
_INTRODUCTION = (
    "You are in a house with its surroundings, which you perceive and act on through text, to do an experiment. Doors and "
    "containers are open already. Things that you move or pour go where you say; an action that names no thing that is "
    "here is not understood."
)
_ACTIONS = (
    Action("open {obj}"),
    Action("close {obj}"),
    Action("activate {obj}", "switch a device on"),
    Action("deactivate {obj}", "switch a device off"),
    Action("use {obj}"),
    Action("use {obj} on {obj2}", "use a device on a thing, such as a thermometer"),
    Action("look around", "what is in this room"),
    Action("look at {obj}"),
    Action("look in {obj}"),
    Action("examine {obj}"),
    Action("read {obj}"),
    Action("move {obj} to {obj2}", "move a thing into a container"),
    Action("pick up {obj}", "move a thing to the inventory"),
    Action("put down {obj}"),
    Action("pour {obj} into {obj2}", "pour a liquid into a container"),
    Action("dunk {obj} into {obj2}"),
    Action("mix {obj}", "mix chemically what is in a container"),
    Action("go to {place}", "to a room beside this one"),
    Action("eat {obj}"),
    Action("flush {obj}"),
    Action("focus on {obj}", "say that this is what the task asks for"),
    Action("wait", "for ten steps"),
    Action("wait1", "for one step"),
    Action("inventory", "what you carry"),
    Action("task", "what the task is"),
    Action(CHECK, "list the forms of actions"),
)


class ScienceWorld:
    """Environment of experiments.

    Progress is the share of AgentBoard's subgoals, regular expressions, that an observation has met; success is all of them.
    As in AgentBoard, the play continues after the simulator has ended (such as after a wrong focus).
    """

    def __init__(self) -> None:
        """Start the simulator; raises BadInstance without Java."""
        package: Any = import_module("scienceworld")
        if shutil.which("java") is None:
            raise BadInstance("scienceworld needs Java, and there is no program 'java': install a JRE, 11 or newer")
        self._world: Any = package.ScienceWorldEnv("", envStepLimit=_SIMULATOR_STEPS)
        self._task: tuple[str, int] = ("", 0)
        self._met: dict[str, bool] = {}

    def reset(self, instance: Instance, /) -> Start:
        data = instance.data
        self._task = (data["name"], data["variation"])
        self._met = dict.fromkeys(data["subgoals"], False)
        observation = self._load()
        return Start(f"{observation}\n{self._world.inventory()}", data["goal"], _ACTIONS, _INTRODUCTION)

    def _load(self) -> str:
        try:
            self._world.load(*self._task, SIMPLIFICATIONS, generateGoldPath=False)
            observation, _ = self._world.reset()
        except Exception as error:  # Errors of Java arrive as any exception.
            raise BadInstance(f"the task {self._task} cannot be loaded: {error}") from error
        return str(observation)

    def step(self, action: str, /) -> Step:
        # The bridge to Java cannot pass lone surrogates.
        action = " ".join(action.encode("utf-8", "replace").decode().split())[:_MAX_ACTION]
        if action == CHECK:
            forms = [form for form in self._world.get_possible_actions() if "reset" not in form]
            return self._result(f"Choose an action from these valid actions: {', '.join((*forms, CHECK))}")
        # The package's own `step` also lists all valid actions, which takes most of its time.
        observation = str(self._world.server.step(action))
        for pattern in self._met:
            self._met[pattern] |= re.search(pattern, observation) is not None
        return self._result(observation)

    def _result(self, observation: str) -> Step:
        progress = sum(self._met.values()) / len(self._met)
        won = progress == 1.0
        refused = _REFUSED.match(observation) is not None
        return Step(observation, progress, won, won, refused=refused)

    def valid_actions(self) -> Sequence[str]:
        return sorted(
            {str(action) for action in self._world.get_valid_action_object_combinations() if "reset" not in str(action)}
        )

    def close(self) -> None:
        self._world.close()


def _instances(source: Source) -> list[Instance]:
    instances: list[Instance] = []
    for index, label in enumerate(labels(source.folder("scienceworld", holds=_FILES))):
        name, variation = label.text("env_name"), label.number("var")
        data = {
            "name": name,
            "variation": variation,
            "goal": label.text("goal"),
            "subgoals": label.patterns("subgoals"),
        }
        instances.append(Instance(f"{index}-{name}-{variation}", data, label.text("difficulty")))
    return instances


BENCHMARK = Benchmark(
    name="scienceworld",
    environment=f"{__name__}:ScienceWorld",
    instances=_instances,
    extra="refinesynth[scienceworld]",
    memory_mb=1_024,
    # The order of things in a room follows Java's identity hashes, which differ from reset to reset. Equal hashes make
    # instances reproducible; the simulator has no seed.
    process_variables={
        "JAVA_TOOL_OPTIONS": "-Xmx768m -XX:+UseSerialGC -XX:+IgnoreUnrecognizedVMOptions "
        "-XX:+UnlockExperimentalVMOptions -XX:hashCode=2"
    },
)
