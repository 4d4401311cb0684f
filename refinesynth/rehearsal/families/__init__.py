"""Families of worlds that are drawn from a seed."""

from collections.abc import Mapping

from refinesynth.rehearsal.families.drawing import CLASSIC, DRAWING
from refinesynth.rehearsal.families.family import Act, Family, Plot, Verb, read_family

FAMILIES: Mapping[str, Family] = {name: read_family(name) for name in DRAWING}

__all__ = ["CLASSIC", "DRAWING", "FAMILIES", "Act", "Family", "Plot", "Verb"]
