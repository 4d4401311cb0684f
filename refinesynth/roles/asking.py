"""What the roles have in common: one question to a model, with bounded retries and calls.

No role needs tools, so models are asked directly: an Agent of pydantic-ai costs milliseconds of CPU for the same request.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from pydantic_ai.exceptions import ContentFilterError, UnexpectedModelBehavior
from pydantic_ai.messages import ModelMessage, ModelRequestPart, ModelResponse, SystemPromptPart, UserPromptPart
from pydantic_ai.models import Model

from refinesynth.errors import EpisodeAbandoned
from refinesynth.roles.feedback import feedback, in_words, shortened
from refinesynth.roles.forms import AnswerForm, called, said

_Answer = TypeVar("_Answer")


class InvalidAnswer(EpisodeAbandoned):
    """A model's answer stayed invalid although it was told what is wrong; another attempt may do better."""

    def __init__(self, problem: str) -> None:
        super().__init__(f"the answer stayed invalid: {problem}")
        self.problem = problem
        """What was wrong with the last answer."""


class CallsSpent(EpisodeAbandoned):
    """The completions that the episode may ask for are used up."""


@dataclass
class Calls:
    """How many completions were asked for and answered, and how many may be; shared by the roles of one episode."""

    most: int | None = None
    """None sets no bound."""
    made: int = 0

    @property
    def spent(self) -> bool:
        """Whether no further completion may be asked for."""
        return self.most is not None and self.made >= self.most


async def ask(
    form: AnswerForm[_Answer],
    request: str,
    *,
    model: Model,
    calls: Calls,
    answers: int,
    instructions: str | None = None,
    history: Sequence[ModelMessage] = (),
) -> _Answer:
    """One answer to `request`; what cannot be used goes back to the model in words, `answers` times at most.

    `instructions` are those of this question alone: a form is shared, so what differs between episodes is not in it.

    Raises:
        InvalidAnswer: Every answer was invalid; the message says what was wrong with the last.
        CallsSpent: Another completion would be one too many.
        EpisodeAbandoned: The model refuses to answer this, or cannot.
        RunStopped: The model cannot be used at all.
    """
    asked: list[ModelRequestPart] = [] if instructions is None else [SystemPromptPart(instructions)]
    messages = [*history, form.request([*asked, UserPromptPart(request)])]
    while True:
        response = await _respond(form, messages, model, calls)
        try:
            return form.read(response)
        except (ValueError, TypeError, RecursionError) as error:
            problem = in_words(error)
            if not answers:
                raise InvalidAnswer(shortened(problem)) from error
        answers -= 1
        messages += (response, form.request(feedback(response, problem)))


async def _respond(
    form: AnswerForm[Any], messages: Sequence[ModelMessage], model: Model, calls: Calls
) -> ModelResponse:
    if calls.spent:
        raise CallsSpent(f"the {calls.most} completions that an episode may ask for are used up")
    sent = [*messages] if form.verbatim else model.prepare_messages([*messages], form.parameters)
    try:
        response = await model.request(sent, model.settings, form.parameters)
    except ContentFilterError as error:
        raise _refused(model, str(error)) from error
    except UnexpectedModelBehavior as error:
        raise InvalidAnswer(shortened(str(error))) from error
    calls.made += 1
    if response.finish_reason == "content_filter" and not (called(response) or said(response)):
        raise _refused(model, "its answer was filtered")
    if response.finish_reason == "length":  # it may look whole, and asked again it would be cut off again
        raise InvalidAnswer("it was cut off at the most tokens that an answer may have")
    return response


def _refused(model: Model, why: str) -> EpisodeAbandoned:
    return EpisodeAbandoned(f"{model.model_name} refused to answer: {shortened(why)}")
