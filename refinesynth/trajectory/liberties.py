"""What a model's answer took the liberty of, and the readers let pass: where it is not the paper's printed form."""

from collections.abc import Iterator, Mapping
from enum import StrEnum
from typing import Any, NamedTuple, cast

from pydantic import JsonValue

from refinesynth.text.jsontext import json_form
from refinesynth.trajectory.turns import EXECUTED, DraftTurn, MalformedTurn, listed_turns, read_turn

_FLAGS = ("parameter_error", "place_error", "logic_error")


class Liberty(StrEnum):
    """A difference from the printed form that changes nothing in what is read."""

    EXTRA_KEYS = "extra_keys"
    """A turn has keys that its role does not have, or one key in two spellings; they are dropped."""
    SPELLING = "spelling"
    """Keys or the role are spelled otherwise than the paper prints them: `thought`, `"role": "player"`."""
    UNNUMBERED = "unnumbered"
    """A turn has no key `turn`; its place in the list says the same."""
    TEXT_BOOLEANS = "text_booleans"
    """A flag is `"true"`, `"no"`, 0 or 1, and neither true nor false."""
    FENCED = "fenced"
    """The JSON stands in a code fence, perhaps among words; what is in the fence parses as it is."""
    MENDED_JSON = "mended_json"
    """The text is no JSON; what was read was found in it, or repaired."""


class Answer(NamedTuple):
    """The turns of one answer, with its liberties."""

    turns: tuple[DraftTurn, ...]
    liberties: tuple[tuple[int, Liberty], ...] = ()
    """Index of a turn in `turns` and what was let pass there, in order. What is wrong with the whole text stands at its
    first turn."""

    def written_as(self, text: str) -> "Answer":
        """This answer with what is to be said of the text that it was read from."""
        found = {"plain": (), "fenced": ((0, Liberty.FENCED),), "repaired": ((0, Liberty.MENDED_JSON),)}[
            json_form(text)
        ]
        return self._replace(liberties=(*found, *self.liberties))


def read_answer(value: JsonValue) -> Answer:
    """Read a list of turns as `read_turns` does, and remember what was let pass. A malformed turn has no liberties.

    Raises:
        ValueError: There is no list of turns in `value`.
    """
    items = listed_turns(value)
    turns = tuple(read_turn(item) for item in items)
    found = ((at, one) for at, (item, turn) in enumerate(zip(items, turns, strict=True)) for one in _taken(item, turn))
    answer = Answer(turns, tuple(found))
    again = value.get("turns") if isinstance(value, dict) else None
    return answer.written_as(again) if isinstance(again, str) else answer


def _taken(item: JsonValue, turn: DraftTurn) -> Iterator[Liberty]:
    if isinstance(turn, MalformedTurn) or not isinstance(item, dict):
        return
    given = cast("Mapping[str, Any]", item)
    printed = turn.to_paper(0).keys()
    ours = type(turn).model_fields.keys() - EXECUTED
    known = given.keys() & (printed | ours)
    if len(known) < len(given) or len({key.casefold() for key in known}) < len(known):
        yield Liberty.EXTRA_KEYS
    if known - printed or given["role"] != turn.role:
        yield Liberty.SPELLING
    if "turn" not in given:
        yield Liberty.UNNUMBERED
    if any(not isinstance(given[flag], bool) for flag in _FLAGS if flag in ours):
        yield Liberty.TEXT_BOOLEANS
