"""OpenAI-compatible mock server on aiohttp, which parses HTTP in compiled code."""

import logging
import socket
from collections import Counter
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator, Mapping
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from threading import Event
from typing import Any, cast

import anyio
import orjson
from aiohttp import web
from anyio.from_thread import start_blocking_portal

from refinesynth.backends import Completion
from refinesynth.client.http.reply import HttpError
from refinesynth.errors import InputError
from refinesynth.text.json_reader import write_json

_HOST = "127.0.0.1"
"""Only address that the server listens on, because it has no authentication."""
_BACKLOG = 2_048
_CLIENT_GONE = 499

_log = logging.getLogger(__name__)


_JSON = "application/json"
MAX_BODY_BYTES = 10_000_000
"""Largest body of a request that is read."""

FORWARDED_KEYS = frozenset(
    {
        "frequency_penalty", "max_completion_tokens", "max_tokens", "messages", "model", "parallel_tool_calls",
        "presence_penalty", "reasoning_effort", "response_format", "seed", "stop", "temperature", "tool_choice", "tools",
        "top_p", "user",
    }
)  # fmt: skip
"""Keys of a request that are passed to the completion function; other keys are ignored."""


async def _read_body(request: web.Request) -> dict[str, Any] | web.Response:
    """Return the body of a chat request, or the response that refuses it."""
    if request.content_type != _JSON:
        return _refusal(400, f"the request's content type is {request.content_type!r}; send application/json")
    try:
        body: Any = orjson.loads(await request.read())
    except web.HTTPRequestEntityTooLarge:
        return _refusal(413, f"the request is longer than {MAX_BODY_BYTES:,} bytes")
    except orjson.JSONDecodeError as problem:
        return _refusal(400, f"the request is no JSON: {problem}")
    fields = cast("dict[str, Any]", body if isinstance(body, dict) else {})
    if not (fields.get("model") and fields.get("messages")):
        return _refusal(400, "the request is no object with a model and messages")
    return fields


def _response(data: object, status: int = 200) -> web.Response:
    return web.Response(body=write_json(data), status=status, content_type=_JSON)


def _stream_response(completion: Mapping[str, Any], body: Mapping[str, Any]) -> web.Response:
    """Return a whole completion as server-sent events: the message, the finish reason, and the usage if requested.

    The chunk with the usage has no choices, on which clients that did not request it fail.
    """
    shared = {key: completion[key] for key in ("id", "created", "model") if key in completion}
    shared["object"] = "chat.completion.chunk"
    [choice] = completion["choices"]
    delta = {key: value for key, value in choice["message"].items() if value is not None}
    if calls := delta.get("tool_calls"):
        delta["tool_calls"] = [{"index": index, **call} for index, call in enumerate(calls)]
    chunks: list[dict[str, Any]] = [
        {**shared, "choices": [{"index": 0, "delta": delta, "finish_reason": None}]},
        {**shared, "choices": [{"index": 0, "delta": {}, "finish_reason": choice.get("finish_reason")}]},
    ]
    options: dict[str, Any] = body.get("stream_options") or {}
    if options.get("include_usage"):
        chunks.append({**shared, "choices": [], "usage": completion.get("usage")})
    content = b"".join(b"data: " + chunk + b"\n\n" for chunk in (*map(write_json, chunks), b"[DONE]"))
    return web.Response(body=content, content_type="text/event-stream")


def _refusal(status: int, message: str, *, code: str | None = None) -> web.Response:
    kind = {429: "rate_limit_error"}.get(status, "invalid_request_error" if status < 500 else "server_error")  # noqa: PLR2004
    return _response({"error": {"message": message, "type": kind, "param": None, "code": code}}, status)


