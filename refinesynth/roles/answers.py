"""What each role is asked to answer with, as JSON schemas whose descriptions the model reads.

These describe; they do not validate. Answers are read by the values' own tolerant readers, so that the paper's spelling and
unknown keys pass, and so that what goes back to the model on a fault is one plain sentence per problem.
"""

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, JsonValue
from pydantic.json_schema import GenerateJsonSchema


class _Described(BaseModel):
    model_config = ConfigDict(
        use_attribute_docstrings=True, extra="forbid", model_title_generator=lambda model: model.__name__.strip("_")
    )


class _Action(_Described):
    """One thing that the player can do."""

    name: str
    """Template with placeholders in braces, such as `take {item} from {place}`."""
    description: str
    """One sentence: what it does and what it needs."""
    pattern: str
    """RE2 regular expression for the whole action text, with one named group per placeholder."""
    parameters: dict[str, list[str]]
    """Placeholder to the values that may be filled in; an empty list means any text."""


class _Script(_Described):
    """A text world in which somebody gets a task done."""

    introduction: str
    """What the player is told before the first action."""
    environment: dict[str, JsonValue]
    """The world's state before the first action: places, things, the player."""
    goal: str
    """One definite sentence."""
    completion_conditions: list[str]
    """Checkable statements about the final state; the goal is reached when all are true."""
    actions: list[_Action]
    """Everything that the player can do."""


class _Ruling(_Described):
    """What came of the player's newest action."""

    thought: str
    """The facts that matter, the judgement and its reason, which completion conditions hold now."""
    parameter_error: bool
    """Whether the action's form or a value is not available."""
    place_error: bool
    """Whether what it acts on is not where the player is."""
    logic_error: bool
    """Whether it cannot be done in the present state."""
    observation: str
    """What the player perceives."""


class _PlayerTurn(_Described):
    """The player thinks and acts."""

    role: Literal["Player"]
    thought: str
    action: str


class _AsDungeonMaster(_Described):
    role: Literal["DM"]


# The role comes from the last base, whose fields are the first: constrained decoding writes keys in the schema's order, and if
# only a player's turn began with `role`, a model that begins so could not write "DM" any more.
class _DungeonMasterTurn(_Ruling, _AsDungeonMaster):
    """The environment answers."""


class _Turns(_Described):
    """The turns that come next, to the end."""

    turns: list[_PlayerTurn | _DungeonMasterTurn]


class _Judgement(_Described):
    """Whether a record is sound."""

    reason: str
    """The first fault and where it is, or why there is none."""
    accepted: bool


class _Untitled(GenerateJsonSchema):
    """Without the titles that pydantic derives from field names: they say nothing and are paid for on every call."""

    def field_title_should_be_set(self, schema: Any) -> bool:  # noqa: ARG002 - the signature is pydantic's
        return False


def _schema(described: type[_Described]) -> dict[str, Any]:
    return described.model_json_schema(schema_generator=_Untitled)


SCRIPT = _schema(_Script)
RULING = _schema(_Ruling)
TURNS = _schema(_Turns)
JUDGEMENT = _schema(_Judgement)
