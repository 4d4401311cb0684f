"""A run described once: its settings and their parts."""

from refinesynth.settings.attempts import Attempts
from refinesynth.settings.curation import Curation
from refinesynth.settings.grounding import Grounding
from refinesynth.settings.mistakes import Mistakes
from refinesynth.settings.mix import Mix
from refinesynth.settings.run import PlaySettings, RunSettings
from refinesynth.settings.shard import Shard

__all__ = ["Attempts", "Curation", "Grounding", "Mistakes", "Mix", "PlaySettings", "RunSettings", "Shard"]
