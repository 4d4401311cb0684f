"""Schemas of the answers of each role: JSON schemas whose descriptions the model reads.

These describe; most do not validate. Answers are read by the values' own tolerant readers, so that the paper's spelling and
unknown keys pass, and so that what goes back to the model on a fault is one plain sentence per problem.
"""

from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, JsonValue
from pydantic.json_schema import GenerateJsonSchema


class _Described(BaseModel):
    model_config = ConfigDict(
        use_attribute_docstrings=True, extra="forbid", model_title_generator=lambda model: model.__name__.strip("_")
    )

    @classmethod
    def read(cls, answer: object) -> Self:
        """Read an answer; unknown keys are dropped."""
        return cls.model_validate(answer, extra="ignore")


_Text = Annotated[str, Field(min_length=1)]


class _Type(_Described):
    """Type of a placeholder's values."""

    type: Literal["integer", "number", "boolean", "string"]
    minimum: float | None = None
    maximum: float | None = None
    default: str | float | bool | None = None


class _Action(_Described):
    """One thing that the player can do."""

    name: _Text
    """Template with placeholders in braces, such as `take {item} from {place}`."""
    description: str
    """One sentence: what it does and what it needs."""
    pattern: _Text
    """RE2 regular expression for the whole action text, with one named group per placeholder."""
    parameters: dict[str, list[str]]
    """Placeholder to the values that may be filled in; an empty list means any text."""
    types: dict[str, _Type] = {}
    """Placeholder to the type of its values, where they are no texts."""


class _Script(_Described):
    """A text world in which somebody gets a task done."""

    introduction: str
    """What the player is told before the first action."""
    environment: dict[str, JsonValue]
    """The world's state before the first action: places, things, the player."""
    goal: _Text
    """One definite sentence."""
    completion_conditions: Annotated[list[_Text], Field(min_length=1)]
    """Checkable statements about the final state; the goal is reached when all are true."""
    actions: list[_Action]
    """Everything that the player can do."""


class _Effect(_Described):
    """One change of the state."""

    op: Literal["set", "add", "remove", "move"]
    path: str
    """JSON Pointer into the state, whose steps may hold `{placeholder}` and `{state:/path}`."""
    value: JsonValue = None
    """Value to set, add, remove or move, or `{"cel": "expression"}`; null where the op takes none."""
    from_path: str | None = None
    """For `move` alone: JSON Pointer to where it comes from."""
    when: str | None = None
    """CEL expression, unless the effect is always wanted."""
    each: str | None = None
    """JSON Pointer to the names that it is made for."""


class _Requirement(_Described):
    """Something that must hold before an action."""

    condition: str
    """CEL expression over `state`, `visible` and the action's parameters."""
    kind: Literal["place", "logic", "parameter"]
    """Kind of the mistake if it does not hold."""
    hint: str
    """Template of the text to the player then."""
    effects: list[_Effect] = []
    """Price of the mistake, if it has one."""


class _ConditionalText(_Described):
    when: str | None = None
    text: str


class _LawfulAction(_Action):
    """One thing that the player can do, and its laws."""

    requires: list[_Requirement]
    """What must hold before it, those of place first."""
    effects: list[_Effect]
    """What it changes, in order."""
    reveals: str | list[_ConditionalText]
    """Template of what the player perceives when it worked, read after the effects."""


class _Sight(_Described):
    """Somewhere that the player sees things."""

    path: str
    """JSON Pointer, which may hold `{state:/path}` and `{each}`, or a name."""
    each: str | None = None
    """JSON Pointer to the names that `path` and `when` are read for."""
    when: str | None = None
    """CEL expression over `state` and `each`."""


class _Invariant(_Described):
    """Something that holds after every step."""

    condition: str
    """CEL expression over `state`."""
    sentence: str
    """The same in words."""


class _Knowledge(_Described):
    path: str
    texts: list[str]


