"""Trajectories of others, and our own exports, read into a run folder."""

from refinesynth.imports.folder import import_trajectories
from refinesynth.imports.formats import FORMATS, read_record

__all__ = ["FORMATS", "import_trajectories", "read_record"]
