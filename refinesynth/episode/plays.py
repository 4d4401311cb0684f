"""The table of plays: those that come with the package, and those of installed packages (entry points of the group
`refinesynth.plays`).

A play is loaded when it is asked for; its name alone costs nothing.
"""

import re
from functools import cache
from importlib.metadata import EntryPoint, entry_points
from typing import TYPE_CHECKING, cast

from refinesynth.errors import InputError

if TYPE_CHECKING:
    from refinesynth.episode.play import Play

GROUP = "refinesynth.plays"
"""Entry-point group: `mine = "my_package.plays:MINE"`, an object of `Play` whose name is `mine`."""

BUILT_IN = {
    name: EntryPoint(name, f"refinesynth.episode.{name}:{name.upper()}", GROUP)
    for name in ("live", "narrated", "grounded")
}
"""Name to where the object is. An entry point of the same name does not replace it."""


def known() -> tuple[str, ...]:
    """The names of all plays, the built-in ones first."""
    return (*BUILT_IN, *sorted(_installed().keys() - BUILT_IN.keys()))


@cache
def find(name: str) -> "Play":
    """The play of that name.

    Raises:
        InputError: No such play, or what its package registers cannot be loaded or is none.
    """
    entry = checked(name)
    try:
        found = cast("object", entry.load())
    except Exception as error:  # Whatever another package's import raises.
        raise InputError(f"the play {name!r} cannot be loaded from {entry.value!r}: {error!r}") from error
    # Imported here: it brings pydantic-ai with it.
    from refinesynth.episode.play import Play
    from refinesynth.trajectory import PLAY_NAME

    if not re.fullmatch(PLAY_NAME, name):
        raise InputError(
            f"the play {name!r} in {entry.value!r} has a name that records cannot keep; expected {PLAY_NAME}"
        )
    if not isinstance(found, Play) or found.name != name:
        raise InputError(
            f"the play {name!r} is {found!r} in {entry.value!r}; an object of Play of this name is expected"
        )
    return found


def checked(name: str) -> EntryPoint:
    """Return the location of the play of that name; nothing is loaded.

    Raises:
        InputError: No such play.
    """
    entry = BUILT_IN.get(name) or _installed().get(name) if isinstance(cast("object", name), str) else None
    if entry is None:
        raise InputError(f"play is {name!r}; expected one of {', '.join(map(repr, known()))}")
    return entry


def _installed() -> dict[str, EntryPoint]:
    return {entry.name: entry for entry in entry_points(group=GROUP)}
