"""Episodes: write a script for a persona, play it, verify the draft, and retry within bounds.

Names are imported on first use, so reading the table of plays does not import the code that plays.
"""

from importlib import import_module
from typing import TYPE_CHECKING

from refinesynth.renamed import renamed

if TYPE_CHECKING:
    from refinesynth.episode.episode import episode_id, episode_seed, play_episode
    from refinesynth.episode.play import EpisodeContext, EpisodeSettings, Play, Turns
    from refinesynth.outcome import EpisodeOutcome, Refused
    from refinesynth.settings.attempts import Attempts

_HOMES = {
    "Attempts": "settings.attempts",
    "EpisodeContext": "episode.play",
    "EpisodeOutcome": "outcome",
    "EpisodeSettings": "episode.play",
    "Play": "episode.play",
    "Refused": "outcome",
    "Turns": "episode.play",
    "episode_id": "episode.episode",
    "episode_seed": "episode.episode",
    "play_episode": "episode.episode",
}

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


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        return renamed(__name__, {"Cast": "EpisodeContext"})(name)
    return getattr(import_module(f"refinesynth.{_HOMES[name]}"), name)
