"""Persona and script."""

import re
from collections.abc import Mapping, Sequence
from functools import lru_cache
from hashlib import blake2b
from typing import Annotated, Self, cast

from pydantic import Field, JsonValue, field_validator

from refinesynth.trajectory.parameter import TEXT, ParameterType
from refinesynth.trajectory.rulebook import MAX_PARTS, MAX_TEXT, ConditionalText, Effect, Requirement, Rulebook
from refinesynth.trajectory.value import Value, aliases, is_empty


class Persona(Value):
    """One sentence about a person, the seed of an environment."""

    text: str = Field(min_length=1, max_length=10_000, validation_alias=aliases("text", "persona"))

    @field_validator("text", mode="after")
    @classmethod
    def _stripped(cls, text: str) -> str:
        if not text.strip():
            raise ValueError("a persona is a sentence; this one is blank")
        return text.strip()


class ActionSpec(Value):
    """One available action of a script."""

    name: str = Field(min_length=1, validation_alias=aliases("name", "Name", "action"))
    """Template with placeholders in braces: `take {item} from {place}`."""
    description: str = Field(default="", validation_alias=aliases("description", "Description"))
    pattern: str = Field(
        min_length=1,
        validation_alias=aliases("pattern", "verification code", "verification_code", "Verification Code"),
    )
    """Regular expression (RE2 syntax) for the whole action text; untrusted."""
    parameters: dict[str, tuple[str, ...]] = Field(
        default_factory=dict[str, tuple[str, ...]], validation_alias=aliases("parameters", "Parameters")
    )
    """Placeholder to its allowed values; empty for any value."""
    types: dict[str, ParameterType] = Field(default_factory=dict[str, ParameterType], exclude_if=is_empty)
    """Placeholder to the type of its values; text by default."""
    function: dict[str, JsonValue] | None = Field(default=None, exclude_if=is_empty)
    """Definition of the user's function behind this action, exported unchanged: name, description and parameters. None
    for an action of the ScriptWriter."""
    requires: tuple[Requirement, ...] = Field(default=(), max_length=MAX_PARTS, exclude_if=is_empty)
    """Grounded script: preconditions in order; the first unmet one determines the mistake. Without any, the action
    always succeeds."""
    effects: tuple[Effect, ...] = Field(default=(), max_length=MAX_PARTS, exclude_if=is_empty)
    """Grounded script: effects in order, each on the state after the one before. If one cannot be applied, none is."""
    reveals: (
        Annotated[str, Field(max_length=MAX_TEXT)] | Annotated[tuple[ConditionalText, ...], Field(max_length=MAX_PARTS)]
    ) = Field(default="", exclude_if=is_empty)
    """Grounded script: template of the observation, filled from the state after the effects; or several with
    conditions, of which the first that holds is used."""

    @field_validator("parameters", mode="before")
    @classmethod
    def _values_are_text(cls, value: object) -> object:
        if not isinstance(value, Mapping):
            return value
        values = cast("Mapping[object, object]", value)
        return {name: _as_texts(allowed) for name, allowed in values.items()}

    def __hash__(self) -> int:
        return hash((self.name, self.pattern))

    @property
    def placeholders(self) -> tuple[str, ...]:
        """Names in braces, in the order of the template."""
        return _pieces(self.name)[1::2]

    def type_of(self, name: str) -> ParameterType:
        """Return the type of a placeholder's values."""
        return self.types.get(name, TEXT)

    def choices(self, name: str) -> tuple[str, ...]:
        """Return the values of a placeholder if they can be listed, the empty one of an optional type last; else none."""
        kind = self.type_of(name)
        values = self.parameters.get(name, ()) or kind.choices()
        return (*values, "") if values and kind.optional and "" not in values else values

    def fill(self, values: Mapping[str, str]) -> str:
        """Return the action text with each placeholder replaced; names without a value stay in braces."""
        pieces = [*_pieces(self.name)]
        for index in range(1, len(pieces), 2):
            pieces[index] = values.get(pieces[index], f"{{{pieces[index]}}}")
        return "".join(pieces)


