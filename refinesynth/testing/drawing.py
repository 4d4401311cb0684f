"""Draws from cached strategies: making one takes longer than drawing from it."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from types import MappingProxyType
from typing import TypeVar

from hypothesis import strategies as st

from refinesynth.trajectory import Draft, DraftTurn, DungeonMasterTurn, Script

T = TypeVar("T")

_WHETHER = st.booleans()


@lru_cache(maxsize=4096)
def _between(least: int, most: int) -> st.SearchStrategy[int]:
    return st.integers(least, most)


@lru_cache(maxsize=4096)
def _some_below(number: int, least: int, most: int, *, unique: bool) -> st.SearchStrategy[list[int]]:
    return st.lists(_between(0, number - 1), min_size=least, max_size=most, unique=unique)


def whether(draw: st.DrawFn) -> bool:
    """True or false; shrinks to false."""
    return draw(_WHETHER)


def whole(draw: st.DrawFn, least: int, most: int) -> int:
    """A whole number, both ends included; shrinks towards 0."""
    return draw(_between(least, most))


def pick(draw: st.DrawFn, values: Sequence[T]) -> T:
    """One of the values; shrinks to the first."""
    return values[draw(_between(0, len(values) - 1))]


def pick_some(draw: st.DrawFn, values: Sequence[T], *, least: int = 0, most: int, unique: bool = True) -> list[T]:
    """`least` to `most` of the values in any order."""
    return [values[at] for at in draw(_some_below(len(values), least, most, unique=unique))]


Broken = TypeVar("Broken", Draft, Script)

Breaks = Mapping[str, tuple[str, Callable[[Broken, st.DrawFn], Broken]]]
"""Name of each corruption to the rule that must catch it, and the function that breaks a valid value."""


@dataclass(frozen=True)
class Corruption:
    """A draft that was accepted before it was broken."""

    name: str
    rule: str
    draft: Draft
    """The broken draft, without turns if its script was broken."""


def rules_of(breaks: Breaks[Broken]) -> Mapping[str, str]:
    return MappingProxyType({name: rule for name, (rule, _) in breaks.items()})


@st.composite
def broken(
    draw: st.DrawFn, valid: st.SearchStrategy[Broken], breaks: Breaks[Broken], names: tuple[str, ...]
) -> Corruption:
    """A valid value, broken in one of the named ways, or in any."""
    name = pick(draw, names or tuple(breaks))
    rule, make = breaks[name]
    made = make(draw(valid), draw)
    return Corruption(name, rule, Draft(script=made) if isinstance(made, Script) else made)


def with_turns(draft: Draft, turns: Iterable[DraftTurn]) -> Draft:
    return draft.model_copy(update={"turns": tuple(turns)})


def change_turn(draft: Draft, at: int, **fields: object) -> Draft:
    turns = list(draft.turns)
    turns[at] = turns[at].model_copy(update=fields)
    return with_turns(draft, turns)


def change_action(script: Script, at: int, **fields: object) -> Script:
    actions = list(script.actions)
    actions[at] = actions[at].model_copy(update=fields)
    return script.model_copy(update={"actions": tuple(actions)})


def answer(observation: str, *, flag: str | None = None, thought: str = "") -> DungeonMasterTurn:
    """An answer that flags the action before it with `flag`."""
    return DungeonMasterTurn(
        thought=thought,
        observation=observation,
        parameter_error=flag == "parameter_error",
        place_error=flag == "place_error",
        logic_error=flag == "logic_error",
    )
