"""Table of plays. A play is imported when it is used, not when its name is listed."""

import re
from functools import cache
from typing import TYPE_CHECKING

from refinesynth.lazy_imports import Table

if TYPE_CHECKING:
    from refinesynth.episode.play import Play

BUILT_IN = {name: f"refinesynth.episode.{name}:{name.upper()}" for name in ("live", "narrated", "grounded")}

PLAYS = Table("play", "refinesynth.plays", BUILT_IN)
"""Entry points: `mine = "my_package.plays:MINE"`, an object of `Play` whose name is `mine`."""


@cache
def find(name: str) -> "Play":
    """Return the play of that name. Raises InputError: it is unknown, or its package cannot be used."""
    from refinesynth.trajectory import PLAY_NAME

    def fits(found: object) -> bool:
        # Imported here because it imports pydantic-ai.
        from refinesynth.episode.play import Play

        return isinstance(found, Play) and found.name == name and re.fullmatch(PLAY_NAME, name) is not None

    return PLAYS.load(name, fits, f"an object of Play of this name, which matches {PLAY_NAME},")
