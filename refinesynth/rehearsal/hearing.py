"""What a player of an executed world makes of the answers, by any DungeonMaster: carried out, a mistake, or bad luck.

The world keeps its laws, so what is a mistake is known without a word. Words are only needed to tell what was carried
out from what failed for a moment, and to notice that this was reported wrong or not understood.
"""

import re
from collections.abc import Iterable, Iterator

from refinesynth.rehearsal.memory import Exchange, Past, Position
from refinesynth.rehearsal.wording import sounds_refused

_PASSING = re.compile(
    r"\b(?:this (?:time|once|moment)|(?:for|at) (?:a|one|the) moment|(?:for|right) now|just then|moment(?:s|arily)?|temporar(?:y|ily)"
    r"|tr(?:y|ies|ied|ying) (?:it |that |this )?(?:once )?again|once more|time[sd]?[ -]?out|sticks?|stuck|jam(?:s|med)?|slip(?:s|ped)?"
    r"|glitch\w*|hiccup\w*|busy|interrupt\w*)\b",
    re.IGNORECASE,
)
"""How it is said that something failed and may work the next time."""

_FARTHEST = 4
"""How many positions back one looks for where one may really be."""


def heard(start: Position, exchanges: Iterable[Exchange]) -> Past:
    """Everything up to now, in the world that begins at `start`; only the words of the exchanges are read."""
    past = Past.of(start, ())
    for action, answer, *_ in exchanges:
        here = _standing(past, action, answer)
        if here is not past.position:
            past = Past(here, past.exchanges, past.wrong, past.observed)
        if here.ruling(action).kind is not None:
            past = past.and_then(Exchange(action, answer, refused=True))
        else:
            failed = here.ruling(action).text not in answer and _sounds_failed(answer)
            past = past.and_then(Exchange(action, answer, refused=False, failed=failed))
    return past


def _sounds_failed(answer: str) -> bool:
    return sounds_refused(answer) or _PASSING.search(answer) is not None


def _standing(past: Past, action: str, answer: str) -> Position:
    """Where the player must be, if the answer names a reason that holds elsewhere and not where one thought to be."""
    if past.position.ruling(action).kind is not None:
        return past.position
    for other in _elsewhere(past):
        ruling = other.ruling(action)
        if ruling.kind is not None and ruling.action is not None and ruling.text in answer:
            return other
    return past.position


def _elsewhere(past: Past) -> Iterator[Position]:
    """Where one is if what seemed to fail was carried out, or what seemed to be carried out failed."""
    if past.failed:
        yield past.position.after(past.exchanges[-1].action)
    at = past.position
    for _ in range(_FARTHEST):
        if at.before is None:
            return
        at = at.before[0]
        yield at
