"""Sets of settings by name."""

from typing import Any

from refinesynth import rules
from refinesynth.settings.mistakes import at_least
from refinesynth.settings.run import Attempts
from refinesynth.trajectory import Liberty

_ALLOWED_LIBERTIES = (Liberty.SPELLING, Liberty.UNNUMBERED, Liberty.FENCED)


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
        "rules": rules.first_failure(rules.ToTheLetter(allow=_ALLOWED_LIBERTIES), rules.agentrefine()),
        "mistakes": at_least(2),
        "attempts": Attempts(scripts=3, drafts=3, calls=4, answers=0),
        "judge": False,
    }


def small(play: str = "live") -> dict[str, Any]:
    """Return settings for local models below about 8 billion parameters: `synthesize(personas, n=9, **small("grounded"))`.

    Short prompts, which ask for worlds of 5 or 6 actions and records of 6 to 10; more tries of a script and of the form
    of an answer; and, where a Player acts, shorter plays with lenient reading of its actions.
    """
    turn_settings = {} if play == "narrated" else {"match": "lenient", "max_turns": 40}
    return {"play": play, "prompts": "@small", "attempts": Attempts(scripts=6, answers=3), **turn_settings}