@dataclass
class _Server:
    call: Completion
    latency: float
    requests: int = 0
    in_flight: int = 0
    max_in_flight: int = 0
    by_status: Counter[str] = field(default_factory=Counter[str])

    async def answer(self, request: web.Request) -> web.Response:
        status = "none"
        self.requests += 1
        self.in_flight += 1
        self.max_in_flight = max(self.max_in_flight, self.in_flight)
        try:
            body = await _read_body(request)
            response = body if isinstance(body, web.Response) else await self._complete(body)
            status = str(response.status)
        except ConnectionError:
            # The client is gone: aiohttp sends nothing, and logs no traceback.
            response = web.Response(status=_CLIENT_GONE)
        finally:
            self.in_flight -= 1
            self.by_status[status] += 1
        return response

    async def _complete(self, body: dict[str, Any]) -> web.Response:
        await anyio.sleep(self.latency)
        try:
            arguments = {key: value for key, value in body.items() if key in FORWARDED_KEYS and value is not None}
            completion = cast("dict[str, Any]", await self.call(**arguments))
            return _stream_response(completion, body) if body.get("stream") else _response(completion)
        except HttpError as refusal:
            return _refusal(refusal.status_code, str(refusal))
        except Exception as error:  # noqa: BLE001 - whatever the completion function does, the next request is answered
            _log.exception("the completion function failed")
            return _refusal(500, f"the backend failed with {type(error).__name__}")

    async def models(self, _request: web.Request) -> web.Response:
        model = {"id": "rehearsal", "object": "model", "created": 0, "owned_by": "refinesynth"}
        return _response({"object": "list", "data": [model]})

    async def stats(self, _request: web.Request) -> web.Response:
        counts = {name: getattr(self, name) for name in ("requests", "in_flight", "max_in_flight")}
        return _response({**counts, "by_status": dict(sorted(self.by_status.items()))})


@web.middleware
async def _openai_errors(
    request: web.Request, handler: Callable[[web.Request], Awaitable[web.StreamResponse]]
) -> web.StreamResponse:
    """Refuse other host names, which a web page could resolve to 127.0.0.1, and write errors as OpenAI does."""
    if request.host.partition(":")[0] not in {_HOST, "localhost"}:
        return _refusal(400, f"the host is {request.host!r}; ask {_HOST}")
    try:
        return await handler(request)
    except web.HTTPException as error:
        return _refusal(error.status, f"there is no {request.method} {request.path}", code="not_found")


def create_app(call: Completion, *, latency: float = 0.0) -> web.Application:
    """Return an OpenAI-compatible application around a completion function.

    It serves `POST /v1/chat/completions` (a stream has two chunks and one for a requested usage), `GET /v1/models`, and
    `GET /stats` with counts of requests: all, concurrent and by status. If the completion function raises `HttpError`,
    the response has its status.

    `latency` is the time until a response begins, in seconds.
    """
    server = _Server(call, latency)
    app = web.Application(client_max_size=MAX_BODY_BYTES, middlewares=[_openai_errors])
    app.router.add_post("/v1/chat/completions", server.answer)
    app.router.add_get("/v1/models", server.models)
    app.router.add_get("/stats", server.stats)
    return app


def serve(app: web.Application, *, port: int = 8400, on_ready: Callable[[str], None]) -> None:
    """Serve until Ctrl-C; call `on_ready` with the address once connections are accepted."""
    with running(app, port=port) as address:
        on_ready(address)
        Event().wait()


@contextmanager
def running(app: web.Application, *, port: int = 0) -> Generator[str]:
    """Serve on 127.0.0.1 from another thread while the context lasts, and yield the address.

    Port 0 takes any free port. At the end the server stops within about two seconds and drops unfinished responses. An
    application can be served only once.

    Raises:
        InputError: The port cannot be listened on.
    """
    with start_blocking_portal() as portal, portal.wrap_async_context_manager(_serving(app, port)) as address:
        yield address


@asynccontextmanager
async def _serving(app: web.Application, port: int) -> AsyncGenerator[str]:
    try:
        listener = socket.create_server((_HOST, port), backlog=_BACKLOG)
    except OSError as error:
        raise InputError(f"cannot listen on {_HOST}:{port}: {error}; choose another port") from error
    # When the server stops, running handlers get one second.
    runner = web.AppRunner(app, access_log=None, handle_signals=False, shutdown_timeout=1)
    with listener:
        await runner.setup()
        try:
            await web.SockSite(runner, listener, backlog=_BACKLOG).start()
            yield f"http://{_HOST}:{listener.getsockname()[1]}"
        finally:
            with anyio.CancelScope(shield=True):
                await runner.cleanup()
