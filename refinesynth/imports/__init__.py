"""Import of other programs' trajectories and of exports into a run folder."""

from refinesynth.imports.import_formats import FORMATS, read_record
from refinesynth.imports.importing import import_trajectories

__all__ = ["FORMATS", "import_trajectories", "read_record"]
