"""Whole sets of settings by name."""

from typing import Any

from refinesynth import rules
from refinesynth.settings.attempts import Attempts
from refinesynth.settings.mistakes import at_least
from refinesynth.trajectory import Liberty

_AS_ASKED = (Liberty.SPELLING, Liberty.UNNUMBERED, Liberty.FENCED)


def paper() -> dict[str, Any]:
    """Keyword arguments for `synthesize` that repeat the paper's procedure: `synthesize(personas, n=100, **paper())`.

    Narrated play, Algorithm 1 with at least two errors, at most four completions per persona with the script's included
    and none for repairing the form of an answer, and gpt-4o, of which the paper used the snapshot of 2024-05-13 that
    has since retired. The algorithm is taken to the letter, but for the keys that our prompts ask for (`thought`, and
    no number) and a code fence, which is a chat model's envelope. The script rules stay ours: of the paper's own it is
    only known that each regular expression is tried on its action.
    """
    return {
        "backend": "gpt-4o",
        "play": "narrated",
        "rules": rules.first_failure(rules.ToTheLetter(allow=_AS_ASKED), rules.agentrefine()),
        "mistakes": at_least(2),
        "attempts": Attempts(scripts=3, drafts=3, calls=4, answers=0),
        "judge": False,
    }
