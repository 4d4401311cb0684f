"""What a family's worlds have beside their laws when they are executed for the player's eyes too: sights, and words for what is seen.

A family says in a function what the player sees, for worlds that are imagined. A form says the same as data on the executor's
terms. What the language cannot ask for is kept in the state: who is in a room, which files a directory lists.
"""

from collections.abc import Callable, Iterable, Mapping
from copy import deepcopy
from dataclasses import dataclass, replace
from typing import Any

from refinesynth.rehearsal.families.family import Laws, Plot

Furnish = Callable[[Plot, dict[str, Any]], None]
"""Puts into a copy of a plot's state what only an executed world has, and mends what would leave an action without any use."""


@dataclass(frozen=True)
class Form:
    """How the worlds of one family are executed."""

    laws: Laws
    furnish: Furnish
    losable: Callable[[Plot], bool] = lambda _: False
    """Whether an available action can put the goal out of reach for good, as far as that can be told without a search."""

    told: Callable[[Plot, Mapping[str, Any]], str] = lambda plot, _: plot.introduction
    """The introduction of a plot whose state has become this one."""
    away: Callable[[Plot], bool] = lambda _: True
    """Whether something that the goal needs is out of sight at the beginning."""

    def grounded(self, plot: Plot, *, hidden: bool) -> Plot:
        """A plot as it is executed; `hidden`: the player is not told where things are."""
        state = deepcopy(plot.state)
        self.furnish(plot, state)
        introduction = self.told(plot, state)
        if hidden:
            introduction = (
                f"{introduction.partition(f' {self.laws.whereabouts} ')[0]} Nobody has told you where things are."
            )
        return replace(plot, state=state, introduction=introduction)


def noted(names: Iterable[str]) -> dict[str, Any]:
    """Names as the keys of an object: a set, in which no order tells two states apart that are the same."""
    return {name: {} for name in names}
