"""Families of worlds drawn by seed: a JSON file with verbs, laws and names, and a drawing function each."""

from collections.abc import Callable, Mapping
from random import Random

from refinesynth.rehearsal.families.family import Family, Plot, Verb, read_family
from refinesynth.rehearsal.families.places import (
    draw_household,
    draw_laboratory,
    draw_office,
    draw_search,
    draw_warehouse,
)
from refinesynth.rehearsal.families.records import draw_files, draw_panel, draw_service

DRAWING: Mapping[str, Callable[[Family, Random], Plot]] = {
    "household": draw_household,
    "files": draw_files,
    "laboratory": draw_laboratory,
    "warehouse": draw_warehouse,
    "office": draw_office,
    "service": draw_service,
    "panel": draw_panel,
    "search": draw_search,
}
"""Drawing function of each family."""

CLASSIC = ("household", "files", "laboratory", "warehouse", "office")
"""Default families; seeds of earlier runs depend on this order."""

FAMILIES: Mapping[str, Family] = {name: read_family(name) for name in DRAWING}

__all__ = ["CLASSIC", "DRAWING", "FAMILIES", "Family", "Plot", "Verb"]
