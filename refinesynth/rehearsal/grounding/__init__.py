"""How each family's worlds are executed for the player's eyes too."""

from refinesynth.rehearsal.grounding.file_system import FILE_SYSTEM
from refinesynth.rehearsal.grounding.form import Form
from refinesynth.rehearsal.grounding.household import HOUSEHOLD
from refinesynth.rehearsal.grounding.laboratory import LABORATORY
from refinesynth.rehearsal.grounding.office import OFFICE
from refinesynth.rehearsal.grounding.warehouse import WAREHOUSE

FORMS = {
    "household": HOUSEHOLD,
    "files": FILE_SYSTEM,
    "laboratory": LABORATORY,
    "warehouse": WAREHOUSE,
    "office": OFFICE,
}
"""By the family's name."""

__all__ = ["FORMS", "Form"]
