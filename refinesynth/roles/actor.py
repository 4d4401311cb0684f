"""Common base of the roles: a question to a model with bounded retries and completions, and the form of its answer.

No role calls tools in a loop, so models are called directly. An Agent of pydantic-ai would cost milliseconds of CPU for
the same request. A form is created once and shared by all episodes. It produces the same request as such an Agent with
the same output type, in each of a model's output modes.
"""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, Generic, Self, TypeVar, cast

import orjson
from pydantic import BaseModel, TypeAdapter, ValidationError
from pydantic_ai import StructuredDict
from pydantic_ai.exceptions import ContentFilterError, UnexpectedModelBehavior
from pydantic_ai.messages import (
    InstructionPart,
    ModelMessage,
    ModelRequest,
    ModelRequestPart,
    ModelResponse,
    SystemPromptPart,
    TextPart,
    ToolCallPart,
    ToolReturnPart,
    UserPromptPart,
)
from pydantic_ai.models import Model, ModelRequestParameters
from pydantic_ai.output import OutputObjectDefinition
from pydantic_ai.settings import ModelSettings, merge_model_settings
from pydantic_ai.tools import ToolDefinition

from refinesynth.client.tool_calls import LEFT_IN_TEXT
from refinesynth.errors import EpisodeAbandoned
from refinesynth.prompts import Prompts
from refinesynth.roles.schemas import schema_of
from refinesynth.text.formatting import scrub
from refinesynth.text.json_reader import Truncated, read_json
from refinesynth.trajectory import explain

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
        for call in tool_calls_of(response):
            try:
                return self._from_call(call)
            except (ValueError, TypeError, RecursionError) as error:
                problems.append(error)
        if problems:
            raise problems[0]
        if text := plain_text(response):
            return self.load(text)
        or_call = " or include your response in a tool call" if self.parameters.output_tools else ""
        raise ValueError(f"Please return text{or_call}.")

    def for_retry(self, response: ModelResponse) -> Self:
        """Return the form for the request after this unusable answer."""
        del response
        return self

    def repair_kind(self, response: ModelResponse) -> str | None:
        """Return the kind of repair that was needed to read a response, if any."""
        return CALL_IN_TEXT if (response.provider_details or {}).get("call_artefact") == LEFT_IN_TEXT else None

    def _from_call(self, call: ToolCallPart) -> _Answer:
        tools = self.parameters.output_tools
        if tools and call.tool_name == _TOOL:
            return self.load(call.args)
        offered = f"Available tools: {_TOOL!r}" if tools else "No tools available."
        raise ValueError(f"Unknown tool name: {call.tool_name!r}. {offered}")


def tool_calls_of(response: ModelResponse) -> Sequence[ToolCallPart]:
    """Return the tool calls in a response."""
    return [part for part in response.parts if isinstance(part, ToolCallPart)]


def plain_text(response: ModelResponse) -> str:
    """Return the text of a response without reasoning and tool calls."""
    return "".join(part.content for part in response.parts if isinstance(part, TextPart))


def object_form(
    schema: dict[str, Any],
    *,
    name: str,
    instructions: str | None = None,
    read: Callable[[dict[str, Any]], _Answer],
    list_key: str | None = None,
) -> AnswerForm[_Answer]:
    """Return the form for an object described by `schema`. The schema does not validate; `read` does.

    A bare list is read as the value of the object's key `list_key`, or without such a key as the only object in it.
    Without `instructions`, each request has its own.
    """
    json_schema = TypeAdapter(StructuredDict(schema, name=name)).json_schema()
    description = json_schema.pop("description", None)

    def load(value: str | dict[str, Any] | None) -> _Answer:
        answer = _object_of(value, list_key)
        orjson.dumps(answer)  # raises TypeError for what cannot be stored: too deep, an integer beyond 64 bits
        return read(answer)

    tool = ToolDefinition(name=_TOOL, description=description, parameters_json_schema=json_schema, kind="output")
    parameters = ModelRequestParameters(
        output_mode="auto",
        output_object=OutputObjectDefinition(name=name, description=description, json_schema=json_schema),
        output_tools=[tool],
        instruction_parts=None if instructions is None else [InstructionPart(content=instructions)],
    )
    return AnswerForm(parameters=parameters, load=load, instructions=instructions)


def _object_of(value: str | dict[str, Any] | None, listed: str | None) -> dict[str, Any]:
    if not isinstance(value, str):
        return _object(value or {}, listed)
    try:
        return _OBJECT.validate_json(value or "{}")
    except ValidationError as problem:
        try:
            return _object(read_json(value), listed)
        except Truncated:
            raise
        except ValueError:
            raise problem from None


def _object(value: object, listed: str | None) -> dict[str, Any]:
    if isinstance(value, list):
        items = cast("list[object]", value)
        objects = [cast("object", item) for item in items if isinstance(item, dict)]
        if listed is not None:
            value = {listed: items}
        elif len(objects) == 1:  # in its own brackets, or beside brackets of the prose around it
            value = objects[0]
    return _OBJECT.validate_python(value)


_MAX_ERROR_CHARACTERS = 500
_MAX_QUOTED_CHARACTERS = 80


class InvalidAnswer(EpisodeAbandoned):
    """A model's answer stayed invalid after feedback; another attempt may succeed."""

    def __init__(self, problem: str) -> None:
        super().__init__(f"the answer stayed invalid: {problem}")
        self.problem = problem
        """Error of the last answer."""


class CallLimitReached(EpisodeAbandoned):
    """The limit on completions of one play of an episode is reached."""


