"""Common part of the roles: one question to a model, with bounded retries and calls.

No role calls tools in a loop, so models are asked directly: an Agent of pydantic-ai costs milliseconds of CPU for the same
request.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

from pydantic import ValidationError
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
from refinesynth.roles.output_forms import AnswerForm, called, said
from refinesynth.text.json_reader import scrub
from refinesynth.trajectory import explain

_Answer = TypeVar("_Answer")

_MOST_CHARACTERS = 500
_MOST_QUOTED = 80


class InvalidAnswer(EpisodeAbandoned):
    """A model's answer stayed invalid although the request said what is wrong; another attempt may do better."""

    def __init__(self, problem: str) -> None:
        super().__init__(f"the answer stayed invalid: {problem}")
        self.problem = problem
        """Fault of the last answer."""


class CallLimitReached(EpisodeAbandoned):
    """The completions that the episode may ask for are used up."""


@dataclass
class CallLimit:
    """Counts of completions that were asked for and answered, and their bound; shared by the roles of one episode."""

    most: int | None = None
    """None sets no bound."""
    made: int = 0

    @property
    def spent(self) -> bool:
        """Return whether no further completion may be asked for."""
        return self.most is not None and self.made >= self.most


@dataclass
class Actor:
    """A role: a model, and the prompts that it is asked with."""

    model: Model
    prompts: Prompts
    answers: int = field(default=2, kw_only=True)
    """Number of times that an invalid answer goes back to the model."""
    calls: CallLimit = field(default_factory=CallLimit, kw_only=True)
    salvaged: Counter[str] = field(default_factory=Counter[str], kw_only=True)

    async def ask(
        self,
        form: AnswerForm[_Answer],
        request: str | ModelRequestPart,
        *,
        instructions: str | None = None,
        history: Sequence[ModelMessage] = (),
    ) -> _Answer:
        """One answer to `request`; what cannot be used goes back to the model in words, `answers` times at most.

        `instructions` are those of this question alone: a form is shared, so what differs between episodes is not in
        it.

        Raises:
            InvalidAnswer: Every answer was invalid; the message says what was wrong with the last.
            CallsSpent: Another completion would be one too many.
            EpisodeAbandoned: The model refuses to answer this, or cannot.
            RunStopped: The model cannot be used at all.
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
                problem = _in_words(error)
                if not left:
                    raise InvalidAnswer(_shortened(problem + _quoted(response))) from error
            else:
                if (repair := form.repair(response)) is not None:
                    self.salvaged[repair] += 1
                return answer
            left -= 1
            form = form.again(response)
            messages += (response, form.request(_feedback(response, problem)))


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
    if response.finish_reason == "length":  # it may look whole, and asked again it would be cut off again
        raise InvalidAnswer("it was cut off at the most tokens that an answer may have")
    if response.finish_reason == "error":
        raise InvalidAnswer("it broke off")
    return response


def _refused(model: Model, why: str) -> EpisodeAbandoned:
    return EpisodeAbandoned(f"{model.model_name} refused to answer: {_shortened(why)}")


def _in_words(problem: Exception) -> str:
    """Return the fault of an answer, addressed to the model that gave it."""
    return explain(problem) if isinstance(problem, ValidationError) else str(problem)


def _quoted(response: ModelResponse) -> str:
    """Return the beginning of an answer of plain words, such as a polite refusal; nothing of one that tried to be JSON."""
    words = " ".join(said(response).split())
    return f"; it said {words[:_MOST_QUOTED]!r}" if words and "{" not in words else ""


def _shortened(problem: str) -> str:
    """The same as one line of a message, fit for any file."""
    text = scrub(" ".join(problem.split()))
    return text if len(text) <= _MOST_CHARACTERS else f"{text[:_MOST_CHARACTERS]}..."


def _feedback(response: ModelResponse, problem: str) -> Sequence[ModelRequestPart]:
    """Return the feedback in one plain sentence: the result of each tool call there is, else a user's message.

    pydantic-ai would wrap it in a frame, explain the frame in a system message, and send the whole invalid answer back
    with it.
    """
    note = f"This answer cannot be used: {problem}"
    calls = called(response)
    if not calls:
        return [UserPromptPart(note)]
    return [ToolReturnPart(call.tool_name, note, tool_call_id=call.tool_call_id, outcome="retried") for call in calls]
