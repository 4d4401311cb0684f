"""Five families of worlds that are drawn from a seed."""

from collections.abc import Callable, Mapping
from random import Random

from refinesynth.rehearsal.families import files
from refinesynth.rehearsal.families.drawing import draw_household, draw_laboratory, draw_office, draw_warehouse
from refinesynth.rehearsal.families.family import Act, Family, Plot, Verb, read_family

DRAWING: Mapping[str, Callable[[Family, Random], Plot]] = {
    "household": draw_household,
    "files": files.draw,
    "laboratory": draw_laboratory,
    "warehouse": draw_warehouse,
    "office": draw_office,
}
"""How a world of each family is drawn: what its file cannot say."""

FAMILIES: Mapping[str, Family] = {name: read_family(name) for name in DRAWING}
"""By the name that stands in a scene's label."""

__all__ = ["DRAWING", "FAMILIES", "Act", "Family", "Plot", "Verb"]
