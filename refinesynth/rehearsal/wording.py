"""Sentences of Player and DungeonMaster, in several forms each; and how observations of mistakes begin, by which they
are known.
"""

import re
from collections.abc import Mapping
from importlib.resources import files
from random import Random

from pydantic import TypeAdapter

from refinesynth.rehearsal.families import FAMILIES, Family

WORDINGS: Mapping[str, tuple[str, ...]] = TypeAdapter(dict[str, tuple[str, ...]]).validate_json(
    (files("refinesynth.rehearsal") / "wordings.json").read_bytes()
)
"""Templates by key. Those of `ruled_...` are the DungeonMaster's on what an executed world has ruled, and name nothing
but the action."""


_BEGINNINGS = tuple(beginning for family in FAMILIES.values() for beginning in family.refusals)

_STRANGE = re.compile(r"\s*(?:error\b|invalid\b|nothing happens\b|you (?:can't|cannot|can not)\b)", re.IGNORECASE)
"""How other environments than the rehearsal's often answer a mistake."""


def say(rng: Random, key: str, **values: object) -> str:
    """One of the wordings with this key, filled."""
    return rng.choice(WORDINGS[key]).format(**values)


def refusal(rng: Random, family: Family, why: str) -> str:
    """An observation of a mistake."""
    return f"{rng.choice(family.refusals)} {why}".rstrip()


def sounds_refused(observation: str) -> bool:
    """Whether an observation is one of a mistake. True of everything that `refusal` gives."""
    return observation.startswith(_BEGINNINGS) or _STRANGE.match(observation) is not None
