"""Sets of settings by name."""

from typing import Any

from refinesynth import rules
from refinesynth.settings.attempts import Attempts
from refinesynth.settings.mistakes import at_least
from refinesynth.trajectory import Liberty

_AS_ASKED = (Liberty.SPELLING, Liberty.UNNUMBERED, Liberty.FENCED)


def paper() -> dict[str, Any]:
    """Return the settings of the paper's procedure: `synthesize(personas, n=100, **paper())`.

    Narrated play, Algorithm 1 with at least two errors, at most four completions per persona, the script's included,
    none to repair the form of an answer, and gpt-4o (the paper's snapshot of 2024-05-13 has retired). The algorithm is
    taken literally, except for the keys of our prompts (`thought`, no number) and a code fence. The script rules are
    ours: the paper only says that each regular expression is tried on its action.
    """
    return {
        "backend": "gpt-4o",
        "play": "narrated",
        "rules": rules.first_failure(rules.ToTheLetter(allow=_AS_ASKED), rules.agentrefine()),
        "mistakes": at_least(2),
        "attempts": Attempts(scripts=3, drafts=3, calls=4, answers=0),
        "judge": False,
    }
