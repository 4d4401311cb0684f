"""OpenAI's chat completions on the wire: requests read and checked, answers and errors as its clients read them."""

from collections.abc import Mapping
from typing import Annotated, Any, Literal, Self, cast

import orjson
from aiohttp import web
from pydantic import BaseModel, Field, ValidationError, model_validator

from refinesynth.text.jsontext import write_json

JSON = "application/json"
EVENTS = "text/event-stream"

MAX_BODY_BYTES = 10_000_000
"""Longest request that is read."""

PASSED_ON = frozenset(
    {
        "frequency_penalty", "max_completion_tokens", "max_tokens", "messages", "model", "parallel_tool_calls",
        "presence_penalty", "reasoning_effort", "response_format", "seed", "stop", "temperature", "tool_choice", "tools",
        "top_p", "user",
    }
)  # fmt: skip
"""Keys of a request that the completion function gets. Others are ignored, as most servers do: a key that is not meant
as an argument must not become one."""


class _Message(BaseModel):
    role: Literal["system", "developer", "user", "assistant", "tool", "function"]
    content: str | list[dict[str, Any]] | None = None

    @model_validator(mode="after")
    def _says_something(self) -> Self:
        if self.content is None and self.role != "assistant":
            raise ValueError(f"a message of the role {self.role!r} needs content")
        return self


class _ResponseFormat(BaseModel):
    type: Literal["text", "json_object", "json_schema"]
    json_schema: dict[str, Any] | None = None

    @model_validator(mode="after")
    def _has_its_schema(self) -> Self:
        if self.type == "json_schema" and not (self.json_schema or {}).get("name"):
            raise ValueError("a format of the type 'json_schema' needs a json_schema with a name")
        return self


class _StreamOptions(BaseModel):
    include_usage: bool | None = None


class _Tool(BaseModel):
    type: Literal["function"]
    function: dict[str, Any]


class _ChatRequest(BaseModel):
    """The keys of a request that are looked at; a request that is not valid never reaches the completion function."""

    model: str = Field(min_length=1)
    messages: list[_Message] = Field(min_length=1)
    stream: bool | None = None
    """Answers are whole before they are sent: a stream of them has two pieces."""
    stream_options: _StreamOptions | None = None
    response_format: _ResponseFormat | None = None
    tools: list[_Tool] | None = None
    n: Literal[1] | None = None
    """One choice is all that the completion function gives."""
    temperature: Annotated[float, Field(ge=0, le=2)] | None = None
    seed: int | None = None


async def read(request: web.Request) -> dict[str, Any] | web.Response:
    """The keys of a chat request, or why it is refused."""
    if request.content_type != JSON:
        return error(400, f"the request's content type is {request.content_type!r}; send application/json")
    try:
        body: Any = orjson.loads(await request.read())
        _ChatRequest.model_validate(body)
    except web.HTTPRequestEntityTooLarge:
        return error(413, f"the request is longer than {MAX_BODY_BYTES:,} bytes")
    except orjson.JSONDecodeError as problem:
        return error(400, f"the request is no JSON: {problem}")
    except ValidationError as problem:
        first = problem.errors(include_url=False, include_input=False, include_context=False)[0]
        param = ".".join(str(part) for part in first["loc"])
        message = f"{param or 'request'}: {first['msg'].removeprefix('Value error, ')}"
        return error(400, message, param=param or None, code="invalid_value")
    return body


def streamed(answer: Mapping[str, Any], *, usage: bool) -> bytes:
    """A whole completion as the server-sent events of a stream: what was said, why it ended, and, where it was asked
    for, what was used. That piece has no choice, and clients that did not ask for it trip over it.
    """
    about = {key: answer[key] for key in ("id", "created", "model") if key in answer}
    about["object"] = "chat.completion.chunk"
    [choice] = answer["choices"]
    said = {key: value for key, value in choice["message"].items() if value is not None}
    if calls := said.get("tool_calls"):
        said["tool_calls"] = [{"index": at, **call} for at, call in enumerate(calls)]
    pieces: list[dict[str, Any]] = [
        {**about, "choices": [{"index": 0, "delta": said, "finish_reason": None}]},
        {**about, "choices": [{"index": 0, "delta": {}, "finish_reason": choice.get("finish_reason")}]},
    ]
    if usage:
        pieces.append({**about, "choices": [], "usage": answer.get("usage")})
    return b"".join(b"data: " + piece + b"\n\n" for piece in (*map(write_json, pieces), b"[DONE]"))


def error(
    status: int, message: str, *, param: str | None = None, code: str | None = None, retry_after: int | None = None
) -> web.Response:
    """An error as OpenAI's clients read it."""
    kind = {429: "rate_limit_error"}.get(status, "invalid_request_error" if status < 500 else "server_error")  # noqa: PLR2004
    body = {"error": {"message": message, "type": kind, "param": param, "code": code}}
    headers = {} if retry_after is None else {"retry-after": str(retry_after)}
    return web.Response(body=write_json(body), status=status, content_type=JSON, headers=headers)


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
