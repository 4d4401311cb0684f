"""Sentences of Player and DungeonMaster, in several forms each; they stand in `wordings.json`, by what they are about."""

from collections.abc import Mapping
from importlib.resources import files
from random import Random

from pydantic import TypeAdapter

WORDINGS: Mapping[str, tuple[str, ...]] = TypeAdapter(dict[str, tuple[str, ...]]).validate_json(
    (files("refinesynth.rehearsal") / "wordings.json").read_bytes()
)
"""Templates by key. Those of `ruled_...` are the DungeonMaster's on what an executed world has ruled, and name nothing but the action."""


def say(rng: Random, key: str, **values: object) -> str:
    """One of the wordings with this key, filled."""
    return rng.choice(WORDINGS[key]).format(**values)
