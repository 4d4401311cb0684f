"""Import of other programs' trajectories and of exports into a run folder."""

from refinesynth.imports.importing import FORMATS, import_trajectories, read_record

__all__ = ["FORMATS", "import_trajectories", "read_record"]
