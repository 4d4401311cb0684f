"""OpenAI's chat completions on the wire: requests checked, errors and streamed answers put together."""

from collections.abc import Iterator, Mapping
from typing import Annotated, Any, Literal, Self, cast

from pydantic import BaseModel, Field, ValidationError, model_validator

from refinesynth.jsontext import write_json

PIECE = 24
"""Characters of content, or of a tool call's arguments, in one chunk of a streamed answer."""

PASSED_ON = frozenset(
    {
        "frequency_penalty", "max_completion_tokens", "max_tokens", "messages", "model", "parallel_tool_calls",
        "presence_penalty", "reasoning_effort", "response_format", "seed", "stop", "temperature", "tool_choice", "tools",
        "top_p", "user",
    }
)  # fmt: skip
"""Keys of a request that the completion function gets. Others are ignored, as most servers do: a key that is not meant as an
argument must not become one."""


class _Message(BaseModel):
    role: Literal["system", "developer", "user", "assistant", "tool", "function"]
    content: str | list[dict[str, Any]] | None = None

    @model_validator(mode="after")
    def _says_something(self) -> Self:
        if self.content is None and self.role != "assistant":
            raise ValueError(f"a message of the role {self.role!r} needs content")
        return self


class _StreamOptions(BaseModel):
    include_usage: bool = False


class _ResponseFormat(BaseModel):
    type: Literal["text", "json_object", "json_schema"]
    json_schema: dict[str, Any] | None = None

    @model_validator(mode="after")
    def _has_its_schema(self) -> Self:
        if self.type == "json_schema" and not (self.json_schema or {}).get("name"):
            raise ValueError("a format of the type 'json_schema' needs a json_schema with a name")
        return self


class _Tool(BaseModel):
    type: Literal["function"]
    function: dict[str, Any]


class ChatRequest(BaseModel):
    """The keys of a request that are looked at; a request that is not valid never reaches the completion function."""

    model: str = Field(min_length=1)
    messages: list[_Message] = Field(min_length=1)
    stream: bool | None = None
    stream_options: _StreamOptions | None = None
    response_format: _ResponseFormat | None = None
    tools: list[_Tool] | None = None
    n: Literal[1] | None = None
    """One choice is all that the completion function gives."""
    temperature: Annotated[float, Field(ge=0, le=2)] | None = None
    seed: int | None = None

    @property
    def wants_usage(self) -> bool:
        """Whether a streamed answer is to end with token counts."""
        return self.stream_options is not None and self.stream_options.include_usage


def error_body(message: str, kind: str, *, param: str | None = None, code: str | None = None) -> dict[str, Any]:
    """An error as OpenAI's clients read it."""
    return {"error": {"message": message, "type": kind, "param": param, "code": code}}


def invalid(error: ValidationError) -> dict[str, Any]:
    """A refused request as an error body that names the first parameter at fault."""
    first = error.errors(include_url=False, include_input=False, include_context=False)[0]
    param = ".".join(str(part) for part in first["loc"])
    message = f"{param or 'request'}: {first['msg'].removeprefix('Value error, ')}"
    return error_body(message, "invalid_request_error", param=param or None, code="invalid_value")


def plain(answer: object) -> dict[str, Any]:
    """What a completion function returned, as a dict: it may be one, or an object with `model_dump`, such as litellm's.

    Raises:
        TypeError: It is neither.
    """
    if isinstance(answer, Mapping):
        return dict(cast("Mapping[str, Any]", answer))
    if callable(dump := getattr(answer, "model_dump", None)):
        return cast("dict[str, Any]", dump(mode="json", exclude_none=True))
    raise TypeError(f"a completion is a dict, not {type(answer).__name__}")


def chunks(completion: Mapping[str, Any], *, usage: bool) -> Iterator[dict[str, Any]]:
    """A whole completion taken apart into the chunks of a streamed one; with `usage`, token counts come last."""
    head = {key: completion[key] for key in ("id", "created", "model") if key in completion}
    head["object"] = "chat.completion.chunk"
    if usage:
        head["usage"] = None
    for choice in completion["choices"]:
        index = choice.get("index", 0)
        for delta in _deltas(choice["message"]):
            yield {**head, "choices": [{"index": index, "delta": delta, "finish_reason": None}]}
        yield {**head, "choices": [{"index": index, "delta": {}, "finish_reason": choice.get("finish_reason")}]}
    if usage:
        yield {**head, "choices": [], "usage": completion.get("usage")}


def _deltas(message: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    content = cast("str | None", message.get("content"))
    yield {"role": "assistant", "content": None if content is None else ""}
    for piece in _pieces(content or ""):
        yield {"content": piece}
    calls = cast("list[dict[str, Any]]", message.get("tool_calls") or [])
    for index, call in enumerate(calls):
        function = call["function"]
        opening = {"name": function["name"], "arguments": ""}
        yield {"tool_calls": [{"index": index, "id": call["id"], "type": "function", "function": opening}]}
        for piece in _pieces(function["arguments"]):
            yield {"tool_calls": [{"index": index, "function": {"arguments": piece}}]}


def _pieces(text: str) -> Iterator[str]:
    return (text[start : start + PIECE] for start in range(0, len(text), PIECE))


def event(data: object) -> bytes:
    """One server-sent event."""
    return b"data: " + write_json(data) + b"\n\n"


DONE = b"data: [DONE]\n\n"
"""The event that ends a stream."""
