"""How different the worlds of a run are, and whether something in them is in an evaluation set."""

from refinesynth.diversity.contamination import CONTAMINATED, WORDS, Contamination, Overlap
from refinesynth.diversity.novelty import NEAR, NEAR_DUPLICATE, NearDuplicate, Novelty

CURATING = frozenset({NEAR_DUPLICATE, CONTAMINATED})
"""Rules that look at more than a draft: with the draft alone they cannot be checked again."""

__all__ = [
    "CONTAMINATED",
    "CURATING",
    "NEAR",
    "NEAR_DUPLICATE",
    "WORDS",
    "Contamination",
    "NearDuplicate",
    "Novelty",
    "Overlap",
]
