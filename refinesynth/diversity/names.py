"""The names of a script's things, and its texts with these names taken out: what is left when everything is called
otherwise.
"""

from collections.abc import Iterator, Sequence

from refinesynth.diversity import grams
from refinesynth.trajectory import ActionSpec, Script

NAME = "<name>"
"""Stands for a name in a text; no word is spelled like this."""

ACTIONS_COMPARED = 100
"""Actions that are looked at."""

_MAX_VALUES = 500
"""Values of one parameter that are names."""

_MAX_NAME = 200
"""Longest name, in characters."""

_MAX_TEXT = 8_000
"""Characters of one text that are looked at."""


def words(text: str) -> list[str]:
    """The words of a text in lower case; of a long one, those at its beginning."""
    return grams.words(text[:_MAX_TEXT].casefold())


class ScriptNames:
    """What the actions of a script can be given. Where a name is in a text, the longest one counts."""

    def __init__(self, script: Script) -> None:
        self._by_first: dict[str, list[tuple[str, ...]]] = {}
        self.slots: dict[str, set[str]] = {}
        """Name, as `known` gives it, to the places of actions that take it: `1/2` is the second of two."""
        for action in script.actions[:ACTIONS_COMPARED]:
            self._learn(action)
        for spelled in self._by_first.values():
            spelled.sort(key=lambda name: (-len(name), name))

    def _learn(self, action: ActionSpec) -> None:
        placeholders = action.placeholders
        for parameter, values in action.parameters.items():
            at = placeholders.index(parameter) if parameter in placeholders else -1
            for value in values[:_MAX_VALUES]:
                spelled = tuple(words(value[:_MAX_NAME]))
                if not spelled:
                    continue
                name = " ".join(spelled)
                if name not in self.slots:
                    self.slots[name] = set()
                    self._by_first.setdefault(spelled[0], []).append(spelled)
                self.slots[name].add(f"{at}/{len(placeholders)}")

    def known(self, text: str) -> str | None:
        """The name that a text is, in any case and punctuation; None if it is none."""
        name = " ".join(words(text[:_MAX_NAME]))
        return name if name in self.slots else None

    def masked(self, text: str) -> list[str]:
        """The words of a text, with `NAME` for each name in it."""
        return [NAME if isinstance(part, tuple) else part for part in self._parts(words(text))]

    def mentioned(self, text: str) -> list[str]:
        """The names in a text, in their order."""
        return [" ".join(part) for part in self._parts(words(text)) if isinstance(part, tuple)]

    def _parts(self, text: Sequence[str]) -> Iterator[str | tuple[str, ...]]:
        at = 0
        while at < len(text):
            for name in self._by_first.get(text[at], ()):
                if tuple(text[at : at + len(name)]) == name:
                    yield name
                    at += len(name)
                    break
            else:
                yield text[at]
                at += 1
