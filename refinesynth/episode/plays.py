"""Table of plays. A play is imported when it is used, not when its name is listed."""

import re
from functools import cache
from importlib.metadata import EntryPoint
from typing import TYPE_CHECKING

from refinesynth.entry_points import Table
from refinesynth.errors import InputError

if TYPE_CHECKING:
    from refinesynth.episode.play import Play

BUILT_IN = {name: f"refinesynth.episode.{name}:{name.upper()}" for name in ("live", "narrated", "grounded")}

PLAYS = Table("play", "refinesynth.plays", BUILT_IN)
"""Entry points: `mine = "my_package.plays:MINE"`, an object of `Play` whose name is `mine`."""


def known() -> tuple[str, ...]:
    """Names of all plays, the built-in ones first."""
    return tuple(PLAYS.entries())


@cache
def find(name: str) -> "Play":
    """Return the play of that name. Raises InputError: it is unknown, or its package cannot be used."""
    entry = checked(name)

    def fits(found: object) -> bool:
        # Imported here because it imports pydantic-ai.
        from refinesynth.episode.play import Play

        return isinstance(found, Play) and found.name == name

    from refinesynth.trajectory import PLAY_NAME

    if not re.fullmatch(PLAY_NAME, name):
        raise InputError(
            f"the play {name!r} in {entry.value!r} has a name that records cannot keep; expected {PLAY_NAME}"
        )
    return PLAYS.load(name, fits, "an object of Play of this name")


def checked(name: str) -> EntryPoint:
    """Return the entry point of a play without importing it; raises InputError for an unknown name."""
    return PLAYS.entry(name)
