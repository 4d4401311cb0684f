"""Five families of worlds that are drawn from a seed."""

from refinesynth.rehearsal.families.family import Act, Family, Plot, State, Verb
from refinesynth.rehearsal.families.file_system import FILE_SYSTEM
from refinesynth.rehearsal.families.household import HOUSEHOLD
from refinesynth.rehearsal.families.laboratory import LABORATORY
from refinesynth.rehearsal.families.office import OFFICE
from refinesynth.rehearsal.families.warehouse import WAREHOUSE

FAMILIES = {family.name: family for family in (HOUSEHOLD, FILE_SYSTEM, LABORATORY, WAREHOUSE, OFFICE)}
"""By the name that stands in a scene's label."""

__all__ = ["FAMILIES", "Act", "Family", "Plot", "State", "Verb"]
