"""Why a scene was taken back, for each role as far as it can repair it; for the Player in words that a person in the
scene knows.

A violation's message is written for the record and for a Narrator that writes both voices: it counts turns and speaks
of the DungeonMaster. A Player that reads so thinks so, and `NoLeaks` refuses what it thinks.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass

from refinesynth.actions.wording import quoted
from refinesynth.rules.actions import ValidActions
from refinesynth.rules.leaks import NoLeaks
from refinesynth.rules.rule import Verdict, Violation, rejects
from refinesynth.trajectory import Draft, PlayerTurn, Script

IN_THE_SCENE: Mapping[tuple[str, str], str] = {
    ("NothingBlank", "blank"): "Say in a sentence or more what you think, and then what you do.",
    ("ReadsBack", "ambiguous_text"): (
        "Write the action bare and on one line, without quotes around it and without a blank line in it, and begin no line of what you "
        'think with "Thought:", "Action:" or "Observation:".'
    ),
    ("SizeLimits", "turn_too_long"): "Say what you think in a few sentences, and then what you do in one line.",
    ("NoLeaks", "leak"): "Think only of the place, the goal and what you were told there.",
    (
        "NoRepeatedMistake",
        "mistake_repeated",
    ): "{action} has been tried before and did not work. Try something different.",
    ("RealRefinement", "not_refined"): (
        "Something that was tried a little while ago did not work, and {action} does not put it right. Look at what you were told about "
        "it, and try something different that works."
    ),
    ("RulebookAnswers", "rulebook_fault"): "Nothing can come of {action} here. Try something different.",
}
"""Rule and code to what the Player reads."""

IN_GENERAL = "That will not do here. Think again, and try something different."
"""What it reads where nothing else can be said."""


_TURN = re.compile(r"\bturn \d+\b", re.IGNORECASE)


@dataclass(frozen=True)
class TakenBack:
    """Why the scene that is played next was taken back before, for each role as far as it can repair it."""

    dungeon_master: tuple[Violation, ...] = ()
    player: tuple[str, ...] = ()
    """In words of the scene."""

    @classmethod
    def of(cls, draft: Draft, verdict: Verdict) -> "TakenBack":
        """Violations that name a turn, each for the role whose turn that is.

        But an action that went through though it is not available is the DungeonMaster's to repair: the player may well
        have been asked for it. Those that condemn the whole draft go to no role. A DungeonMaster that hears of too
        few mistakes, or of one that is not repaired, finds some or lets things pass.
        """
        found = [v for v in verdict.violations if rejects(v) and v.keeps_prefix and v.turn < len(draft.turns)]
        masters: list[Violation] = []
        players: list[str] = []
        for violation in found:
            turn = draft.turns[violation.turn]
            if isinstance(turn, PlayerTurn) and violation.rule != ValidActions.__name__:
                players.append(privately(violation, turn))
            else:
                masters.append(violation)
        return cls(dungeon_master=tuple(masters), player=tuple(dict.fromkeys(players)))


def privately(violation: Violation, turn: PlayerTurn) -> str:
    """What the Player reads of a violation at this turn of its own.

    Of rules that are not the package's own it is their message, without numbers of turns. Whatever it is, a thought
    that repeats it passes `NoLeaks`.
    """
    known = IN_THE_SCENE.get((violation.rule, violation.code))
    text = _TURN.sub("your answer", violation.message) if known is None else known
    if known is not None:
        text = text.replace("{action}", quoted(turn.action))
    return IN_GENERAL if _gives_away(text) else text


def _gives_away(text: str) -> bool:
    thought = PlayerTurn(thought=text, action="wait")
    return any(NoLeaks()(Draft(script=_NO_SCRIPT, turns=(thought,))))


_NO_SCRIPT = Script(environment={}, goal="none", completion_conditions=(), actions=())
