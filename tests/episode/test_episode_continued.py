"""An episode that was interrupted goes on where it was: nothing is asked twice, and the outcome is that of one
piece."""

from typing import Any

import pytest
from interrupted_episodes import continued
from stage import settings_for

from refinesynth import rules
from refinesynth.episode import EpisodeSettings
from refinesynth.settings import Grounding


@pytest.mark.parametrize("play", ["live", "narrated"])
@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("lives", [1, 3])
async def test_an_interrupted_episode_is_continued_turn_by_turn(play: str, seed: int, lives: int) -> None:
    await both_ways(settings_for(play, seed=seed), seed, lives)


@pytest.mark.parametrize(
    ("seed", "given"),
    [
        (0, {}),
        (1, {"grounding": Grounding(transient=0.3)}),
        (2, {"grounding": Grounding(terse=True, transient=0.3)}),
        (4, {"branches": 3}),
    ],
)
async def test_so_is_one_whose_world_is_executed(seed: int, given: dict[str, Any]) -> None:
    """Chance included: an action that failed for a moment fails again when the episode is played to where it was."""
    await both_ways(settings_for("grounded", seed=seed, **given), seed, lives=3)


async def both_ways(settings: EpisodeSettings, seed: int, lives: int) -> None:
    outcome = await continued(settings, index=seed, lives=lives)
    assert all(rules.verify(one.draft(), settings.rules).accepted for one in outcome.trajectories)
