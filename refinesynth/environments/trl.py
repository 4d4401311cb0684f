"""Grounded worlds for TRL's `GRPOTrainer(environment_factory=...)`, TRL 1.16 and later.

TRL offers an environment's public methods as tools. `TextWorld` plays the world of each row with one tool. `world_class`
makes a class for one world, with its actions as tools.
"""

import keyword
import re
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from inspect import Parameter, Signature, signature
from math import isfinite
from typing import Any, Literal

from pydantic import TypeAdapter, ValidationError

from refinesynth.actions.calls import Call, Tool, tools_of
from refinesynth.environments.grounded import RECOVERY, STEPS, Form, GroundedEnvironment, NamedWorld
from refinesynth.errors import ConfigurationError, InputError
from refinesynth.trajectory import DungeonMasterTurn, PlayerTurn, Script, explain

_TURNS = TypeAdapter(tuple[PlayerTurn | DungeonMasterTurn, ...])

_HEADING = re.compile(r"\b(Args|Returns|Raises):")


class TextWorld:
    """Any grounded world with one tool, `act`: `environment_factory=TextWorld`, or `partial(TextWorld, steps=20)`.

    The rows come from `refinesynth export --format rl`, without their `prompt`; `reset` returns the task.
    """

    def __init__(self, *, steps: int = STEPS, slips: float = 0.0, recovery: int = RECOVERY, **reward: float) -> None:
        """Set the arguments of `GroundedEnvironment`, and the weights of its `reward`.

        Raises ConfigurationError: a number is out of range, or a weight is unknown.
        """
        _check(steps, slips, reward)
        self._make = partial(GroundedEnvironment, steps=steps, slips=slips, recovery=recovery)
        self._weights = reward
        self._world: GroundedEnvironment | None = None

    def reset(self, *, script: str, seed: int = 0, before: str = "[]", **_: Any) -> str:
        """Begin a play in a row's world and return the task, which TRL puts after the row's prompt.

        Raises:
            InputError: `script` is not a script as JSON text, or `before` holds no turns of a play in its world.
            RulebookError: The world cannot be executed.
        """
        try:
            parsed = Script.model_validate_json(script)
        except ValidationError as error:
            raise InputError(f"script is no script of `refinesynth export --format rl`: {explain(error)}") from None
        self._world = self._make(parsed)
        return _begin(self._world, seed, before, "act")

    def act(self, action: str) -> str:
        """Take one action and be told what happens.

        Args:
            action: One of the available actions, with every placeholder in braces replaced by a value.

        Returns:
            What happens.
        """
        return self._started_world().act(str(action))  # A model may call with anything.

    def get_reward(self) -> float:
        return self._started_world().reward(**self._weights)

    def _started_world(self) -> GroundedEnvironment:
        if self._world is None:
            raise RuntimeError("no world has begun; call reset first")
        return self._world


def _begin(world: GroundedEnvironment, seed: int, before: str, form: Form) -> str:
    try:
        return world.reset(seed, form=form, before=_TURNS.validate_json(before))
    except ValueError as error:
        raise InputError(
            f"before are no turns of `refinesynth export --format rl --start mistakes`: {explain(error)}"
        ) from None


def _check(steps: Any, slips: Any, weights: Mapping[str, Any]) -> None:
    if not isinstance(steps, int) or steps < 1:
        raise ConfigurationError(f"steps is {steps!r}; expected a whole number, 1 or more")
    if not isinstance(slips, int | float) or not 0 <= slips < 1:
        raise ConfigurationError(f"slips is {slips!r}; expected a share of the right actions, at least 0 and below 1")
    known = list(signature(GroundedEnvironment.reward).parameters)[1:]
    for name, weight in weights.items():
        if name not in known:
            raise ConfigurationError(f"the reward has no weight {name}; there are {', '.join(known)}")
        if not isinstance(weight, int | float) or not isfinite(weight):
            raise ConfigurationError(f"the weight {name} of the reward is {weight!r}; expected a finite number")