class _Rulebook(_Described):
    """What makes the world executable, beside its actions."""

    goal: list[str]
    """CEL expressions over `state`, one for each completion condition, in their order."""
    sights: list[_Sight]
    """Where the player sees things; an empty list hides nothing."""
    invariants: list[_Invariant]
    """What must hold whatever the player does."""
    each_step: list[_Effect] = []
    """Effects of every accepted action after its own."""
    knows: _Knowledge | None = None
    solution: list[str]
    """Action texts that reach the goal from the beginning."""


class _GroundedScript(_Script):
    """A text world that a program executes, in which somebody gets a task done."""

    # One class of actions for another, as a schema may; the values' own reader takes both.
    actions: list[_LawfulAction]  # pyright: ignore[reportIncompatibleVariableOverride]
    """Everything that the player can do, with its laws."""
    rulebook: _Rulebook


class Words(_Described):
    """What came of the player's newest action, in words."""

    thought: str
    """What the ruling means for the world, by its facts."""
    observation: _Text
    """What the player perceives."""


class Ruling(_Described):
    """What came of the player's newest action."""

    thought: str
    """The facts that matter, the judgement and its reason, which completion conditions hold now."""
    parameter_error: bool
    """Whether the action's form or a value is not available."""
    place_error: bool
    """Whether what it acts on is not where the player is."""
    logic_error: bool
    """Whether it cannot be done in the present state."""
    observation: _Text
    """What the player perceives."""


class _PlayerTurn(_Described):
    """The player thinks and acts."""

    role: Literal["Player"]
    thought: _Text
    action: _Text


class _AsDungeonMaster(_Described):
    role: Literal["DM"]


# The role comes from the last base, whose fields are the first: constrained decoding writes keys in the schema's order, and if
# only a player's turn began with `role`, a model that begins so could not write "DM" any more.
class _DungeonMasterTurn(Ruling, _AsDungeonMaster):
    """The environment answers."""


class _Turns(_Described):
    """The turns that come next, to the end."""

    turns: list[_PlayerTurn | _DungeonMasterTurn]


class Judgement(_Described):
    """Whether a record is sound."""

    reason: str
    """The first fault and where it is, or why there is none."""
    accepted: bool


class Completion(_Described):
    """State of the completion conditions after the newest call."""

    thought: str
    """Each completion condition, and the result that shows that it is true, or what is missing."""
    done: bool
    """True if every one is true."""


class _Untitled(GenerateJsonSchema):
    """Without the titles that pydantic derives from field names: they say nothing and are paid for on every call."""

    def field_title_should_be_set(self, schema: Any) -> bool:  # noqa: ARG002 - the signature is pydantic's
        return False


def schema_of(described: type[BaseModel]) -> dict[str, Any]:
    return described.model_json_schema(schema_generator=_Untitled)


def _without(schema: dict[str, Any], *names: str, of: str = "") -> dict[str, Any]:
    """Return the schema, or that of one of its parts, without some properties."""
    if of:
        return {**schema, "$defs": {**schema["$defs"], of: _without(schema["$defs"][of], *names)}}
    properties = {name: each for name, each in schema["properties"].items() if name not in names}
    return {**schema, "properties": properties, "required": [name for name in schema["required"] if name not in names]}


def with_least(schema: dict[str, Any], name: str, least: int) -> dict[str, Any]:
    """Return the schema with so many items at least in its list `name`; the number is in no digest of a request."""
    properties = schema["properties"]
    return {**schema, "properties": {**properties, name: {**properties[name], "minItems": least}}}


SCRIPT = schema_of(_Script)
GROUNDED_SCRIPT = schema_of(_GroundedScript)
OF_TOOLS = _without(SCRIPT, "actions")
GROUNDED_OF_TOOLS = _without(GROUNDED_SCRIPT, "description", "pattern", "parameters", "types", of="_LawfulAction")
"""Schemas of scripts whose actions are given, and of which a grounded one has the laws."""
TURNS = schema_of(_Turns)
