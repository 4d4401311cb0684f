"""What was asked, in sixteen bytes: to know a request again after the process that made it has died."""

from collections.abc import Iterator, Sequence
from hashlib import blake2b

from pydantic_ai.messages import (
    ModelMessage,
    ModelRequest,
    ModelResponse,
    RetryFeedbackPart,
    SystemPromptPart,
    TextPart,
    ToolCallPart,
    ToolReturnPart,
    UserPromptPart,
)
from pydantic_ai.models import ModelRequestParameters

_SIZE = 16


def digest_of(messages: Sequence[ModelMessage], parameters: ModelRequestParameters) -> bytes:
    """A digest of the words and the name of the wanted output.

    Not in it: seed, model, server and sampling, which a run's configuration holds, and the ids and thoughts that a
    provider makes up.
    """
    # Lengths keep ("a", "bc") apart from ("ab", "c").
    whole = "".join([f"{len(text)}:{text}" for text in _words(messages, parameters)])
    return blake2b(whole.encode("utf-8", "surrogatepass"), digest_size=_SIZE).digest()


def _words(messages: Sequence[ModelMessage], parameters: ModelRequestParameters) -> Iterator[str]:
    if parameters.output_object is not None:
        yield f"output {parameters.output_object.name}"
    for tool in parameters.output_tools:
        yield f"output {tool.name}"
    if parameters.instruction_parts is not None:
        for part in parameters.instruction_parts:
            yield part.content
    for message in messages:
        if isinstance(message, ModelRequest):
            yield from _asked(message, with_instructions=parameters.instruction_parts is None)
        else:
            yield from _answered(message)


def _asked(message: ModelRequest, *, with_instructions: bool) -> Iterator[str]:
    yield f"request {(message.instructions or '') if with_instructions else ''}"
    for part in message.parts:
        yield part.part_kind
        if isinstance(part, SystemPromptPart):
            yield part.content
        elif isinstance(part, UserPromptPart):
            yield part.content if isinstance(part.content, str) else repr(part.content)
        elif isinstance(part, ToolReturnPart):
            yield part.model_response_str()
        elif isinstance(part, RetryFeedbackPart):
            yield part.model_response()


def _answered(message: ModelResponse) -> Iterator[str]:
    yield "response"
    for part in message.parts:
        if isinstance(part, TextPart):
            yield part.content
        elif isinstance(part, ToolCallPart):
            yield part.tool_name
            yield part.args_as_json_str()
