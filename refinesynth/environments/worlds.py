"""The worlds of a run, each once."""

from collections.abc import Iterator
from os import PathLike
from typing import NamedTuple

from refinesynth.errors import InputError
from refinesynth.run.folder import one_of_each_script, stored_trajectories
from refinesynth.trajectory import Script

_NAMED = 3
"""Trajectories that are named where there is none of the name asked for."""


class NamedWorld(NamedTuple):
    """A grounded script."""

    id: str
    """Of the first trajectory that was played in it."""
    script: Script


def read_worlds(source: str | PathLike[str]) -> Iterator[NamedWorld]:
    """The worlds of a run folder or of a file of its trajectories, lazily and in their order; scripts that are not
    grounded are passed over.

    Raises:
        InputError: It cannot be read, or no script is grounded, which is said at the end.
    """
    none = True
    for one in one_of_each_script(stored_trajectories(source)):
        if one.script.rulebook is not None:
            none = False
            yield NamedWorld(one.id, one.script)
    if none:
        raise InputError(
            f"no script in {str(source)!r} is grounded, so none is a world to act in; a run with --play grounded has such"
        )


def find_world(source: str | PathLike[str], wanted: str | None = None) -> NamedWorld:
    """The world that a trajectory was played in, or the first one there is.

    Raises:
        InputError: `source` cannot be read, or there is no such trajectory, or its script is not grounded.
    """
    if wanted is None:
        return next(read_worlds(source))
    names: list[str] = []
    for one in stored_trajectories(source):
        if one.id == wanted:
            if one.script.rulebook is None:
                raise InputError(f"the script of {wanted!r} is not grounded, so its world cannot be executed")
            return NamedWorld(one.id, one.script)
        names.append(one.id)
    listed = [*names[:_NAMED], "..."][: len(names)]
    there = f"there are {', '.join(listed)}" if names else "it holds none"
    raise InputError(f"there is no trajectory {wanted!r} in {str(source)!r}; {there}")
