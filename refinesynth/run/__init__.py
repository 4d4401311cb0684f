"""The run folder: settings, journal, trajectories, refusals and events of a run."""

from refinesynth.run.completed_episode import CompletedEpisode, EpisodeLine, fingerprint
from refinesynth.run.resume import EpisodeMemory
from refinesynth.run.run_config import RunConfig, differences, stable_repr
from refinesynth.run.run_folder import RunFolder, free_run_folder, is_run_file, next_run_folder
from refinesynth.run.stats import RunStats
from refinesynth.run.writer import RunWriter

__all__ = [
    "CompletedEpisode",
    "EpisodeLine",
    "EpisodeMemory",
    "RunConfig",
    "RunFolder",
    "RunStats",
    "RunWriter",
    "differences",
    "fingerprint",
    "free_run_folder",
    "is_run_file",
    "next_run_folder",
    "stable_repr",
]
