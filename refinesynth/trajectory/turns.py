"""Turns of Player and DungeonMaster, their readers for an LLM's text, and the positions of mistakes among them."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from enum import StrEnum
from itertools import pairwise
from math import floor
from typing import Annotated, Any, Literal, Self

import orjson
from pydantic import Field, JsonValue, ValidationError

from refinesynth.text.formatting import scrub
from refinesynth.text.json_reader import read_json
from refinesynth.trajectory.value import Value, aliases, is_empty

MAX_RAW_CHARACTERS = 20_000
"""Length of the excerpt of an unreadable turn or answer, in characters."""

MAX_OBSERVATION = 4_000
"""Longest observation of an executed world, in characters: half of a turn's limit in the rule `SizeLimits`."""


EXECUTED = frozenset({"progress", "transient", "plain", "by", "parallel"})
"""Fields that only the program sets; a model's values are ignored."""


class MistakeKind(StrEnum):
    """Kind of a player's mistake, as the DungeonMaster flags it (paper, section 3.2)."""

    PARAMETER = "parameter"
    """The action's form or a parameter is not available."""
    PLACE = "place"
    """The action is possible, but not at the player's place."""
    LOGIC = "logic"
    """The action makes no sense in the world's present state."""


class PlayerTurn(Value):
    """The agent's thought and action."""

    role: Literal["Player"] = "Player"
    thought: str = Field(validation_alias=aliases("thought", "Thought"))
    action: str = Field(validation_alias=aliases("action", "Action"))
    by: Literal["repairer"] | None = Field(default=None, exclude_if=is_empty)
    """`repairer` if that role acted in the Player's place after a mistake; `Provenance.models` names its model."""
    parallel: bool = Field(default=False, exclude_if=is_empty)
    """True for a further call in the message of the previous player turn, with the same thought: it was made before
    that turn's answer was known."""

    def to_paper(self, number: int) -> dict[str, JsonValue]:
        """Return this turn in the paper's keys."""
        return {"turn": number, "role": "Player", "Thought": self.thought, "Action": self.action}


class DungeonMasterTurn(Value):
    """The environment's answer to the player's last action, with error flags."""

    role: Literal["DM"] = "DM"
    # The order of writing: the facts, the judgement, the words for it.
    thought: str = Field(validation_alias=aliases("thought", "Thought"))
    parameter_error: bool
    place_error: bool
    logic_error: bool
    observation: str = Field(validation_alias=aliases("observation", "Observation"))
    progress: float | None = Field(default=None, ge=0, le=1, exclude_if=is_empty)
    """Grounded play: share of the goal's conditions that hold after this turn, 0 to 1; None if not computed."""
    transient: bool = Field(default=False, exclude_if=is_empty)
    """Grounded play: a right action failed by chance and changed nothing. It is no mistake, and a retry is right."""
    plain: bool = Field(default=False, exclude_if=is_empty)
    """Grounded play: the DungeonMaster gave no acceptable words, and these are the rulebook's."""

    @property
    def flagged(self) -> bool:
        """True if an error flag is set: the previous player turn was a mistake."""
        return self.parameter_error or self.place_error or self.logic_error

    @property
    def mistake_kind(self) -> MistakeKind | None:
        """The first flag that is set, in the order parameter, place, logic."""
        if self.parameter_error:
            return MistakeKind.PARAMETER
        if self.place_error:
            return MistakeKind.PLACE
        return MistakeKind.LOGIC if self.logic_error else None

    @classmethod
    def of_kind(cls, kind: MistakeKind | None, *, thought: str, observation: str, **more: Any) -> Self:
        """Return an answer whose flag is that of the mistake, if any; `more` are further fields."""
        flags = {f"{flag_kind.value}_error": flag_kind is kind for flag_kind in MistakeKind}
        return cls(thought=thought, observation=observation, **flags, **more)

    def to_paper(self, number: int) -> dict[str, JsonValue]:
        """Return this turn in the paper's keys."""
        return {
            "turn": number,
            "role": "DM",
            "Thought": self.thought,
            "Observation": self.observation,
            "parameter_error": self.parameter_error,
            "place_error": self.place_error,
            "logic_error": self.logic_error,
        }


class MalformedTurn(Value):
    """A turn without the required keys or types of its role; kept for the rules' messages."""

    role: Literal["malformed"] = "malformed"
    raw: str = Field(max_length=MAX_RAW_CHARACTERS)
    """The original turn as JSON text, cut at `MAX_RAW_CHARACTERS`."""
    problem: str
    """Description of the error, addressed to the LLM that must repair it."""


Turn = Annotated[PlayerTurn | DungeonMasterTurn, Field(discriminator="role")]
"""A well-formed turn."""

DraftTurn = Annotated[PlayerTurn | DungeonMasterTurn | MalformedTurn, Field(discriminator="role")]
"""A turn of a draft, possibly malformed."""


_ROLES: Mapping[str, type[PlayerTurn | DungeonMasterTurn]] = {
    "player": PlayerTurn,
    **dict.fromkeys(("dm", "dungeonmaster", "dungeon master"), DungeonMasterTurn),
}


def read_turn(item: JsonValue) -> PlayerTurn | DungeonMasterTurn | MalformedTurn:
    """Read one turn in either spelling. Unknown keys are dropped; an unreadable turn becomes a `MalformedTurn`.

    Never raises.
    """
    fields = {key: value for key, value in item.items() if key not in EXECUTED} if isinstance(item, dict) else {}
    role = str(fields.pop("role", "")).strip().casefold()
    try:
        if role in _ROLES:
            return _ROLES[role].model_validate(fields, extra="ignore")
        problem = 'a turn is an object whose key "role" is "Player" or "DM"'
    except ValidationError as error:
        problem = explain(error)
    try:
        raw = orjson.dumps(item).decode()
    except (TypeError, ValueError, RecursionError):
        raw = scrub(repr(type(item)))
    return MalformedTurn(raw=raw[:MAX_RAW_CHARACTERS], problem=problem)


