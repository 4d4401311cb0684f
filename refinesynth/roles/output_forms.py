"""Output forms of the roles: how a structured answer is requested and read.

A form is created once and shared by all episodes. It produces the same request as an Agent of pydantic-ai with the same
output type, in each of a model's output modes.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, Self, TypeVar, cast

import orjson
from pydantic import TypeAdapter, ValidationError
from pydantic_ai import StructuredDict
from pydantic_ai.messages import (
    InstructionPart,
    ModelRequest,
    ModelRequestPart,
    ModelResponse,
    TextPart,
    ToolCallPart,
)
from pydantic_ai.models import ModelRequestParameters
from pydantic_ai.output import OutputObjectDefinition
from pydantic_ai.settings import ModelSettings
from pydantic_ai.tools import ToolDefinition

from refinesynth.client.tool_calls import LEFT_IN_TEXT
from refinesynth.text.json_reader import BrokenOff, read_json

_Answer = TypeVar("_Answer")

_TOOL = "final_result"
"""Name of the output tool."""

CALL_IN_TEXT = "call in text"

_OBJECT = TypeAdapter(dict[str, Any])


@dataclass(frozen=True, slots=True)
class AnswerForm(Generic[_Answer]):
    """Form of a role's answer, with its reader."""

    parameters: ModelRequestParameters
    """Parameters as one object for all requests, so a model may cache values derived from it."""
    load: Callable[[Any], _Answer]
    """Reader of an answer: text, an object, or None. Raises ValueError, TypeError or RecursionError for an unusable
    answer."""
    instructions: str | None = None
    settings: ModelSettings = field(default_factory=ModelSettings)
    """Settings of the request in addition to the model's own."""

    @property
    def verbatim(self) -> bool:
        """Return whether a request is sent unchanged, because a player must see exactly what training sees.

        pydantic-ai would add notes to text that resembles its own frames, and change text that resembles a chat
        template's token.
        """
        return self.parameters.output_mode == "text"

    def request(self, parts: Sequence[ModelRequestPart]) -> ModelRequest:
        return ModelRequest(parts=parts, instructions=self.instructions)

    def read(self, response: ModelResponse) -> _Answer:
        """Return the answer in `response`; with several calls of the tool, the first usable one.

        Raises:
            ValueError, TypeError, RecursionError: The answer is unusable. The message is feedback to the model.
        """
        problems: list[Exception] = []
        for call in called(response):
            try:
                return self._from_call(call)
            except (ValueError, TypeError, RecursionError) as error:
                problems.append(error)
        if problems:
            raise problems[0]
        if text := said(response):
            return self.load(text)
        or_call = " or include your response in a tool call" if self.parameters.output_tools else ""
        raise ValueError(f"Please return text{or_call}.")

    def again(self, response: ModelResponse) -> Self:
        """Return the form for the request after this unusable answer."""
        del response
        return self

    def repair(self, response: ModelResponse) -> str | None:
        """Return the kind of repair that was needed to read a response, if any."""
        return CALL_IN_TEXT if (response.provider_details or {}).get("call_artefact") == LEFT_IN_TEXT else None

    def _from_call(self, call: ToolCallPart) -> _Answer:
        tools = self.parameters.output_tools
        if tools and call.tool_name == _TOOL:
            return self.load(call.args)
        offered = f"Available tools: {_TOOL!r}" if tools else "No tools available."
        raise ValueError(f"Unknown tool name: {call.tool_name!r}. {offered}")


def called(response: ModelResponse) -> Sequence[ToolCallPart]:
    """Return the tool calls in a response."""
    return [part for part in response.parts if isinstance(part, ToolCallPart)]


def said(response: ModelResponse) -> str:
    """Return the text of a response without reasoning and tool calls."""
    return "".join(part.content for part in response.parts if isinstance(part, TextPart))


def object_form(
    schema: dict[str, Any],
    *,
    name: str,
    instructions: str | None = None,
    read: Callable[[dict[str, Any]], _Answer],
    listed: str | None = None,
) -> AnswerForm[_Answer]:
    """Return the form for an object described by `schema`. The schema does not validate; `read` does.

    A bare list is read as the value of the object's key `listed`, or without such a key as the only object in it.
    Without `instructions`, each request has its own.
    """
    described = TypeAdapter(StructuredDict(schema, name=name)).json_schema()
    description = described.pop("description", None)

    def load(given: str | dict[str, Any] | None) -> _Answer:
        answer = _object_of(given, listed)
        orjson.dumps(answer)  # raises TypeError for what cannot be stored: too deep, an integer beyond 64 bits
        return read(answer)

    tool = ToolDefinition(name=_TOOL, description=description, parameters_json_schema=described, kind="output")
    parameters = ModelRequestParameters(
        output_mode="auto",
        output_object=OutputObjectDefinition(name=name, description=description, json_schema=described),
        output_tools=[tool],
        instruction_parts=None if instructions is None else [InstructionPart(content=instructions)],
    )
    return AnswerForm(parameters=parameters, load=load, instructions=instructions)


def _object_of(given: str | dict[str, Any] | None, listed: str | None) -> dict[str, Any]:
    if not isinstance(given, str):
        return _object(given or {}, listed)
    try:
        return _OBJECT.validate_json(given or "{}")
    except ValidationError:
        try:
            return _object(read_json(given), listed)
        except BrokenOff:
            raise
        except ValueError:
            pass
        raise


def _object(value: object, listed: str | None) -> dict[str, Any]:
    if isinstance(value, list):
        items = cast("list[object]", value)
        objects = [cast("object", item) for item in items if isinstance(item, dict)]
        if listed is not None:
            value = {listed: items}
        elif len(objects) == 1:  # in its own brackets, or beside brackets of the prose around it
            value = objects[0]
    return _OBJECT.validate_python(value)