def world_classes(worlds: Iterable[NamedWorld], **settings: Any) -> dict[str, Callable[[], Any]]:
    """Return a class for each world by id, for rows with the id as `environment`; `settings` go to `world_class`."""
    return {world.id: world_class(world.script, **settings) for world in worlds}


def world_class(
    script: Script, *, steps: int = STEPS, slips: float = 0.0, recovery: int = RECOVERY, **reward: float
) -> type:
    """Return a class with the script's actions as methods, named like the functions of `chat.render_tools`.

    Names reserved by Python or TRL get a `_` at the end, such as the placeholder `from` and the action `reset`; names
    of functions that begin with `_` get `tool` before it.

    Raises:
        RulebookError: The script's world cannot be executed.
        ConfigurationError: A number is out of range, or a weight is unknown.
    """
    _check(steps, slips, reward)
    make = partial(GroundedEnvironment, script, steps=steps, slips=slips, recovery=recovery)
    make()

    def begin(self: Any) -> None:
        self._world = make()

    def reset(self: Any, *, seed: int = 0, before: str = "[]", **_: Any) -> str:
        """Begin a play and return the task, which TRL puts after the row's prompt."""
        return _begin(self._world, seed, before, "tools")

    def get_reward(self: Any) -> float:
        """Return the reward of the play."""
        return self._world.reward(**reward)

    members: dict[str, Any] = {"__init__": begin, "__doc__": script.goal, "reset": reset, "get_reward": get_reward}
    for tool in tools_of(script):
        method = _action_method(tool)
        members[method.__name__] = method
    return type("World", (), members)


def _action_method(tool: Tool) -> Callable[..., str]:
    """Return an action as a method with the tool's signature and Google-style docstring."""
    definition: Mapping[str, Any] = tool.definition()["function"]
    schema: Mapping[str, Any] = definition["parameters"]
    python: dict[str, str] = {}
    """Property by the name of its Python argument."""
    parameters: list[Parameter] = []
    for name, prop_schema in schema["properties"].items():
        argument = re.sub(r"\W", "_", name if name[:1].isalpha() else f"_{name}")
        while argument in python or keyword.iskeyword(argument) or argument in {"self", "cls"}:
            argument += "_"
        python[argument] = name
        values = prop_schema.get("enum")
        kind: Any = Literal[tuple(values)] if values else _TYPES.get(str(prop_schema.get("type")), str)
        required = name in (schema.get("required") or ())
        default = Parameter.empty if required else None
        annotation = kind if required else kind | None
        parameters.append(Parameter(argument, Parameter.KEYWORD_ONLY, annotation=annotation, default=default))
    optional = {parameter.name for parameter in parameters if parameter.default is None}

    def method(self: Any, **arguments: Any) -> str:
        given = {name: value for name, value in arguments.items() if value is not None or name not in optional}
        return self._world.act(Call(tool.name, {python.get(name, name): value for name, value in given.items()}))

    name = f"{tool.name}_" if tool.name in {"reset", "get_reward"} else tool.name
    # TRL takes a name with `_` at its beginning for no tool.
    method.__name__ = method.__qualname__ = f"tool{name}" if name.startswith("_") else name
    method.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    vars(method)["__signature__"] = Signature([Parameter("self", Parameter.POSITIONAL_ONLY), *parameters])
    # A docstring heading in an untrusted description would end the description.
    description = _HEADING.sub(r"\1 -", " ".join(definition["description"].split()))
    placeholders = {name: placeholder for placeholder, name in tool.properties.items()}
    listed = "".join(f"\n    {key}: What stands for {{{placeholders[name]}}}." for key, name in python.items())
    method.__doc__ = f"{description}\n\nArgs:{listed}\n" if listed else description
    return method


_TYPES: Mapping[str, type] = {"integer": int, "number": float, "boolean": bool, "array": list, "object": dict}