@lru_cache(maxsize=4_096)
def _pieces(template: str) -> tuple[str, ...]:
    """Return the parts of a template: text, placeholder, text, ..., text."""
    return tuple(re.split(r"\{([^{}]*)\}", template))


def _as_texts(allowed: object) -> object:
    if allowed is None:
        return ()
    if isinstance(allowed, str | int | float):
        allowed = (allowed,)
    if not isinstance(allowed, list | tuple):
        return allowed
    items = cast("Sequence[object]", allowed)
    texts = (str(item).lower() if isinstance(item, bool) else item for item in items)  # true, as in JSON
    return tuple(str(item) if isinstance(item, int | float) else item for item in texts)


class Script(Value):
    """World, goal and actions of an episode, written once by the ScriptWriter (paper, section 3.1)."""

    introduction: str = Field(default="", validation_alias=aliases("introduction", "Introduction"))
    """Text about the place for the player before the first turn; the paper's scripts have none."""
    environment: dict[str, JsonValue] = Field(validation_alias=aliases("environment", "Environment"))
    """Initial state of the world, visible to the DungeonMaster only."""
    goal: str = Field(min_length=1, validation_alias=aliases("goal", "Goal"))
    completion_conditions: tuple[str, ...] = Field(
        validation_alias=aliases("completion_conditions", "Completion Conditions", "completion conditions")
    )
    actions: tuple[ActionSpec, ...] = Field(
        validation_alias=aliases("actions", "available_actions", "Available Actions", "available actions")
    )

    rulebook: Rulebook | None = Field(default=None, exclude_if=is_empty)
    """Executable part of the world, beside the laws of its actions; None if a model simulates the world."""

    @field_validator("actions", mode="before")
    @classmethod
    def _actions_from_mapping(cls, value: object) -> object:
        """Convert the paper's form, an object from name template to specification, to a list."""
        if not isinstance(value, Mapping):
            return value
        actions = cast("Mapping[str, object]", value)
        return [
            {"name": name, **cast("Mapping[str, object]", rest)} if isinstance(rest, Mapping) else rest
            for name, rest in actions.items()
        ]

    @field_validator("completion_conditions", mode="before")
    @classmethod
    def _wrap_condition(cls, value: object) -> object:
        return (value,) if isinstance(value, str) else value

    @property
    def grounded(self) -> bool:
        """True if the world is executed, not simulated by a model."""
        return self.rulebook is not None

    @property
    def digest(self) -> str:
        """16 hexadecimal digits that identify the script's content, independent of where it was read.

        Computed at each access.
        """
        return blake2b(self.to_json(), digest_size=8).hexdigest()

    def imagined(self) -> Self:
        """Return this script without the fields of grounded scripts."""
        bare = {"requires": (), "effects": (), "reveals": ""}
        actions = tuple(action.model_copy(update=bare) for action in self.actions)
        return self.model_copy(update={"actions": actions, "rulebook": None})

    @classmethod
    def from_llm(cls, data: object) -> Self:
        """Validate a model's answer: unknown keys are dropped, and numbers and booleans among parameters' values become text.

        Raises:
            pydantic.ValidationError: A required value is missing or of the wrong kind.
        """
        return cls.model_validate(data, extra="ignore")

    def to_paper(self) -> dict[str, JsonValue]:
        """Return this script in the paper's keys, without its rulebook and the laws of its actions."""
        actions: dict[str, JsonValue] = {
            action.name: {
                "description": action.description,
                "verification code": action.pattern,
                "parameters": {name: list(values) for name, values in action.parameters.items()},
                **action.model_dump(mode="json", include={"types", "function"}),
            }
            for action in self.actions
        }
        paper: dict[str, JsonValue] = {"Introduction": self.introduction} if self.introduction else {}
        paper["Environment"] = self.environment
        paper["Goal"] = self.goal
        paper["Completion Conditions"] = list(self.completion_conditions)
        paper["Available Actions"] = actions
        return paper


class ScriptedPersona(Persona):
    """Persona with an existing script, which is played unchanged. Records keep the persona only."""

    script: Script = Field(exclude=True, repr=False)
