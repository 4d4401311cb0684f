"""Visible names in a state, as conditions and texts ask for them."""

from collections.abc import Callable
from dataclasses import dataclass, field

from pydantic import JsonValue


@dataclass(frozen=True, slots=True)
class VisibleNames:
    """Names that the player can see."""

    names: tuple[str, ...]
    """Each once, in the order of the sights; keys of an object in the alphabet's order."""
    problem: str | None = None
    """What of the sights has no answer here, or was left out because there is too much of it; in words to their
    author."""
    known: frozenset[str] = field(init=False, repr=False)
    """The same names, to ask for one."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "known", frozenset(self.names))


Visible = Callable[[JsonValue], VisibleNames]
"""What is visible in a state."""