@dataclass
class CallLimit:
    """Number of answered completions and its limit, shared by the roles of one play of an episode. The first play's
    include those for the script.
    """

    most: int | None = None
    """Maximum number of completions; None for no limit."""
    made: int = 0

    @property
    def spent(self) -> bool:
        """True if the limit is reached."""
        return self.most is not None and self.made >= self.most


@dataclass
class Actor:
    """A role: a model and its prompts."""

    model: Model
    prompts: Prompts
    answers: int = field(default=2, kw_only=True)
    """Maximum number of times that an invalid answer goes back to the model."""
    calls: CallLimit = field(default_factory=CallLimit, kw_only=True)
    salvaged: Counter[str] = field(default_factory=Counter[str], kw_only=True)

    async def answer(
        self, template: str, described: type[BaseModel], read: Callable[[dict[str, Any]], _Answer], /, **data: object
    ) -> _Answer:
        """Ask for an object as `described`, by the request of a template filled with `data`; raises as `ask` does."""
        form = _form(self.prompts, template, described, read)
        return await self.ask(form, self.prompts.fill(template, "request", **data))

    async def ask(
        self,
        form: AnswerForm[_Answer],
        request: str | ModelRequestPart,
        *,
        instructions: str | None = None,
        history: Sequence[ModelMessage] = (),
    ) -> _Answer:
        """Ask for one answer to `request`. An invalid answer goes back to the model with feedback, at most `answers`
        times.

        `instructions` apply to this question only: a form is shared by all episodes and holds nothing specific to one.

        Raises:
            InvalidAnswer: Every answer was invalid, or one was incomplete; the message describes the last error.
            CallLimitReached: Another completion would exceed the limit.
            EpisodeAbandoned: The model refuses or fails to answer this request.
            RunStopped: The model cannot be used.
        """
        parts: list[ModelRequestPart] = [] if instructions is None else [SystemPromptPart(instructions)]
        parts.append(UserPromptPart(request) if isinstance(request, str) else request)
        messages = [*history, form.request(parts)]
        retries_left = self.answers
        while True:
            response = await self._respond(form, messages)
            try:
                answer = form.read(response)
            except (ValueError, TypeError, RecursionError) as error:
                problem = explain(error) if isinstance(error, ValidationError) else str(error)
                if not retries_left:
                    raise InvalidAnswer(_shortened(problem + _quoted(response))) from error
            else:
                if (repair := form.repair_kind(response)) is not None:
                    self.salvaged[repair] += 1
                return answer
            retries_left -= 1
            form = form.for_retry(response)
            messages += (response, form.request(_feedback(response, problem)))

    async def _respond(self, form: AnswerForm[Any], messages: Sequence[ModelMessage]) -> ModelResponse:
        model, calls = self.model, self.calls
        if calls.spent:
            raise CallLimitReached(f"the {calls.most} completions that an episode may ask for are used up")
        prepared = [*messages] if form.verbatim else model.prepare_messages([*messages], form.parameters)
        settings = form.settings.copy()
        if model.profile.get("thinking_enabled_by_default", False):
            # Many servers look for stop sequences in a model's thinking as well.
            settings.pop("stop_sequences", None)
        try:
            response = await model.request(prepared, merge_model_settings(model.settings, settings), form.parameters)
        except ContentFilterError as error:
            raise _refusal(model, str(error)) from error
        except UnexpectedModelBehavior as error:
            raise InvalidAnswer(_shortened(str(error))) from error
        calls.made += 1
        if response.finish_reason == "content_filter" and not (tool_calls_of(response) or plain_text(response)):
            raise _refusal(model, "its answer was filtered")
        if response.finish_reason == "length":  # it may look complete, and a retry would be cut off again
            raise InvalidAnswer("it was cut off at the most tokens that an answer may have")
        if response.finish_reason == "error":
            raise InvalidAnswer("it broke off")
        return response


@lru_cache(maxsize=16)
def _form(
    prompts: Prompts, template: str, described: type[BaseModel], read: Callable[[dict[str, Any]], _Answer]
) -> AnswerForm[_Answer]:
    instructions = prompts.fill(template, "instructions")
    return object_form(schema_of(described), name=described.__name__.lower(), instructions=instructions, read=read)


def _refusal(model: Model, reason: str) -> EpisodeAbandoned:
    return EpisodeAbandoned(f"{model.model_name} refused to answer: {_shortened(reason)}")


def _quoted(response: ModelResponse) -> str:
    """Return the beginning of a plain-text answer, such as a polite refusal; empty for attempted JSON."""
    text = " ".join(plain_text(response).split())
    return f"; it said {text[:_MAX_QUOTED_CHARACTERS]!r}" if text and "{" not in text else ""


def _shortened(problem: str) -> str:
    """Return the text on one line, valid as UTF-8, cut after 500 characters."""
    text = scrub(" ".join(problem.split()))
    return text if len(text) <= _MAX_ERROR_CHARACTERS else f"{text[:_MAX_ERROR_CHARACTERS]}..."


def _feedback(response: ModelResponse, problem: str) -> Sequence[ModelRequestPart]:
    """Return the feedback in one plain sentence: as the result of each tool call, or as a user's message.

    pydantic-ai would wrap it in a frame, explain the frame in a system message, and repeat the whole invalid answer.
    """
    note = f"This answer cannot be used: {problem}"
    calls = tool_calls_of(response)
    if not calls:
        return [UserPromptPart(note)]
    return [ToolReturnPart(call.tool_name, note, tool_call_id=call.tool_call_id, outcome="retried") for call in calls]
