"""Common base of the roles: a question to a model with bounded retries and completions.

No role calls tools in a loop, so models are called directly. An Agent of pydantic-ai would cost milliseconds of CPU for
the same request.
"""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError
from pydantic_ai.exceptions import ContentFilterError, UnexpectedModelBehavior
from pydantic_ai.messages import (
    ModelMessage,
    ModelRequestPart,
    ModelResponse,
    SystemPromptPart,
    ToolReturnPart,
    UserPromptPart,
)
from pydantic_ai.models import Model
from pydantic_ai.settings import merge_model_settings

from refinesynth.errors import EpisodeAbandoned
from refinesynth.prompts import Prompts
from refinesynth.roles.output_forms import AnswerForm, called, object_form, said
from refinesynth.roles.schemas import schema_of
from refinesynth.text.json_reader import scrub
from refinesynth.trajectory import explain

_Answer = TypeVar("_Answer")

_MOST_CHARACTERS = 500
_MOST_QUOTED = 80


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
        self,
        template: str,
        described: type[BaseModel],
        read: Callable[[dict[str, Any]], _Answer],
        /,
        **data: object,
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
        asked: list[ModelRequestPart] = [] if instructions is None else [SystemPromptPart(instructions)]
        asked.append(UserPromptPart(request) if isinstance(request, str) else request)
        messages = [*history, form.request(asked)]
        left = self.answers
        while True:
            response = await _respond(form, messages, self.model, self.calls)
            try:
                answer = form.read(response)
            except (ValueError, TypeError, RecursionError) as error:
                problem = explain(error) if isinstance(error, ValidationError) else str(error)
                if not left:
                    raise InvalidAnswer(_shortened(problem + _quoted(response))) from error
            else:
                if (repair := form.repair(response)) is not None:
                    self.salvaged[repair] += 1
                return answer
            left -= 1
            form = form.again(response)
            messages += (response, form.request(_feedback(response, problem)))


@lru_cache(maxsize=16)
def _form(
    prompts: Prompts, template: str, described: type[BaseModel], read: Callable[[dict[str, Any]], _Answer]
) -> AnswerForm[_Answer]:
    instructions = prompts.fill(template, "instructions")
    return object_form(schema_of(described), name=described.__name__.lower(), instructions=instructions, read=read)


async def _respond(
    form: AnswerForm[Any], messages: Sequence[ModelMessage], model: Model, calls: CallLimit
) -> ModelResponse:
    if calls.spent:
        raise CallLimitReached(f"the {calls.most} completions that an episode may ask for are used up")
    sent = [*messages] if form.verbatim else model.prepare_messages([*messages], form.parameters)
    own = form.settings.copy()
    if model.profile.get("thinking_enabled_by_default", False):
        # Many servers look for stop sequences in a model's thinking as well.
        own.pop("stop_sequences", None)
    try:
        response = await model.request(sent, merge_model_settings(model.settings, own), form.parameters)
    except ContentFilterError as error:
        raise _refused(model, str(error)) from error
    except UnexpectedModelBehavior as error:
        raise InvalidAnswer(_shortened(str(error))) from error
    calls.made += 1
    if response.finish_reason == "content_filter" and not (called(response) or said(response)):
        raise _refused(model, "its answer was filtered")
    if response.finish_reason == "length":  # it may look complete, and a retry would be cut off again
        raise InvalidAnswer("it was cut off at the most tokens that an answer may have")
    if response.finish_reason == "error":
        raise InvalidAnswer("it broke off")
    return response


def _refused(model: Model, why: str) -> EpisodeAbandoned:
    return EpisodeAbandoned(f"{model.model_name} refused to answer: {_shortened(why)}")


def _quoted(response: ModelResponse) -> str:
    """Return the beginning of a plain-text answer, such as a polite refusal; empty for attempted JSON."""
    words = " ".join(said(response).split())
    return f"; it said {words[:_MOST_QUOTED]!r}" if words and "{" not in words else ""


def _shortened(problem: str) -> str:
    """Return the text on one line, valid as UTF-8, cut after 500 characters."""
    text = scrub(" ".join(problem.split()))
    return text if len(text) <= _MOST_CHARACTERS else f"{text[:_MOST_CHARACTERS]}..."


def _feedback(response: ModelResponse, problem: str) -> Sequence[ModelRequestPart]:
    """Return the feedback in one plain sentence: as the result of each tool call, or as a user's message.

    pydantic-ai would wrap it in a frame, explain the frame in a system message, and repeat the whole invalid answer.
    """
    note = f"This answer cannot be used: {problem}"
    calls = called(response)
    if not calls:
        return [UserPromptPart(note)]
    return [ToolReturnPart(call.tool_name, note, tool_call_id=call.tool_call_id, outcome="retried") for call in calls]
