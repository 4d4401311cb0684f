"""Whether a thought gives a plan up for a reason: by the words that it shares with the refusal, and a few English
ones.
"""

import re

from refinesynth.rules.names import Names, words_of

_STEM = 5
"""Letters by which words are compared, so that `unlock` and `unlocked` are one: cutting words off is a fair stemmer in
most languages."""

_LONG = 4
"""Shortest word that says something by itself, in letters; shorter ones do where they are part of a name."""

_SHARED = 2
"""Words that a thought has in common with the refusal that it takes up; all of them where the refusal has fewer."""

_FUNCTION_WORDS = (
    "about after again anything away before cannot can't could does doesn't done don't down else even every everything first from have "
    "here into isn't it's just like make more must need needs next nothing once only over same should some something still take that "
    "their them then there these they thing things this those through until very want what when where which while will with won't work "
    "works would your happens happened possible refused worked"
)
_COMMON = frozenset(word[:_STEM] for word in _FUNCTION_WORDS.split())

_DISPENSED = re.compile(
    r"\b(?:instead|rather|no need|not (?:be )?(?:needed|necessary|required)|unnecessary|needless|superfluous|without"
    r"|(?:do not|don['\u2019]t|need not|needn['\u2019]t|no longer|not) (?:have to|need|want)|give up|giving up|forget about|leave it|leave that"
    r"|(?:an)?other (?:way|one|plan)|something else|somewhere else)\b",
    re.IGNORECASE,
)
"""How it is said that something is not needed, or that something else will do."""


def gives_reason(thought: str, *, refused: str, refusal: str, names: Names) -> bool:
    """Whether a thought says why the `refused` action is given up, as far as words show. Time linear in the texts.

    Either it takes up the refusal: it has two words in common with it, one of which the action had not, if there is
    such a one. Or it says by an English phrase that something is not needed or that something else will do (`instead`,
    `no need`, `without`, ...), and names a word of the action. Words are compared by their first five letters; those
    count that have four, or are part of a name that actions can be given, and that are none of the commonest English
    ones.
    """
    said, asked, answered = (_meaningful(text, names) for text in (thought, refused, refusal))
    shared = said & answered
    new = answered - asked
    if answered and len(shared) >= min(_SHARED, len(answered)) and (not new or shared & new):
        return True
    return bool(said & asked) and _DISPENSED.search(thought) is not None


def is_common(word: str) -> bool:
    """Whether a word, in lower case, is one of the commonest English ones, by its first five letters."""
    return word[:_STEM] in _COMMON


def _meaningful(text: str, names: Names) -> frozenset[str]:
    """The beginnings of the words of a text that say something."""
    named = {word for name in names.known_from(text) for word in name.split()}
    words = (word for word in words_of(text) if len(word) >= _LONG or word in named)
    return frozenset(word[:_STEM] for word in words) - _COMMON
