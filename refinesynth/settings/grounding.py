"""Settings of grounded play: execution of the world, and kind of world."""

import re
from typing import Annotated, cast

from pydantic import BaseModel, Field, field_validator, model_validator

from refinesynth.errors import ConfigurationError
from refinesynth.option import MISTAKES, PLAY, Option
from refinesynth.settings.mix import Mix

_BAND = re.compile(r"\s*(\d{1,3})?\s*(\.\.)?\s*(\d{1,3})?\s*")

MAX_STEPS = 100
"""Longest solution that a band of difficulty can ask for, in actions."""


class Grounding(BaseModel, frozen=True, extra="forbid", use_attribute_docstrings=True):
    """Settings of grounded play: the world is executed by its rulebook, and the DungeonMaster only puts the result into
    words.
    """

    terse: Annotated[bool, Option(PLAY)] = False
    """Grounded play: the world answers in the rulebook's own words, without requests to a DungeonMaster model."""
    difficulty: Annotated[tuple[int, int] | None, Option(PLAY, "BAND")] = None
    """Grounded play: fewest and most actions of a script's shortest solution, such as 4..12; a script outside is
    refused. By default 6..12; 1..100 keeps all."""
    transient: Annotated[float, Field(ge=0, lt=1, allow_inf_nan=False), Option(MISTAKES, "RATE")] = 0.0
    """Grounded play: share of the right actions that fail for a moment, announced as such; agents learn to try them
    again."""
    mix: Annotated[Mix, Option(PLAY, "SHARES")] = Field(default_factory=Mix)
    """Grounded play: share of the scripts that are asked for a feature:
    distractors=0.8,irreversible=0.2,hidden=0.5,preconditions=0.7."""

    @model_validator(mode="before")
    @classmethod
    def _in_one_call(cls, given: object) -> object:
        """Accept `two_steps=False` of earlier versions, in which a script could be written in two calls."""
        if not isinstance(given, dict) or "two_steps" not in given:
            return cast("object", given)
        known = cast("dict[str, object]", given)
        if known["two_steps"] is not False:
            raise ValueError("two_steps: a script is written in one call; leave two_steps out")
        return {name: value for name, value in known.items() if name != "two_steps"}

    @field_validator("difficulty", mode="before")
    @classmethod
    def _band(cls, value: object) -> object:
        return band(value) if isinstance(value, str) else value

    @field_validator("difficulty")
    @classmethod
    def _in_order(cls, value: tuple[int, int] | None) -> tuple[int, int] | None:
        if value is not None and not 1 <= value[0] <= value[1] <= MAX_STEPS:
            raise ValueError(f"expected two whole numbers, 1 or more and {MAX_STEPS} or less, the smaller one first")
        return value

    @field_validator("mix", mode="before")
    @classmethod
    def _mixed(cls, value: object) -> object:
        return Mix.parse(value) if isinstance(value, str) else value


def band(text: str) -> tuple[int, int]:
    """Parse `4..12`, `4..`, `..12` or `6` into fewest and most actions.

    Raises:
        ConfigurationError: It is none of these.
    """
    found = _BAND.fullmatch(text)
    if found is not None and (found[1] or found[3]):
        least = int(found[1]) if found[1] else 1
        most = int(found[3]) if found[3] else MAX_STEPS if found[2] else least
        if 1 <= least <= most <= MAX_STEPS and (found[2] or not found[3]):
            return least, most
    raise ConfigurationError(
        f"difficulty {text!r} is no band of solution lengths; write 4..12 (actions, both ends counted, {MAX_STEPS} at most), 4.. or ..12"
    )
