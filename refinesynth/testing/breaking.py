"""What all corruptions have in common: a table of named ways to break what is valid, and the strategy that draws from
it.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import TypeVar

from hypothesis import strategies as st

from refinesynth.testing.drawing import pick
from refinesynth.trajectory import Draft, DraftTurn, DungeonMasterTurn, Script

T = TypeVar("T", Draft, Script)

Breaks = Mapping[str, tuple[str, Callable[[T, st.DrawFn], T]]]
"""Name of each corruption to the class name of the rule that must catch it, and what breaks something valid."""


@dataclass(frozen=True)
class Corruption:
    """A draft that was accepted before it was broken."""

    name: str
    """What was done to it."""
    rule: str
    """Class name of the rule that must find it."""
    draft: Draft
    """The broken draft; without turns where a script is what was broken."""


def rules_of(breaks: Breaks[T]) -> Mapping[str, str]:
    """Name of each corruption to the class name of the rule that must catch it."""
    return MappingProxyType({name: rule for name, (rule, _) in breaks.items()})


@st.composite
def broken(draw: st.DrawFn, valid: st.SearchStrategy[T], breaks: Breaks[T], names: tuple[str, ...]) -> Corruption:
    """Something valid, broken in one of the ways that are named, or in any if none is."""
    name = pick(draw, names or tuple(breaks))
    rule, make = breaks[name]
    made = make(draw(valid), draw)
    return Corruption(name, rule, Draft(script=made) if isinstance(made, Script) else made)


def with_turns(draft: Draft, turns: Iterable[DraftTurn]) -> Draft:
    """The draft with other turns."""
    return draft.model_copy(update={"turns": tuple(turns)})


def change_turn(draft: Draft, at: int, **fields: object) -> Draft:
    """The draft with one turn changed."""
    turns = list(draft.turns)
    turns[at] = turns[at].model_copy(update=fields)
    return with_turns(draft, turns)


def change_action(script: Script, at: int, **fields: object) -> Script:
    """The script with one action changed."""
    actions = list(script.actions)
    actions[at] = actions[at].model_copy(update=fields)
    return script.model_copy(update={"actions": tuple(actions)})


def answer(observation: str, *, flag: str | None = None, thought: str = "") -> DungeonMasterTurn:
    """An answer that calls the action before it a mistake of the kind `flag`, or none."""
    return DungeonMasterTurn(
        thought=thought,
        observation=observation,
        parameter_error=flag == "parameter_error",
        place_error=flag == "place_error",
        logic_error=flag == "logic_error",
    )
