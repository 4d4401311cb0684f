"""Turns: what the player did and the DungeonMaster answered, and how they are read from what an LLM wrote."""

from collections.abc import Mapping, Sequence
from enum import StrEnum
from itertools import pairwise
from typing import Annotated, Any, Literal, cast

import orjson
from pydantic import Field, JsonValue, ValidationError

from refinesynth.text.json_reader import read_json, scrub
from refinesynth.trajectory.value import Value, absent, spelled

MAX_RAW_CHARACTERS = 20_000
"""Characters of an unreadable turn or answer that are kept for failure analysis."""


EXECUTED = frozenset({"progress", "transient", "plain", "by", "parallel"})
"""Fields of a turn that only the program has a say in; a model's are not read."""


class MistakeKind(StrEnum):
    """Kind of a player's mistake, as the DungeonMaster flags it (paper, section 3.2)."""

    PARAMETER = "parameter"
    """The action's form or a parameter is not available."""
    PLACE = "place"
    """The action is possible, but not from where the player is."""
    LOGIC = "logic"
    """The action makes no sense in the world's present state."""


class PlayerTurn(Value):
    """The agent: what it thought, and the one action that it took."""

    role: Literal["Player"] = "Player"
    thought: str = Field(validation_alias=spelled("thought", "Thought"))
    action: str = Field(validation_alias=spelled("action", "Action"))
    by: Literal["repairer"] | None = Field(default=None, exclude_if=absent)
    """`repairer` where that role acted in the Player's place, after a mistake; `Provenance.models` names its model."""
    parallel: bool = Field(default=False, exclude_if=absent)
    """True for a further call in the message of the player's turn before, which has the thought of all: it was made
    before that turn's answer was known."""

    def to_paper(self, number: int) -> dict[str, JsonValue]:
        """This turn in the paper's own keys."""
        return {"turn": number, "role": "Player", "Thought": self.thought, "Action": self.action}


class DungeonMasterTurn(Value):
    """The environment: what came of the player's last action, and whether that action was a mistake."""

    role: Literal["DM"] = "DM"
    # In the order in which it comes about and is written: what is the case, the judgement, the words for it.
    thought: str = Field(validation_alias=spelled("thought", "Thought"))
    parameter_error: bool
    place_error: bool
    logic_error: bool
    observation: str = Field(validation_alias=spelled("observation", "Observation"))
    progress: float | None = Field(default=None, ge=0, le=1, exclude_if=absent)
    """Grounded play: the share of the goal's conditions that hold after this turn, 0 to 1; None where it was not
    computed."""
    transient: bool = Field(default=False, exclude_if=absent)
    """Grounded play: a right action failed for a moment, by chance, and changed nothing. No mistake: trying again is
    right."""
    plain: bool = Field(default=False, exclude_if=absent)
    """Grounded play: a DungeonMaster was asked for words, none of them would do, and these are the rulebook's own."""

    @property
    def flagged(self) -> bool:
        """Return whether any error flag is set: the player's turn before this one was a mistake."""
        return self.parameter_error or self.place_error or self.logic_error

    @property
    def mistake_kind(self) -> MistakeKind | None:
        """The first flag that is set, in the order parameter, place, logic."""
        if self.parameter_error:
            return MistakeKind.PARAMETER
        if self.place_error:
            return MistakeKind.PLACE
        return MistakeKind.LOGIC if self.logic_error else None

    def to_paper(self, number: int) -> dict[str, JsonValue]:
        """This turn in the paper's own keys."""
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
    """A turn whose keys or types are not those required of its role; kept so that rules can say what is wrong."""

    role: Literal["malformed"] = "malformed"
    raw: str = Field(max_length=MAX_RAW_CHARACTERS)
    """The turn as it came, as JSON text, cut at `MAX_RAW_CHARACTERS`."""
    problem: str
    """Description of the fault, addressed to the LLM that must repair it."""


Turn = Annotated[PlayerTurn | DungeonMasterTurn, Field(discriminator="role")]
"""A well-formed turn."""

DraftTurn = Annotated[PlayerTurn | DungeonMasterTurn | MalformedTurn, Field(discriminator="role")]
"""A turn of a draft, which may hold anything that an LLM wrote."""


