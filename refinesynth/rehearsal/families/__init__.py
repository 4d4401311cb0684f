"""Five families of worlds that are drawn from a seed."""

from collections.abc import Callable, Mapping
from random import Random

from refinesynth.rehearsal.families import files, household, laboratory, office, warehouse
from refinesynth.rehearsal.families.family import Act, Family, Plot, Verb, read_family

DRAWING: Mapping[str, Callable[[Family, Random], Plot]] = {
    "household": household.draw,
    "files": files.draw,
    "laboratory": laboratory.draw,
    "warehouse": warehouse.draw,
    "office": office.draw,
}
"""How a world of each family is drawn: what its file cannot say."""

FAMILIES: Mapping[str, Family] = {name: read_family(name) for name in DRAWING}
"""By the name that stands in a scene's label."""

__all__ = ["DRAWING", "FAMILIES", "Act", "Family", "Plot", "Verb"]
