"""The presets: what the paper did, and settings for small models."""

from refinesynth import rules
from refinesynth.settings import Attempts
from refinesynth.settings.mistakes import at_least
from refinesynth.settings.setting_presets import paper
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
