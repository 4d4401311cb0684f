"""Observations of mistakes: how they begin, and how they are told from others."""

import re
from random import Random

from refinesynth.rehearsal.families import FAMILIES, Family

_BEGINNINGS = tuple(beginning for family in FAMILIES.values() for beginning in family.refusals)

_STRANGE = re.compile(r"\s*(?:error\b|invalid\b|nothing happens\b|you (?:can't|cannot|can not)\b)", re.IGNORECASE)
"""How other environments than the rehearsal's often answer a mistake."""


def refusal(rng: Random, family: Family, why: str) -> str:
    """An observation of a mistake."""
    return f"{rng.choice(family.refusals)} {why}".rstrip()


def sounds_refused(observation: str) -> bool:
    """Whether an observation is one of a mistake. True of everything that `refusal` gives."""
    return observation.startswith(_BEGINNINGS) or _STRANGE.match(observation) is not None
