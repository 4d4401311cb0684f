"""What a model is told about an answer that cannot be used: one plain sentence.

pydantic-ai would wrap it in a frame, explain the frame in a system message, and send the whole invalid answer back with it.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import cast

from pydantic_ai.messages import (
    ModelMessage,
    ModelRequest,
    ModelRequestPart,
    RetryFeedbackPart,
    ToolReturnPart,
    UserPromptPart,
)
from pydantic_ai.models import ModelRequestParameters
from pydantic_ai.models.wrapper import WrapperModel
from pydantic_core import ErrorDetails

_MOST_PROBLEMS = 5


class PlainFeedback(WrapperModel):
    """Tells a model in plain words what was wrong with its answer."""

    def prepare_messages(
        self, messages: list[ModelMessage], model_request_parameters: ModelRequestParameters | None = None
    ) -> list[ModelMessage]:
        return super().prepare_messages(plain(messages), model_request_parameters)


class Verbatim(WrapperModel):
    """Sends the chat as it is, but for such feedback: a player must see what training sees.

    pydantic-ai would put notes of its own beside text that looks like one of its frames, and alter text that looks like a
    chat template's token.
    """

    def prepare_messages(
        self,
        messages: list[ModelMessage],
        model_request_parameters: ModelRequestParameters | None = None,  # noqa: ARG002 - the signature is the library's
    ) -> list[ModelMessage]:
        return plain(messages)


def plain(messages: Sequence[ModelMessage]) -> list[ModelMessage]:
    """The messages with feedback in plain words."""
    return [
        replace(message, parts=[_plain(part) for part in message.parts])
        if isinstance(message, ModelRequest)
        else message
        for message in messages
    ]


def in_words(problem: object) -> str:
    """What pydantic-ai found wrong with an answer, as one line: a sentence of ours, or validation errors."""
    if not isinstance(problem, list):
        return str(problem)
    found = cast("list[ErrorDetails]", problem)
    told = [f"{'.'.join(map(str, one['loc'])) or 'answer'}: {one['msg']}" for one in found[:_MOST_PROBLEMS]]
    return "; ".join(told)


def _plain(part: ModelRequestPart) -> ModelRequestPart:
    if isinstance(part, RetryFeedbackPart):
        return UserPromptPart(_told(part.content), timestamp=part.timestamp)
    if isinstance(part, ToolReturnPart) and part.outcome == "retried":
        return replace(part, content=_told(part.content))
    return part


def _told(problem: object) -> str:
    return f"This answer cannot be used: {in_words(problem)}"
