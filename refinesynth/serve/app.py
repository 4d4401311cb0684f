"""The server as an application for aiohttp, whose parser is compiled: it takes a sixth of the time of the load that it is to bear."""

import logging
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from random import Random
from typing import Any

import anyio
import orjson
from aiohttp import web
from pydantic import ValidationError

from refinesynth.backends import Completion
from refinesynth.jsontext import write_json
from refinesynth.serve import wire
from refinesynth.serve.faults import Fault, HttpFaults
from refinesynth.serve.hostile import GARBAGE
from refinesynth.serve.sending import JSON, Body, hang, reset, send
from refinesynth.serve.spoilt import SPOILING, spoil
from refinesynth.serve.traffic import SESSION_HEADER, Exchange, Traffic

RETRY_AFTER_SECONDS = 1
"""What 429 and 503 ask a client to wait."""

_OK, _BAD_REQUEST, _TOO_LARGE, _RATE_LIMITED, _CLIENT_GONE, _SERVER_ERROR, _UNAVAILABLE = (
    200,
    400,
    413,
    429,
    499,
    500,
    503,
)
_WAITING = frozenset({_RATE_LIMITED, _UNAVAILABLE})
_HOSTS = frozenset({"127.0.0.1", "localhost"})

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]

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

    def app(self) -> web.Application:
        """The application. Only requests that name this machine as their host are answered.

        So no web page can reach it by a name of its own that resolves to 127.0.0.1; and because it takes JSON alone and allows
        no other origin, no page can post to it either.
        """
        app = web.Application(client_max_size=self.max_body, middlewares=[_guarded])
        app.router.add_post("/v1/chat/completions", self.complete)
        app.router.add_get("/v1/models", self.list_models)
        app.router.add_get("/health", self.health)
        app.router.add_get("/stats", self.stats)
        return app

    async def health(self, request: web.Request) -> web.Response:
        """Whether the server answers."""
        del request
        return _response({"status": "ok"})

    async def stats(self, request: web.Request) -> web.Response:
        """Counts of chat requests so far."""
        del request
        return _response(self.traffic.report())

    async def list_models(self, request: web.Request) -> web.Response:
        """The models by name, as OpenAI lists them."""
        del request
        data = [{"id": name, "object": "model", "created": 0, "owned_by": "refinesynth"} for name in self.models]
        return _response({"object": "list", "data": data})

    async def complete(self, request: web.Request) -> web.StreamResponse:
        """One chat completion, whole or streamed."""
        exchange = self.traffic.begin()
        try:
            return await self._complete(request, exchange)
        except ConnectionError:
            # The client left, or was left. aiohttp finds nobody to send this to, and logs no traceback.
            return web.Response(status=_CLIENT_GONE)
        finally:
            self.traffic.end(exchange)

    async def _complete(self, request: web.Request, exchange: Exchange) -> web.StreamResponse:
        random = Random(f"{self.seed}:{exchange.number}")
        fault = self.faults.draw(random)
        pause = self.latency * (1.0 + self.jitter * random.uniform(-1.0, 1.0))
        try:
            body, asked = await self._read(request)
            self.traffic.identify(exchange, session=request.headers.get(SESSION_HEADER), body=body)
            await anyio.sleep(pause)
            await _fail(request, exchange, fault, random)
            answer = await self._answer(exchange, body, asked, random)
        except _OtherwiseError as other:
            return await send(request, exchange, other.body, status=other.status, headers=other.headers)
        return await send(request, exchange, answer, headers={"x-request-id": f"req_{exchange.number}"})

    async def _read(self, request: web.Request) -> tuple[dict[str, Any], wire.ChatRequest]:
        if request.content_type != JSON:
            message = f"the request's content type is {request.content_type!r}; send application/json"
            raise _refused(_BAD_REQUEST, wire.error_body(message, "invalid_request_error"))
        try:
            body: Any = orjson.loads(await request.read())
            return body, wire.ChatRequest.model_validate(body)
        except web.HTTPRequestEntityTooLarge as error:
            message = f"the request is longer than {self.max_body:,} bytes"
            raise _refused(_TOO_LARGE, wire.error_body(message, "invalid_request_error")) from error
        except orjson.JSONDecodeError as error:
            message = f"the request is no JSON: {error}"
            raise _refused(_BAD_REQUEST, wire.error_body(message, "invalid_request_error")) from error
        except ValidationError as error:
            raise _refused(_BAD_REQUEST, wire.invalid(error)) from error

    async def _answer(self, exchange: Exchange, body: dict[str, Any], asked: wire.ChatRequest, random: Random) -> Body:
        passed_on = {key: value for key, value in body.items() if key in wire.PASSED_ON and value is not None}
        try:
            completion = wire.plain(await self.call(**passed_on))
            exchange.paid = True
            if exchange.fault in SPOILING:
                return spoil(exchange.fault, completion, random)
            if asked.stream:
                chunks = wire.chunks(completion, usage=asked.wants_usage)
                return Body((*map(wire.event, chunks), wire.DONE), media_type="text/event-stream")
            return _json(completion)
        except Exception as error:
            # Whatever the completion function does, the next request is answered.
            _log.exception("the completion function failed")
            exchange.fault = None
            message = f"the backend failed with {type(error).__name__}"
            raise _refused(_SERVER_ERROR, wire.error_body(message, "server_error")) from error


class _OtherwiseError(Exception):
    """The request gets another answer than its completion."""

    def __init__(self, status: int, body: Body, headers: Mapping[str, str] | None = None) -> None:
        super().__init__(status)
        self.status = status
        self.body = body
        self.headers = headers


def _refused(status: int, body: dict[str, Any]) -> _OtherwiseError:
    return _OtherwiseError(status, _json(body))


async def _fail(request: web.Request, exchange: Exchange, fault: Fault | None, random: Random) -> None:
    """Let a fault happen that needs no completion; one that spoils a completion is noted for later.

    Raises:
        _OtherwiseError: The fault is an answer.
        ConnectionError: It is none.
    """
    if isinstance(fault, int) or fault == "busy":
        status = fault if isinstance(fault, int) else _RATE_LIMITED
        kind = "rate_limit_error" if status == _RATE_LIMITED else "server_error"
        code = "rate_limit_exceeded" if status == _RATE_LIMITED else None
        wait = {"retry-after": str(RETRY_AFTER_SECONDS)} if fault in _WAITING else {}
        body = wire.error_body(f"made to fail with {fault}", kind, code=code)
        raise _OtherwiseError(status, _json(body), wait)
    exchange.fault = fault
    if fault == "hang":
        raise await hang(request)
    if fault == "before":
        raise await reset(request)
    if fault == "garbage":
        raise _OtherwiseError(_OK, Body.of(random.choice(GARBAGE)))


@web.middleware
async def _guarded(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Refuse other hosts, and answer what no route takes as OpenAI does."""
    if request.host.rpartition(":")[0] not in _HOSTS and request.host not in _HOSTS:
        body = wire.error_body(f"the host is {request.host!r}; ask 127.0.0.1", "invalid_request_error")
        return _response(body, status=_BAD_REQUEST)
    try:
        return await handler(request)
    except web.HTTPException as error:
        message = f"there is no {request.method} {request.path}"
        body = wire.error_body(message, "invalid_request_error", code="not_found")
        return _response(body, status=error.status)


def _json(data: object) -> Body:
    return Body.of(write_json(data))


def _response(data: object, *, status: int = 200) -> web.Response:
    return web.Response(body=write_json(data), status=status, content_type=JSON)
