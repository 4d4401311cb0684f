"""The run folder: what was asked, what came out, what was refused and why."""

from refinesynth.run.config import RunConfig, differences, stable_repr
from refinesynth.run.episodes import EpisodeLine, Totals, fingerprint
from refinesynth.run.folder import RUN_FILES, RunFolder, next_run_folder
from refinesynth.run.writer import RunWriter

__all__ = [
    "RUN_FILES",
    "EpisodeLine",
    "RunConfig",
    "RunFolder",
    "RunWriter",
    "Totals",
    "differences",
    "fingerprint",
    "next_run_folder",
    "stable_repr",
]
