"""A trajectory's states, made again from its script and its actions alone; and worlds kept by what their scripts say."""

from collections.abc import Container, Iterable
from functools import lru_cache
from typing import cast

from pydantic import JsonValue

from refinesynth.trajectory import Script
from refinesynth.world.executor import World
from refinesynth.world.ruling import Ruling

CACHED_WORLDS = 256
"""Worlds that `world_of` keeps."""


def replay(world: World, actions: Iterable[str], transient: Container[int] = ()) -> list[Ruling]:
    """The rulings on these actions, one after another from the script's environment on.

    Args:
        world: In which they are carried out.
        actions: Their texts; any text will do.
        transient: Indices of the actions that failed by chance: they leave the state as it is, see `World.withheld`.
    """
    # The executor never changes a state in place, and its own type says `dict[str, JsonValue]`.
    state = cast("JsonValue", world.script.environment)
    rulings: list[Ruling] = []
    for at, action in enumerate(actions):
        ruling = world.step(state, action)
        if at in transient:
            ruling = world.withheld(state, ruling)
        rulings.append(ruling)
        state = ruling.state
    return rulings


def world_of(script: Script) -> World:
    """The world of a script, compiled once for all scripts that say the same.

    Raises:
        RulebookError: The rulebook cannot be run.
    """
    return _world(Said(script))


class Said:
    """A script as a key: equal if it says the same."""

    __slots__ = ("digest", "script")

    def __init__(self, script: Script) -> None:
        self.script = script
        self.digest = script.digest

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Said) and self.digest == other.digest

    def __hash__(self) -> int:
        return hash(self.digest)


@lru_cache(maxsize=CACHED_WORLDS)
def _world(said: Said) -> World:
    return World(said.script)
