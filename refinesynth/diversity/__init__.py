"""Near-duplicates among scripts, and overlaps with evaluation sets."""

from refinesynth.diversity.contamination import CONTAMINATED, WORDS, Contamination, Overlap
from refinesynth.diversity.novelty import NEAR, NEAR_DUPLICATE, NearDuplicate, Novelty

CURATING = frozenset({NEAR_DUPLICATE, CONTAMINATED})
"""Rules that compare a draft with other data and cannot be verified with the draft alone."""

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
