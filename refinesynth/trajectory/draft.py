"""Draft: a script with turns that are not verified yet."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from enum import StrEnum
from typing import Any, NamedTuple, Self, cast

from pydantic import Field, JsonValue

from refinesynth.text.formatting import scrub
from refinesynth.text.json_reader import json_form, read_json
from refinesynth.trajectory.script import Script
from refinesynth.trajectory.turns import (
    EXECUTED,
    DraftTurn,
    DungeonMasterTurn,
    MalformedTurn,
    PlayerTurn,
    listed_turns,
    read_turn,
)
from refinesynth.trajectory.value import Value

_FLAGS = ("parameter_error", "place_error", "logic_error")


class Liberty(StrEnum):
    """Deviation from the printed form that does not change the content."""

    EXTRA_KEYS = "extra_keys"
    """A turn has keys that its role does not have, or one key in two spellings; the surplus keys are dropped."""
    SPELLING = "spelling"
    """Keys or the role differ in spelling from the paper's: `thought`, `"role": "player"`."""
    UNNUMBERED = "unnumbered"
    """A turn has no key `turn`; its position determines the number."""
    TEXT_BOOLEANS = "text_booleans"
    """A flag is `"true"`, `"no"`, 0 or 1 instead of true or false."""
    FENCED = "fenced"
    """The JSON is in a code fence, perhaps with text around it, and parses without repair."""
    MENDED_JSON = "mended_json"
    """The text is no JSON; the content was found in it or repaired."""


class Answer(NamedTuple):
    """Turns of one answer with their deviations."""

    turns: tuple[DraftTurn, ...]
    liberties: tuple[tuple[int, Liberty], ...] = ()
    """Pairs of a turn's index in `turns` and one of its deviations, in order. Deviations of the whole text belong to
    its first turn."""

    def with_text_form(self, text: str) -> "Answer":
        """Return this answer with added deviations of the whole text that it was read from."""
        liberty = {"fenced": Liberty.FENCED, "repaired": Liberty.MENDED_JSON}.get(json_form(text))
        added = () if liberty is None else ((0, liberty),)
        return self._replace(liberties=(*added, *self.liberties))


def read_answer(value: JsonValue) -> Answer:
    """Read a list of turns as `read_turns` does, and record deviations. A malformed turn has none.

    Raises:
        ValueError: `value` holds no list of turns.
    """
    items = listed_turns(value)
    turns = tuple(read_turn(item) for item in items)
    pairs = enumerate(zip(items, turns, strict=True))
    liberties = ((index, liberty) for index, (item, turn) in pairs for liberty in _deviations(item, turn))
    answer = Answer(turns, tuple(liberties))
    text = value.get("turns") if isinstance(value, dict) else None
    return answer.with_text_form(text) if isinstance(text, str) else answer


def _deviations(item: JsonValue, turn: DraftTurn) -> Iterator[Liberty]:
    if isinstance(turn, MalformedTurn) or not isinstance(item, dict):
        return
    fields = cast("Mapping[str, Any]", item)
    printed = turn.to_paper(0).keys()
    names = type(turn).model_fields.keys() - EXECUTED
    known = fields.keys() & (printed | names)
    if len(known) < len(fields) or len({key.casefold() for key in known}) < len(known):
        yield Liberty.EXTRA_KEYS
    if known - printed or fields["role"] != turn.role:
        yield Liberty.SPELLING
    if "turn" not in fields:
        yield Liberty.UNNUMBERED
    if any(not isinstance(fields[flag], bool) for flag in _FLAGS if flag in names):
        yield Liberty.TEXT_BOOLEANS


_MIN_DISTINCT_ACTIONS = 3
"""Minimum number of different actions, with the same flags in the same order, that identify a repeated prefix."""


class Draft(Value):  # noqa: PLW1641 - a script, being JSON, has no hash either
    """A script with unverified turns: the input of a `Rule`."""

    script: Script
    turns: tuple[DraftTurn, ...] = ()
    text_error: str | None = None
    """Reason why the text after these turns could not be read, if any."""
    finished: bool = True
    """True for a complete trajectory; rules require no ending of an incomplete one."""
    liberties: tuple[tuple[int, Liberty], ...] = Field(default=(), exclude=True, repr=False)
    """Pairs of a turn's index and one of its deviations, in order. Not stored: a draft from a file has none.

    Deviations do not affect equality."""

    def __eq__(self, other: object) -> bool:
        names = ("script", "turns", "text_error", "finished")
        return isinstance(other, Draft) and all(getattr(self, name) == getattr(other, name) for name in names)

    @classmethod
    def from_text(cls, script: Script, text: str, *, prefix: Iterable[PlayerTurn | DungeonMasterTurn] = ()) -> Self:
        """Read a model's answer that continues `prefix`. Never raises; an unreadable answer sets `text_error`."""
        before = tuple(prefix)
        try:
            answer = read_answer(read_json(text)).with_text_form(text)
        except ValueError as error:
            return cls(script=script, turns=before, text_error=scrub(str(error)))
        return cls.continued(script, answer, prefix=before)

    @classmethod
    def continued(
        cls, script: Script, answer: Answer, *, prefix: Iterable[PlayerTurn | DungeonMasterTurn] = ()
    ) -> Self:
        """Return `prefix` with the model's new turns.

        Turns that begin with a repetition of all of `prefix` are recognised and not doubled, also in other words: a few
        different actions are sufficient if all actions and flags are the same.
        """
        before = tuple(prefix)
        repeated = len(before) if _repeats(answer.turns[: len(before)], before) else 0
        start = len(before) - repeated
        # Deviations of the whole answer stay with its remaining turns.
        whole = (Liberty.FENCED, Liberty.MENDED_JSON)
        liberties = [(start + max(i, repeated), one) for i, one in answer.liberties if i >= repeated or one in whole]
        return cls(script=script, turns=(*before, *answer.turns[repeated:]), liberties=tuple(liberties))

    def prefix(self, turns: int) -> Self:
        """Return the first `turns` turns as an unfinished draft."""
        liberties = tuple((index, liberty) for index, liberty in self.liberties if index < turns)
        update = {"turns": self.turns[:turns], "liberties": liberties, "text_error": None, "finished": False}
        return self.model_copy(update=update)


def _repeats(turns: Sequence[DraftTurn], before: Sequence[DraftTurn]) -> bool:
    """Return whether `turns` repeat `before`, perhaps in other words."""
    if turns == before:
        return True
    actions = {turn.action for turn in before if isinstance(turn, PlayerTurn)}
    return len(actions) >= _MIN_DISTINCT_ACTIONS and list(map(_turn_key, turns)) == list(map(_turn_key, before))


def _turn_key(turn: DraftTurn) -> tuple[str, object]:
    if isinstance(turn, PlayerTurn):
        return turn.role, " ".join(turn.action.split()).casefold()
    return turn.role, turn.mistake_kind if isinstance(turn, DungeonMasterTurn) else None
