"""Many episodes at once, until enough trajectories are accepted."""

from refinesynth.synthesis.progress import Progress
from refinesynth.synthesis.result import Records, SynthesisResult
from refinesynth.synthesis.stream import TrajectoryStream, stream
from refinesynth.synthesis.synthesize import synthesize

__all__ = [
    "Progress",
    "Records",
    "SynthesisResult",
    "TrajectoryStream",
    "stream",
    "synthesize",
]
