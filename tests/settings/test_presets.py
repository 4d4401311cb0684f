"""The presets: what the paper did, and settings for small models."""

from refinesynth import rules
from refinesynth.settings import Attempts
from refinesynth.settings.mistakes import at_least
from refinesynth.settings.setting_presets import paper, small
from refinesynth.trajectory import Liberty


def test_the_papers_preset() -> None:
    assert paper() == {
        "backend": "gpt-4o",
        "play": "narrated",
        "rules": rules.first_failure(
            rules.ToTheLetter(allow=(Liberty.SPELLING, Liberty.UNNUMBERED, Liberty.FENCED)),
            rules.agentrefine(min_refinements=2),
        ),
        "mistakes": at_least(2),
        "attempts": Attempts(scripts=3, drafts=3, calls=4, answers=0),
        "judge": False,
    }


def test_the_preset_for_small_models_reads_leniently_where_a_player_acts() -> None:
    shared = {"prompts": "@small", "attempts": Attempts(scripts=6, answers=3)}
    assert small("narrated") == {"play": "narrated", **shared}
    assert small("grounded") == {"play": "grounded", **shared, "match": "lenient", "max_turns": 40}
    assert small() == {**small("grounded"), "play": "live"}
