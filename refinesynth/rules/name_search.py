"""Names of things found in a text: whole words, without regard to case, the longest name first."""

import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field

from refinesynth.trajectory.weak_cache import weakly_cached
from refinesynth.world import World

MAX_TEXT = 20_000
"""Characters of a text that are read; rules refuse longer turns long before."""

MAX_WORDS = 16
"""Longest name that is looked for, in words."""

_REMEMBERED = 1_024
"""Texts of which each set of names remembers what occurs in them."""

_SHORT = 500
"""Longest text that is remembered, in characters."""

_QUALITIES = (
    "the and all any now here there yes no not none nothing something everything one two three four five on off in out open "
    "opened closed shut locked unlocked up down left right front back north south east west forward low medium high hot warm "
    "cold clean dirty wet dry full empty true false start stop done ready new old red green blue yellow black white small large "
    "you your yourself player self hand hands inventory it them"
)
QUALITIES = frozenset(_QUALITIES.split())
"""Words that values of parameters often are and that name no particular thing: `set {lamp} to {state}` with on and off.
They stand in any sentence, so they are not looked for."""

_WORD = re.compile(r"\w+(?:[-./'\u2019@:+=&]+\w+)*")
_POSSESSIVE = re.compile(r"['\u2019]s?$")


def words_of(text: str) -> list[str]:
    """The words of a text in lower case. `notes.txt`, `box-7` and `home/ann` are one word each; a genitive loses its
    ending.
    """
    return [_POSSESSIVE.sub("", word) for word in _WORD.findall(text[:MAX_TEXT].casefold())]


@dataclass(slots=True)
class _Node:
    after: dict[str, "_Node"] = field(default_factory=dict[str, "_Node"])
    name: str | None = None


class Names:
    """A set of names, ready to be found in texts; reading a text takes time in proportion to its length.

    Left out are names of more than `MAX_WORDS` words, of one word that is a number or has less than three Latin
    letters, and `QUALITIES`: they would be found where they are not meant. Words are what blanks and punctuation part;
    where a language writes none between its words, a name is found only where it stands alone.
    """

    def __init__(self, names: Iterable[str]) -> None:
        self._root = _Node()
        self._known: dict[str, frozenset[str]] = {}
        for name in sorted(names):
            words = words_of(name)
            if not words or len(words) > MAX_WORDS or (len(words) == 1 and _says_nothing(words[0])):
                continue
            node = self._root
            for word in words:
                node = node.after.setdefault(word, _Node())
            node.name = node.name or name

    def mentioned(self, text: str) -> Mapping[str, str]:
        """The names that occur in a text, as their words, to how they are written; in the order of the text.

        Of names that begin at one word the longest counts, and its words name nothing else: `blue mug` mentions no
        `mug`.
        """
        found: dict[str, str] = {}
        words = words_of(text)
        at = 0
        while at < len(words):
            if words[at] not in self._root.after:
                at += 1
                continue
            name, length = self._longest(words, at)
            if name is not None:
                found.setdefault(" ".join(words[at : at + length]), name)
            at += length
        return found

    def known_from(self, text: str) -> Collection[str]:
        """The words of the names that occur in a text; remembered, as the same things are seen again and again."""
        known = self._known.get(text)
        if known is None:
            known = frozenset(self.mentioned(text))
            if len(text) <= _SHORT:
                if len(self._known) >= _REMEMBERED:
                    self._known.clear()
                self._known[text] = known
        return known

    def _longest(self, words: list[str], at: int) -> tuple[str | None, int]:
        """The longest name that begins at a word and how many words it has; none has one."""
        node, name, length = self._root, None, 1
        for count, word in enumerate(words[at : at + MAX_WORDS], start=1):
            following = node.after.get(word)
            if following is None:
                break
            node = following
            if node.name is not None:
                name, length = node.name, count
        return name, length


@weakly_cached
def names_of(world: World) -> Names:
    """Every name that an action of a world can be given."""
    return Names(world.names)


def _says_nothing(word: str) -> bool:
    return (len(word) < 3 and word.isascii()) or word.isnumeric() or word in QUALITIES  # noqa: PLR2004 - a, is, of
