"""Concurrent episodes, until enough trajectories are accepted."""

from refinesynth.synthesis.dry_run import Estimate, estimate
from refinesynth.synthesis.progress import Progress
from refinesynth.synthesis.result import Records, SynthesisResult
from refinesynth.synthesis.synthesize import synthesize

__all__ = [
    "Estimate",
    "Progress",
    "Records",
    "SynthesisResult",
    "estimate",
    "synthesize",
]
