"""The server as an ASGI application; importing this needs the extra `serve`."""

import logging
from collections.abc import AsyncGenerator
from dataclasses import dataclass
from random import Random
from typing import Any

import anyio
import orjson
from anyio.lowlevel import checkpoint
from pydantic import ValidationError
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.middleware.trustedhost import TrustedHostMiddleware
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route

from refinesynth.backends import Completion
from refinesynth.jsontext import write_json
from refinesynth.serve import wire
from refinesynth.serve.faults import HANG, Fault, HttpFaults
from refinesynth.serve.traffic import FAULT, NUMBER, Counting, Traffic

MAX_BODY_BYTES = 10_000_000
"""Longest request that is read."""

RETRY_AFTER_SECONDS = 1
"""What 429 and 503 ask a client to wait."""

_BAD_REQUEST, _NOT_FOUND, _TOO_LARGE, _CLIENT_GONE, _RATE_LIMITED = 400, 404, 413, 499, 429
_SERVER_ERROR, _UNAVAILABLE = 500, 503

_GARBAGE = (b'{"id": "chatcmpl-0", "choices": [{"index": 0, "mess', b"<html><body>Bad Gateway</body></html>", b"")
"""A connection that broke, a proxy's page, nothing at all."""

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class ChatServer:
    """The endpoints around one completion function.

    What goes wrong with a request and how long it takes depend on `seed` and on how many requests came before it, on
    nothing else.
    """

    call: Completion
    models: tuple[str, ...]
    """What `/v1/models` lists; a request may name any model."""
    latency: float
    """Seconds until an answer begins, on average."""
    jitter: float
    """Share by which that varies to either side, 0 to 1."""
    faults: HttpFaults
    seed: int
    max_body: int
    traffic: Traffic

    def app(self) -> Starlette:
        """The application. Only requests that name this machine as their host are answered.

        So no web page can reach it by a name of its own that resolves to 127.0.0.1; and because it takes JSON alone and allows
        no other origin, no page can post to it either.
        """
        counting = Middleware(Counting, traffic=self.traffic)
        return Starlette(
            routes=[
                Route("/v1/chat/completions", self.complete, methods=["POST"], middleware=[counting]),
                Route("/v1/models", self.list_models),
                Route("/health", self.health),
                Route("/stats", self.stats),
            ],
            middleware=[Middleware(TrustedHostMiddleware, allowed_hosts=["127.0.0.1", "localhost"])],
            exception_handlers={HTTPException: _http_error},
        )

    async def health(self, request: Request) -> Response:
        """Whether the server answers."""
        del request
        return _json({"status": "ok"})

    async def stats(self, request: Request) -> Response:
        """Counts of chat requests so far."""
        del request
        return _json(self.traffic.report())

    async def list_models(self, request: Request) -> Response:
        """The models by name, as OpenAI lists them."""
        del request
        data = [{"id": name, "object": "model", "created": 0, "owned_by": "refinesynth"} for name in self.models]
        return _json({"object": "list", "data": data})

    async def complete(self, request: Request) -> Response:
        """One chat completion, whole or streamed."""
        random = Random(f"{self.seed}:{request.scope[NUMBER]}")
        fault = self.faults.draw(random)
        pause = self.latency * (1.0 + self.jitter * random.uniform(-1.0, 1.0))
        try:
            body, asked = await self._read(request)
        except _RefusedError as refused:
            return refused.response
        except ClientDisconnect:
            return Response(status_code=_CLIENT_GONE)
        await anyio.sleep(pause)
        if fault is not None:
            return await _fail(request, fault, random)
        return await self._answer(body, asked, f"req_{request.scope[NUMBER]}")

    async def _read(self, request: Request) -> tuple[dict[str, Any], wire.ChatRequest]:
        kind = request.headers.get("content-type", "").partition(";")[0].strip()
        if kind != "application/json":
            message = f"the request's content type is {kind!r}; send application/json"
            raise _RefusedError(_BAD_REQUEST, wire.error_body(message, "invalid_request_error"))
        raw = bytearray()
        async for piece in request.stream():
            raw += piece
            if len(raw) > self.max_body:
                message = f"the request is longer than {self.max_body:,} bytes"
                raise _RefusedError(_TOO_LARGE, wire.error_body(message, "invalid_request_error"))
        try:
            body: Any = orjson.loads(raw)
            return body, wire.ChatRequest.model_validate(body)
        except orjson.JSONDecodeError as error:
            message = f"the request is no JSON: {error}"
            raise _RefusedError(_BAD_REQUEST, wire.error_body(message, "invalid_request_error")) from error
        except ValidationError as error:
            raise _RefusedError(_BAD_REQUEST, wire.invalid(error)) from error

    async def _answer(self, body: dict[str, Any], asked: wire.ChatRequest, request_id: str) -> Response:
        headers = {"x-request-id": request_id}
        try:
            passed_on = {key: value for key, value in body.items() if key in wire.PASSED_ON and value is not None}
            completion = wire.plain(await self.call(**passed_on))
            chunks = wire.chunks(completion, usage=asked.wants_usage) if asked.stream else ()
            events = [wire.event(chunk) for chunk in chunks]
        except Exception as error:  # noqa: BLE001 - whatever the completion function does, the next request is answered
            _log.exception("the completion function failed")
            failed = wire.error_body(f"the backend failed with {type(error).__name__}", "server_error")
            return _json(failed, status=_SERVER_ERROR, headers=headers)
        if not asked.stream:
            return _json(completion, headers=headers)
        return StreamingResponse(_streamed(events), media_type="text/event-stream", headers=headers)


class _RefusedError(Exception):
    def __init__(self, status: int, body: dict[str, Any]) -> None:
        super().__init__(status)
        self.response = _json(body, status=status)


async def _streamed(events: list[bytes]) -> AsyncGenerator[bytes]:
    for event in events:
        yield event
        # One chunk is one write, so that clients see a stream and not one long read.
        await checkpoint()
    yield wire.DONE


async def _fail(request: Request, fault: Fault, random: Random) -> Response:
    if isinstance(fault, int):
        kind = "rate_limit_error" if fault == _RATE_LIMITED else "server_error"
        code = "rate_limit_exceeded" if fault == _RATE_LIMITED else None
        wait = {"retry-after": str(RETRY_AFTER_SECONDS)} if fault in {_RATE_LIMITED, _UNAVAILABLE} else {}
        return _json(wire.error_body(f"made to fail with {fault}", kind, code=code), status=fault, headers=wait)
    request.scope[FAULT] = fault
    if fault == HANG:
        gone = False
        while not gone:
            gone = (await request.receive())["type"] == "http.disconnect"
        return Response(status_code=_CLIENT_GONE)
    return Response(random.choice(_GARBAGE), media_type="application/json")


async def _http_error(request: Request, error: Exception) -> Response:
    status = error.status_code if isinstance(error, HTTPException) else _SERVER_ERROR
    message = f"there is no {request.method} {request.url.path}"
    return _json(wire.error_body(message, "invalid_request_error", code="not_found"), status=status)


def _json(data: object, *, status: int = 200, headers: dict[str, str] | None = None) -> Response:
    return Response(write_json(data), status_code=status, headers=headers, media_type="application/json")
