"""The values that everything else passes around: persona, script, turns, draft, trajectory.

All are frozen pydantic models. They forbid unknown fields, because what we write has none; text from an LLM goes through
`Script.from_llm`, `read_turns` and `Draft.from_text`, which tolerate more. The paper's own spellings (`Thought`,
`verification code`, `Available Actions`, ...; sections 3.1 and 3.2 of arXiv 2501.01702) are accepted everywhere as aliases.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from enum import StrEnum
from itertools import pairwise
from typing import Annotated, Any, Literal, Self, cast

import orjson
from pydantic import (
    AliasChoices,
    BaseModel,
    ConfigDict,
    Field,
    JsonValue,
    ValidationError,
    field_validator,
)

from refinesynth.jsontext import read_json, scrub, write_json

SCHEMA_VERSION = 1
"""Version of a line in trajectories.jsonl; raised when a field changes its meaning."""

MAX_RAW_CHARACTERS = 20_000
"""How much of an unreadable turn or answer is kept for failure analysis, in characters."""


class _Value(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", validate_by_name=True, validate_by_alias=True)

    def to_json(self) -> bytes:
        """This value as one line of JSON, without the newline; lone surrogates in its text become U+FFFD."""
        return write_json(self.model_dump(mode="json"))

    @classmethod
    def from_json(cls, line: bytes | str) -> Self:
        """Read what `to_json` wrote.

        Raises:
            pydantic.ValidationError: The line is not such a value.
            orjson.JSONDecodeError: The line is not JSON.
        """
        return cls.model_validate(orjson.loads(line))


def _spelled(*names: str) -> AliasChoices:
    return AliasChoices(*names)


class Persona(_Value):
    """One sentence about somebody: where an environment comes from."""

    text: str = Field(min_length=1, max_length=10_000, validation_alias=_spelled("text", "persona"))

    @field_validator("text", mode="after")
    @classmethod
    def _says_something(cls, text: str) -> str:
        if not text.strip():
            raise ValueError("a persona is a sentence; this one is blank")
        return text.strip()


class ActionSpec(_Value):
    """One available action of a script."""

    name: str = Field(min_length=1, validation_alias=_spelled("name", "Name", "action"))
    """Template with placeholders in braces: `take {item} from {place}`."""
    description: str = Field(default="", validation_alias=_spelled("description", "Description"))
    pattern: str = Field(
        min_length=1,
        validation_alias=_spelled("pattern", "verification code", "verification_code", "Verification Code"),
    )
    """Regular expression (RE2 syntax) that the whole action text must match; untrusted."""
    parameters: dict[str, tuple[str, ...]] = Field(
        default_factory=dict[str, tuple[str, ...]], validation_alias=_spelled("parameters", "Parameters")
    )
    """Placeholder name to the values that it may take; no values means any."""

    @field_validator("parameters", mode="before")
    @classmethod
    def _values_are_text(cls, value: object) -> object:
        if not isinstance(value, Mapping):
            return value
        given = cast("Mapping[object, object]", value)
        return {name: _as_texts(allowed) for name, allowed in given.items()}

    @property
    def placeholders(self) -> tuple[str, ...]:
        """Names in braces, in the order of the template."""
        return tuple(re.findall(r"\{([^{}]*)\}", self.name))

    def fill(self, values: Mapping[str, str]) -> str:
        """The action text with each placeholder replaced; a name without a value stays in braces."""
        return re.sub(r"\{([^{}]*)\}", lambda found: values.get(found[1], found[0]), self.name)


def _as_texts(allowed: object) -> object:
    if allowed is None:
        return ()
    if isinstance(allowed, str | int | float):
        return (str(allowed),)
    if isinstance(allowed, list | tuple):
        items = cast("Sequence[object]", allowed)
        return tuple(str(item) if isinstance(item, int | float) else item for item in items)
    return allowed


class Script(_Value):
    """What an episode is played in: written once, by the ScriptWriter (paper, section 3.1)."""

    introduction: str = Field(default="", validation_alias=_spelled("introduction", "Introduction"))
    """What the player is told about the place before the first turn; the paper's scripts have none."""
    environment: dict[str, JsonValue] = Field(validation_alias=_spelled("environment", "Environment"))
    """The world's initial state, for the DungeonMaster's eyes."""
    goal: str = Field(min_length=1, validation_alias=_spelled("goal", "Goal"))
    completion_conditions: tuple[str, ...] = Field(
        validation_alias=_spelled("completion_conditions", "Completion Conditions", "completion conditions")
    )
    actions: tuple[ActionSpec, ...] = Field(
        validation_alias=_spelled("actions", "available_actions", "Available Actions", "available actions")
    )

    @field_validator("actions", mode="before")
    @classmethod
    def _actions_from_mapping(cls, value: object) -> object:
        """The paper writes an object from name template to the rest; we write a list."""
        if not isinstance(value, Mapping):
            return value
        given = cast("Mapping[str, object]", value)
        return [
            {"name": name, **cast("Mapping[str, object]", rest)} if isinstance(rest, Mapping) else rest
            for name, rest in given.items()
        ]

    @field_validator("completion_conditions", mode="before")
    @classmethod
    def _one_condition_is_a_list(cls, value: object) -> object:
        return (value,) if isinstance(value, str) else value

    @classmethod
    def from_llm(cls, data: object) -> Self:
        """Validate a model's answer: unknown keys are dropped, numbers become text where text is meant.

        Raises:
            pydantic.ValidationError: Something required is missing or of the wrong kind.
        """
        return cls.model_validate(data, extra="ignore")

    def to_paper(self) -> dict[str, JsonValue]:
        """This script in the paper's own keys."""
        actions: dict[str, JsonValue] = {
            action.name: {
                "description": action.description,
                "verification code": action.pattern,
                "parameters": {name: list(values) for name, values in action.parameters.items()},
            }
            for action in self.actions
        }
        paper: dict[str, JsonValue] = {"Introduction": self.introduction} if self.introduction else {}
        paper["Environment"] = self.environment
        paper["Goal"] = self.goal
        paper["Completion Conditions"] = list(self.completion_conditions)
        paper["Available Actions"] = actions
        return paper