def read_turn(item: JsonValue) -> PlayerTurn | DungeonMasterTurn | MalformedTurn:
    """Read one turn in either spelling; unknown keys are dropped, and what cannot be read becomes a `MalformedTurn`.

    Never raises.
    """
    role = str(item.get("role", "")).strip().casefold() if isinstance(item, dict) else ""
    try:
        if role == "player":
            return PlayerTurn.model_validate({**_told(cast("dict[str, Any]", item)), "role": "Player"}, extra="ignore")
        if role in {"dm", "dungeonmaster", "dungeon master"}:
            return DungeonMasterTurn.model_validate(
                {**_told(cast("dict[str, Any]", item)), "role": "DM"}, extra="ignore"
            )
        problem = 'a turn is an object whose key "role" is "Player" or "DM"'
    except ValidationError as error:
        problem = explain(error)
    try:
        raw = orjson.dumps(item).decode()
    except (TypeError, ValueError, RecursionError):
        raw = scrub(repr(type(item)))
    return MalformedTurn(raw=raw[:MAX_RAW_CHARACTERS], problem=problem)


def _told(item: Mapping[str, Any]) -> dict[str, Any]:
    """Return what a model may say of a turn: the rest is the executor's to say."""
    return {key: value for key, value in item.items() if key not in EXECUTED}


def read_turns(value: JsonValue) -> tuple[PlayerTurn | DungeonMasterTurn | MalformedTurn, ...]:
    """Read a list of turns: bare, under a key such as `turns` or `Trajectory`, or among what stood around it.

    Raises:
        ValueError: There is no list of turns in `value`.
    """
    return tuple(map(read_turn, listed_turns(value)))


def listed_turns(value: JsonValue) -> list[JsonValue]:
    """The turns that `read_turns` reads, as they came.

    Raises:
        ValueError: There is no list of turns in `value`.
    """
    turns = _listed(value) if isinstance(value, dict) else value
    if isinstance(value, dict) and turns is None:
        raise ValueError(f"expected one list of turns, got an object with the keys {sorted(value)[:8]}")
    if not isinstance(turns, list):
        raise ValueError(f"expected a list of turns, got {type(value).__name__}")
    return turns if _like_turns(turns) else _among(turns)


def _listed(value: Mapping[str, JsonValue]) -> JsonValue:
    """The list of turns that an object holds, if it is clear which; else null."""
    held = value.get("turns")
    if isinstance(held, str):  # written down as JSON once more, as happens to a tool's arguments
        held = read_json(held)
    if isinstance(held, list):
        return held
    lists = [item for item in value.values() if isinstance(item, list)]
    return lists[0] if len(lists) == 1 else None


def _among(value: list[JsonValue]) -> list[JsonValue]:
    """The one list of turns in a list that is none: prose around an answer may have brackets of its own."""
    held = [_listed(item) if isinstance(item, dict) else item for item in value]
    lists = [item for item in held if isinstance(item, list) and _like_turns(item)]
    return lists[0] if len(lists) == 1 else value


def _like_turns(value: list[JsonValue]) -> bool:
    return not value or any(isinstance(item, dict) and "role" in item for item in value)


def explain(error: ValidationError, *, most: int = 5) -> str:
    """A validation error as one line per problem, fit for the LLM that must fix its answer (no values, no links)."""
    problems = error.errors(include_url=False, include_input=False, include_context=False)
    lines = [f"{'.'.join(str(part) for part in item['loc']) or 'answer'}: {item['msg']}" for item in problems[:most]]
    if len(problems) > most:
        lines.append(f"and {len(problems) - most} more")
    return "; ".join(lines)


def known_exchanges(
    turns: Sequence[PlayerTurn | DungeonMasterTurn | MalformedTurn],
) -> list[tuple[PlayerTurn, DungeonMasterTurn]]:
    """Return the player's turns with their answers, without right calls behind a mistake of their own message."""
    found: list[tuple[PlayerTurn, DungeonMasterTurn]] = []
    for turn, answer in pairwise(turns):
        if not isinstance(turn, PlayerTurn) or not isinstance(answer, DungeonMasterTurn):
            continue
        if not turn.parallel or answer.flagged or not found or not found[-1][1].flagged:
            found.append((turn, answer))
    return found


def flagged_turns(turns: Sequence[PlayerTurn | DungeonMasterTurn | MalformedTurn]) -> tuple[int, ...]:
    """Indices of the player turns whose next turn is a DungeonMaster turn with an error flag."""
    return tuple(
        at
        for at, (turn, after) in enumerate(pairwise(turns))
        if isinstance(turn, PlayerTurn) and isinstance(after, DungeonMasterTurn) and after.flagged
    )
