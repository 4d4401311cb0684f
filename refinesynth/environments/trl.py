"""Grounded worlds for TRL's `GRPOTrainer(environment_factory=...)`, TRL 1.16 and later.

TRL offers an environment's public methods as tools. `TextWorld` plays the world of each row with one tool.
"""

from collections.abc import Mapping
from functools import partial
from inspect import signature
from math import isfinite
from typing import Any

from pydantic import TypeAdapter, ValidationError

from refinesynth.environments.grounded import RECOVERY, STEPS, GroundedEnvironment
from refinesynth.errors import ConfigurationError, InputError
from refinesynth.trajectory import DungeonMasterTurn, PlayerTurn, Script, explain

_TURNS = TypeAdapter(tuple[PlayerTurn | DungeonMasterTurn, ...])


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
        try:
            return self._world.reset(seed, form="act", before=_TURNS.validate_json(before))
        except ValueError as error:
            reason = f"before are no turns of `refinesynth export --format rl --start mistakes`: {explain(error)}"
            raise InputError(reason) from None

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
