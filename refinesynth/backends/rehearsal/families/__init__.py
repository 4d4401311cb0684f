"""Five families of worlds that are drawn from a seed."""

from refinesynth.backends.rehearsal.families.family import Act, Family, Plot, State, Verb
from refinesynth.backends.rehearsal.families.file_system import FILE_SYSTEM
from refinesynth.backends.rehearsal.families.household import HOUSEHOLD
from refinesynth.backends.rehearsal.families.laboratory import LABORATORY
from refinesynth.backends.rehearsal.families.office import OFFICE
from refinesynth.backends.rehearsal.families.warehouse import WAREHOUSE

FAMILIES = {family.name: family for family in (HOUSEHOLD, FILE_SYSTEM, LABORATORY, WAREHOUSE, OFFICE)}
"""By the name that stands in a scene's label."""

__all__ = ["FAMILIES", "Act", "Family", "Plot", "State", "Verb"]
