"""Search for names in a text: whole words, without regard to case, longest name first."""

import re
from collections.abc import Collection, Iterable, Mapping
from itertools import chain

from refinesynth.trajectory import Script
from refinesynth.trajectory.value import weakly_cached
from refinesynth.world import World

MAX_TEXT = 20_000
"""Characters of a text that are read; rules refuse longer turns."""

MAX_WORDS = 16
"""Longest name in the search, in words."""

_MAX_CACHED = 1_024
"""Number of texts with cached results per set of names."""

_MAX_CACHED_CHARACTERS = 500
"""Longest text with a cached result, in characters."""

_GENERIC_VALUES = (
    "the and all any now here there yes no not none nothing something everything one two three four five on off in out open "
    "opened closed shut locked unlocked up down left right front back north south east west forward low medium high hot warm "
    "cold clean dirty wet dry full empty true false start stop done ready new old red green blue yellow black white small large "
    "you your yourself player self hand hands inventory it them"
)
GENERIC_VALUES = frozenset(_GENERIC_VALUES.split())
"""Parameter values that name no particular thing, such as on and off in `set {lamp} to {state}`. They occur in any
sentence, so the search ignores them."""

_WORD = re.compile(r"\w+(?:[-./'\u2019@:+=&]+\w+)*")
_POSSESSIVE = re.compile(r"['\u2019]s?$")


def words_of(text: str) -> list[str]:
    """Return the words of a text in lower case. `notes.txt`, `box-7` and `home/ann` are one word each; a genitive loses
    its ending.
    """
    return [_POSSESSIVE.sub("", word) for word in _WORD.findall(text[:MAX_TEXT].casefold())]


class Names:
    """A set of names, prepared for a search in linear time.

    Omitted are names of more than `MAX_WORDS` words, of one word that is a number or has less than three Latin letters,
    and `GENERIC_VALUES`, because they occur with other meanings. Words are separated by blanks and punctuation; in a
    language without them, only names that stand alone are found.
    """

    def __init__(self, names: Iterable[str]) -> None:
        self._names: dict[tuple[str, ...], str] = {}
        self._lengths: dict[str, int] = {}
        """First word of names to the number of words of the longest one."""
        self._cache: dict[str, frozenset[str]] = {}
        for name in sorted(names):
            words = words_of(name)
            if words and len(words) <= MAX_WORDS and (len(words) > 1 or not _is_generic(words[0])):
                self._names.setdefault(tuple(words), name)
                self._lengths[words[0]] = max(len(words), self._lengths.get(words[0], 0))

    def mentioned(self, text: str) -> Mapping[str, str]:
        """Return the names in a text, in order: words to original spelling.

        Of the names that begin at a word, the longest is used, and its words count for no other name: `blue mug` does
        not mention `mug`.
        """
        mentioned: dict[str, str] = {}
        words, start = words_of(text), 0
        while start < len(words):
            spans = (tuple(words[start : start + size]) for size in range(self._lengths.get(words[start], 0), 0, -1))
            span = next((span for span in spans if span in self._names), ())
            if span:
                mentioned.setdefault(" ".join(span), self._names[span])
            start += len(span) or 1
        return mentioned

    def mentions_in(self, text: str) -> Collection[str]:
        """Return the names in a text as words; cached, because the same texts recur."""
        names = self._cache.get(text)
        if names is None:
            names = frozenset(self.mentioned(text))
            if len(text) <= _MAX_CACHED_CHARACTERS:
                if len(self._cache) >= _MAX_CACHED:
                    self._cache.clear()
                self._cache[text] = names
        return names


_PREFIX = 4
"""Length of the common prefix that identifies forms of a word: `close` and `closed`."""
_COMMON_WORDS = "with from that this have been into onto their there where which when least than more"
_IGNORED = GENERIC_VALUES | frozenset(_COMMON_WORDS.split())


def unmentioned_conditions(script: Script) -> tuple[str, ...]:
    """Return the completion conditions of an imagined world that share no word with any action (its name, description
    or values) and can hardly be met. Empty if an action accepts any text. Only long words count, and the same beginning
    makes two words equal; a condition without long words is never included.

    Of 108 conditions of valid scripts, 2 are reported; of 456 from other scripts, 335.
    """
    if any(not action.choices(name) for action in script.actions for name in action.placeholders):
        return ()
    texts = ((action.name, action.description, *chain(*action.parameters.values())) for action in script.actions)
    known = set[str]().union(*map(_stems, chain(*texts)))
    return tuple(text for text in script.completion_conditions if (stems := _stems(text)) and stems.isdisjoint(known))


def _stems(text: str) -> set[str]:
    return {
        word[:_PREFIX] for word in words_of(text) if len(word) >= _PREFIX and word.isascii() and word not in _IGNORED
    }


@weakly_cached
def names_of(world: World) -> Names:
    """Return every name in the values of a world's actions."""
    return Names(world.names)


def _is_generic(word: str) -> bool:
    return (len(word) < 3 and word.isascii()) or word.isnumeric() or word in GENERIC_VALUES  # noqa: PLR2004 - a, is, of
