"""One persona to one trajectory: write a script, play it, verify, try again within bounds."""

from refinesynth.attempts import Attempts
from refinesynth.episode.identity import episode_id, episode_seed
from refinesynth.episode.play import play_episode
from refinesynth.episode.settings import MAX_TURNS, EpisodeSettings
from refinesynth.outcome import EpisodeOutcome, Refused

__all__ = [
    "MAX_TURNS",
    "Attempts",
    "EpisodeOutcome",
    "EpisodeSettings",
    "Refused",
    "episode_id",
    "episode_seed",
    "play_episode",
]
