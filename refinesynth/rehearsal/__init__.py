"""The embedded default backend: plays all roles in small generated worlds, offline and deterministic per seed."""

from refinesynth.rehearsal.injected_faults import Faults
from refinesynth.rehearsal.rehearsal import Rehearsal

__all__ = ["Faults", "Rehearsal"]
