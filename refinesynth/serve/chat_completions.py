"""OpenAI's chat completions on the wire: validation of requests; answers, streams and errors for its clients."""

from collections.abc import Mapping
from typing import Annotated, Any, Literal

import orjson
from aiohttp import web
from pydantic import BaseModel, Field, ValidationError

from refinesynth.text.jsontext import write_json

_JSON = "application/json"
MAX_BODY_BYTES = 10_000_000
"""Longest request that is read."""

PASSED_ON = frozenset(
    {
        "frequency_penalty", "max_completion_tokens", "max_tokens", "messages", "model", "parallel_tool_calls",
        "presence_penalty", "reasoning_effort", "response_format", "seed", "stop", "temperature", "tool_choice", "tools",
        "top_p", "user",
    }
)  # fmt: skip
"""Keys of a request that the completion function gets; others are ignored."""


class _Message(BaseModel):
    role: Literal["system", "developer", "user", "assistant", "tool", "function"]
    content: str | list[dict[str, Any]] | None = None


class _JsonSchema(BaseModel):
    name: str


class _ResponseFormat(BaseModel):
    type: Literal["text", "json_object", "json_schema"]
    json_schema: _JsonSchema | None = None


class _Tool(BaseModel):
    type: Literal["function"]
    function: dict[str, Any]


class _ChatRequest(BaseModel):
    model: str = Field(min_length=1)
    messages: list[_Message] = Field(min_length=1)
    stream: bool | None = None
    stream_options: dict[str, Any] | None = None
    response_format: _ResponseFormat | None = None
    tools: list[_Tool] | None = None
    n: Literal[1] | None = None
    temperature: Annotated[float, Field(ge=0, le=2)] | None = None
    seed: int | None = None


async def read(request: web.Request) -> dict[str, Any] | web.Response:
    """Return the keys of a chat request, or the answer that refuses it."""
    if request.content_type != _JSON:
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
        message = f"{param or 'request'}: {first['msg']}"
        return error(400, message, param=param or None, code="invalid_value")
    return body


def response(data: object) -> web.Response:
    return web.Response(body=write_json(data), content_type=_JSON)


def streamed(answer: Mapping[str, Any], body: Mapping[str, Any]) -> web.Response:
    """Return a whole completion as server-sent events: the message, the finish reason, and the usage if requested.

    The usage has no choice, and clients that did not request it trip over it.
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
    options: dict[str, Any] = body.get("stream_options") or {}
    if options.get("include_usage"):
        pieces.append({**about, "choices": [], "usage": answer.get("usage")})
    content = b"".join(b"data: " + piece + b"\n\n" for piece in (*map(write_json, pieces), b"[DONE]"))
    return web.Response(body=content, content_type="text/event-stream")


def error(status: int, message: str, *, param: str | None = None, code: str | None = None) -> web.Response:
    kind = {429: "rate_limit_error"}.get(status, "invalid_request_error" if status < 500 else "server_error")  # noqa: PLR2004
    body = {"error": {"message": message, "type": kind, "param": param, "code": code}}
    return web.Response(body=write_json(body), status=status, content_type=_JSON)