class MistakeKind(StrEnum):
    """What a player's action got wrong, as the DungeonMaster flags it (paper, section 3.2)."""

    PARAMETER = "parameter"
    """The action's form or a parameter is not available."""
    PLACE = "place"
    """The action is possible, but not from where the player is."""
    LOGIC = "logic"
    """The action makes no sense in the world's present state."""


class PlayerTurn(_Value):
    """The agent: what it thought, and the one action that it took."""

    role: Literal["Player"] = "Player"
    thought: str = Field(validation_alias=_spelled("thought", "Thought"))
    action: str = Field(validation_alias=_spelled("action", "Action"))

    def to_paper(self, number: int) -> dict[str, JsonValue]:
        """This turn in the paper's own keys."""
        return {"turn": number, "role": "Player", "Thought": self.thought, "Action": self.action}


class DungeonMasterTurn(_Value):
    """The environment: what came of the player's last action, and whether that action was a mistake."""

    role: Literal["DM"] = "DM"
    thought: str = Field(validation_alias=_spelled("thought", "Thought"))
    observation: str = Field(validation_alias=_spelled("observation", "Observation"))
    parameter_error: bool
    place_error: bool
    logic_error: bool

    @property
    def flagged(self) -> bool:
        """Whether any error flag is set: the player's turn before this one was a mistake."""
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


class MalformedTurn(_Value):
    """A turn whose keys or types are not those required of its role; kept so that rules can say what is wrong."""

    role: Literal["malformed"] = "malformed"
    raw: str = Field(max_length=MAX_RAW_CHARACTERS)
    """The turn as it came, as JSON text, cut at `MAX_RAW_CHARACTERS`."""
    problem: str
    """What is wrong with it, in words fit for the LLM that must mend it."""


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
            return PlayerTurn.model_validate({**cast("dict[str, Any]", item), "role": "Player"}, extra="ignore")
        if role in {"dm", "dungeonmaster", "dungeon master"}:
            return DungeonMasterTurn.model_validate({**cast("dict[str, Any]", item), "role": "DM"}, extra="ignore")
        problem = 'a turn is an object whose key "role" is "Player" or "DM"'
    except ValidationError as error:
        problem = explain(error)
    try:
        raw = orjson.dumps(item).decode()
    except (TypeError, ValueError, RecursionError):
        raw = scrub(repr(type(item)))
    return MalformedTurn(raw=raw[:MAX_RAW_CHARACTERS], problem=problem)


