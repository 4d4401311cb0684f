"""Episodes: write a script for a persona, play it, verify the draft, and retry within bounds.

Names are imported on first use, so reading the table of plays does not import the code that plays.
"""

from typing import TYPE_CHECKING

from refinesynth.lazy_imports import lazy_names

if TYPE_CHECKING:
    from refinesynth.episode.episode import episode_id, episode_seed, play_episode
    from refinesynth.episode.play import EpisodeContext, EpisodeSettings, Play, Turns
    from refinesynth.outcome import EpisodeOutcome, Refused
    from refinesynth.settings import Attempts

__all__ = [
    "Attempts",
    "EpisodeContext",
    "EpisodeOutcome",
    "EpisodeSettings",
    "Play",
    "Refused",
    "Turns",
    "episode_id",
    "episode_seed",
    "play_episode",
]


__getattr__ = lazy_names(__name__)
