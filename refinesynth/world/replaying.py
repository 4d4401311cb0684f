"""A trajectory's states, made again from its script and its actions alone; and worlds kept as long as their scripts are
there.
"""

from collections.abc import Container, Iterable
from typing import cast
from weakref import WeakValueDictionary

from pydantic import JsonValue

from refinesynth.trajectory import Script
from refinesynth.trajectory.weak_cache import weakly_cached
from refinesynth.world.errors import RulebookError
from refinesynth.world.executor import World
from refinesynth.world.ruling import Ruling


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
    """The world of a script, compiled once for all scripts that say the same. It goes when they are gone.

    Raises:
        RulebookError: The rulebook cannot be run.
    """
    world = world_or_problem(script)
    if isinstance(world, str):
        raise RulebookError(world)
    return world


@weakly_cached
def world_or_problem(script: Script) -> World | str:
    """The world of a script; in words why it cannot be run, if so. Asking again of the same object costs next to
    nothing.
    """
    digest = script.digest
    world = _by_digest.get(digest)
    if world is None:
        try:
            # Of a copy, which shares all its parts: a world that held on to the script would keep it, and so itself,
            # for ever.
            world = _by_digest[digest] = World(script.model_copy())
        except RulebookError as error:
            return str(error)
    return world


_by_digest: WeakValueDictionary[str, World] = WeakValueDictionary()
