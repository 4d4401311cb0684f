"""A run described once: its settings and their parts."""

from refinesynth.settings.grounding import Grounding, Mix
from refinesynth.settings.mistakes import Mistakes
from refinesynth.settings.run import Attempts, Curation, PlaySettings, RunSettings, Shard

__all__ = ["Attempts", "Curation", "Grounding", "Mistakes", "Mix", "PlaySettings", "RunSettings", "Shard"]