def read_turns(value: JsonValue) -> tuple[PlayerTurn | DungeonMasterTurn | MalformedTurn, ...]:
    """Read a list of turns, bare or under a key such as `turns` or `Trajectory`.

    Raises:
        ValueError: There is no list of turns in `value`.
    """
    if isinstance(value, dict):
        lists = [item for item in value.values() if isinstance(item, list)]
        if len(lists) != 1:
            raise ValueError(f"expected one list of turns, got an object with the keys {sorted(value)[:8]}")
        value = lists[0]
    if not isinstance(value, list):
        raise ValueError(f"expected a list of turns, got {type(value).__name__}")
    return tuple(read_turn(item) for item in value)


def explain(error: ValidationError, *, most: int = 5) -> str:
    """A validation error as one line per problem, fit for the LLM that must mend its answer (no values, no links)."""
    problems = error.errors(include_url=False, include_input=False, include_context=False)
    lines = [f"{'.'.join(str(part) for part in item['loc']) or 'answer'}: {item['msg']}" for item in problems[:most]]
    if len(problems) > most:
        lines.append(f"and {len(problems) - most} more")
    return "; ".join(lines)


class Draft(_Value):
    """A script with turns that nobody has verified yet: what a `Rule` looks at."""

    script: Script
    turns: tuple[DraftTurn, ...] = ()
    text_error: str | None = None
    """Why the model's text for the turns after these could not be read, if it could not."""
    finished: bool = True
    """Whether this is meant to be the whole trajectory; of a part, rules do not ask for an ending."""

    @classmethod
    def from_text(cls, script: Script, text: str, *, prefix: Iterable[PlayerTurn | DungeonMasterTurn] = ()) -> Self:
        """Read a model's answer that continues `prefix`; never raises, an unreadable answer sets `text_error`.

        An answer that starts over with the turns of `prefix` is recognised and not doubled.
        """
        before = tuple(prefix)
        try:
            turns = read_turns(read_json(text))
        except ValueError as error:
            return cls(script=script, turns=before, text_error=scrub(str(error)))
        if before and turns[: len(before)] == before:
            turns = turns[len(before) :]
        return cls(script=script, turns=(*before, *turns))

    def prefix(self, turns: int) -> Self:
        """The first `turns` turns as an unfinished draft."""
        return self.model_copy(update={"turns": self.turns[:turns], "text_error": None, "finished": False})


class Usage(_Value):
    """Tokens and requests of one episode or of a whole run."""

    requests: int = 0
    """Completions that were asked for and answered."""
    input_tokens: int = 0
    """Prompt tokens, cached ones included."""
    cached_tokens: int = 0
    """Prompt tokens that the provider read from its cache."""
    output_tokens: int = 0
    """Completion tokens, reasoning included."""

    def __add__(self, other: "Usage") -> "Usage":
        return Usage(
            requests=self.requests + other.requests,
            input_tokens=self.input_tokens + other.input_tokens,
            cached_tokens=self.cached_tokens + other.cached_tokens,
            output_tokens=self.output_tokens + other.output_tokens,
        )


class Provenance(_Value):
    """Where a trajectory comes from: enough to make it again on a deterministic backend."""

    models: dict[str, str]
    """Role name to litellm model string."""
    play: Literal["live", "narrated"]
    seed: int
    """The episode's own seed, derived from the run's seed and the persona's position."""
    rules: str
    """`repr` of the rule chain that accepted it."""
    package_version: str
    attempts: int = Field(ge=1)
    """Drafts played or written until this one was accepted."""
    script_attempts: int = Field(ge=1)
    """Scripts written until one passed."""
    usage: Usage = Usage()
    """Of the whole episode, refused attempts included."""
    cost_usd: float | None = None
    """US dollars for the whole episode; None where a model's price is unknown."""


class Trajectory(_Value):
    """An accepted draft: one line of trajectories.jsonl."""

    schema_version: Literal[1] = SCHEMA_VERSION
    id: str = Field(min_length=1)
    persona: Persona
    script: Script
    turns: tuple[Turn, ...] = Field(min_length=1)
    provenance: Provenance

    def draft(self) -> Draft:
        """This trajectory as a draft, to verify it again."""
        return Draft(script=self.script, turns=self.turns)

    def mistakes(self) -> tuple[int, ...]:
        """Indices of the player turns that the DungeonMaster flagged."""
        return flagged_turns(self.turns)


def flagged_turns(turns: Sequence[PlayerTurn | DungeonMasterTurn | MalformedTurn]) -> tuple[int, ...]:
    """Indices of the player turns whose next turn is a DungeonMaster turn with an error flag."""
    return tuple(
        at
        for at, (turn, after) in enumerate(pairwise(turns))
        if isinstance(turn, PlayerTurn) and isinstance(after, DungeonMasterTurn) and after.flagged
    )
