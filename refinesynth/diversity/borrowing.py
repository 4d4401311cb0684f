"""What a script has in common with the examples that its writer was shown, and with as many others that it was not.

Scripts of one kind always have something in common: `look around` is in most of them. So the share alone says little.
Examples are drawn by chance, so what a script has more of those that were shown than of the others was copied.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Self

from pydantic import BaseModel

from refinesynth.diversity.names import ACTIONS_COMPARED
from refinesynth.diversity.structure import Structure
from refinesynth.trajectory import Script


@dataclass(frozen=True, slots=True)
class Marks:
    """What a script is known by."""

    names: frozenset[str]
    """Of its actions, independent of the names of placeholders, case and white space."""
    structure: frozenset[str]
    """Features of world and actions, see `Structure`."""

    @classmethod
    def of(cls, script: Script) -> Self:
        """Takes some milliseconds at most, for any script."""
        structure = Structure.of(script)
        blank = (action.fill(dict.fromkeys(action.placeholders, "{}")) for action in script.actions[:ACTIONS_COMPARED])
        return cls(
            names=frozenset(" ".join(name.casefold().split()) for name in blank),
            structure=frozenset((*structure.world, *structure.actions)),
        )


class Borrowed(BaseModel, frozen=True, extra="forbid"):
    """Counts of a script's marks, or sums of them."""

    names: int = 0
    """Names of actions, of which..."""
    names_shown: int = 0
    """... so many are those of actions in the examples that were shown."""
    names_other: int = 0
    """... so many are those of actions in as many other examples."""
    structure: int = 0
    """Features, likewise."""
    structure_shown: int = 0
    structure_other: int = 0

    @classmethod
    def of(cls, script: Marks, *, shown: Iterable[Marks], others: Iterable[Marks]) -> Self:
        """Of one script."""
        seen, unseen = tuple(shown), tuple(others)
        return cls(
            names=len(script.names),
            names_shown=_among(script.names, (one.names for one in seen)),
            names_other=_among(script.names, (one.names for one in unseen)),
            structure=len(script.structure),
            structure_shown=_among(script.structure, (one.structure for one in seen)),
            structure_other=_among(script.structure, (one.structure for one in unseen)),
        )

    def __add__(self, other: Self) -> Self:
        mine, theirs = self.model_dump(), other.model_dump()
        return type(self)(**{name: mine[name] + theirs[name] for name in mine})


def _among(marks: frozenset[str], examples: Iterable[frozenset[str]]) -> int:
    """How many of the marks one of the examples has, or several."""
    return len(marks & frozenset[str]().union(*examples))