def read_turns(value: JsonValue) -> tuple[PlayerTurn | DungeonMasterTurn | MalformedTurn, ...]:
    """Read a list of turns: bare, under a key such as `turns` or `Trajectory`, or with text around it.

    Raises:
        ValueError: `value` holds no list of turns.
    """
    return tuple(map(read_turn, listed_turns(value)))


def listed_turns(value: JsonValue) -> list[JsonValue]:
    """Return the unread items of the list that `read_turns` reads.

    Raises:
        ValueError: `value` holds no list of turns.
    """
    turns = _turns_in(value) if isinstance(value, dict) else value
    if isinstance(value, dict) and turns is None:
        raise ValueError(f"expected one list of turns, got an object with the keys {sorted(value)[:8]}")
    if not isinstance(turns, list):
        raise ValueError(f"expected a list of turns, got {type(value).__name__}")
    return turns if _looks_like_turns(turns) else _nested_turns(turns)


def _turns_in(value: Mapping[str, JsonValue]) -> JsonValue:
    """Return the list of turns in an object, under `turns` or as its only list; else None."""
    turns = value.get("turns")
    if isinstance(turns, str):  # written down as JSON once more, as happens to a tool's arguments
        turns = read_json(turns)
    if isinstance(turns, list):
        return turns
    lists = [item for item in value.values() if isinstance(item, list)]
    return lists[0] if len(lists) == 1 else None


def _nested_turns(value: list[JsonValue]) -> list[JsonValue]:
    """Return the only list of turns inside a list, because text around an answer may hold other brackets; else the list
    itself.
    """
    candidates = [_turns_in(item) if isinstance(item, dict) else item for item in value]
    lists = [item for item in candidates if isinstance(item, list) and _looks_like_turns(item)]
    return lists[0] if len(lists) == 1 else value


def _looks_like_turns(value: list[JsonValue]) -> bool:
    return not value or any(isinstance(item, dict) and "role" in item for item in value)


def explain(error: Exception, *, most: int = 5) -> str:
    """Return the problems of a validation error in one line, as feedback to the LLM (no values, no links); of another
    error its text.
    """
    if not isinstance(error, ValidationError):
        return str(error)
    problems = error.errors(include_url=False, include_input=False, include_context=False)
    lines = [f"{'.'.join(str(part) for part in item['loc']) or 'answer'}: {item['msg']}" for item in problems[:most]]
    if len(problems) > most:
        lines.append(f"and {len(problems) - most} more")
    return "; ".join(lines)


def answered_turns(
    turns: Sequence[PlayerTurn | DungeonMasterTurn | MalformedTurn],
) -> Iterator[tuple[int, PlayerTurn, DungeonMasterTurn]]:
    """Yield each answered player turn with its index and the answer."""
    for index, (turn, answer) in enumerate(pairwise(turns)):
        if isinstance(turn, PlayerTurn) and isinstance(answer, DungeonMasterTurn):
            yield index, turn, answer


def known_exchanges(
    turns: Sequence[PlayerTurn | DungeonMasterTurn | MalformedTurn],
) -> list[tuple[PlayerTurn, DungeonMasterTurn]]:
    """Return the player's turns with their answers, without right calls after a mistake in their own message."""
    exchanges: list[tuple[PlayerTurn, DungeonMasterTurn]] = []
    for _, turn, answer in answered_turns(turns):
        if not turn.parallel or answer.flagged or not exchanges or not exchanges[-1][1].flagged:
            exchanges.append((turn, answer))
    return exchanges


def flagged_turns(turns: Sequence[PlayerTurn | DungeonMasterTurn | MalformedTurn]) -> tuple[int, ...]:
    """Return the indices of player turns with a flagged answer."""
    return tuple(index for index, _, answer in answered_turns(turns) if answer.flagged)


TENTHS = 10

_MIN_MISTAKES = 200
"""Minimum number of mistakes for a lopsided histogram; with fewer, chance alone may make it so."""

_MAX_RATIO = 2.0
"""Largest accepted ratio between the fullest and the emptiest of the middle tenths."""


def mistakes_by_tenth(turns: Sequence[PlayerTurn | DungeonMasterTurn | MalformedTurn]) -> tuple[float, ...]:
    """Return the number of mistakes in each tenth of a play, whose length is counted in answered player turns.

    A turn covers its share of the play: of eight turns, the first covers the first tenth and a quarter of the second,
    and a mistake there counts as 0.8 and 0.2. The sum is the number of mistakes.
    """
    answers = [answer for _, _, answer in answered_turns(turns)]
    counts = [0.0] * TENTHS
    for index, answer in enumerate(answers):
        if answer.mistake_kind is not None:
            begin, end = index * TENTHS / len(answers), (index + 1) * TENTHS / len(answers)
            for tenth in range(floor(begin), TENTHS):
                counts[tenth] += max(0.0, min(end, tenth + 1) - max(begin, tenth)) / (end - begin)
    return tuple(counts)


def summed(histograms: Iterable[Sequence[float]]) -> tuple[float, ...]:
    """Return the sum of several histograms."""
    return tuple(map(sum, zip(*histograms, strict=True))) or (0.0,) * TENTHS


def is_lopsided(tenths: Sequence[float]) -> bool:
    """Return whether the middle eight tenths of enough mistakes differ by more than a factor of two."""
    middle = tenths[1:-1]
    return sum(tenths) >= _MIN_MISTAKES and max(middle) > _MAX_RATIO * min(middle)
