"""The server as an application for aiohttp, whose parser is compiled: it takes a sixth of the time of the load that it
is to bear.
"""

import logging
import socket
import struct
from asyncio import Transport
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass
from random import Random
from typing import Any

import anyio
from aiohttp import web

from refinesynth.backends import Completion
from refinesynth.client.http.reply import HttpError
from refinesynth.serve import wire
from refinesynth.serve.faults import HttpFaults
from refinesynth.serve.traffic import SESSION_HEADER, Exchange, Traffic
from refinesynth.text.jsontext import write_json

RETRY_AFTER_SECONDS = 1
"""What 429 and 503 ask a client to wait."""

DRIP_SECONDS = 0.1
"""How long after one byte of a dripping answer the next one comes."""

GARBAGE = (
    b'{"id": "chatcmpl-0", "choices": [{"index": 0, "mess',
    b"<!doctype html><html><head><title>502 Bad Gateway</title></head><body>Bad Gateway</body></html>",
    b"",
    b"\xff\xfe{\x00}\x00",
    b'data: {"choices": []}\n\ndata: [DONE]\n\n',
    b'{"choices": [{"message": {"content": "\xed\xa0\x80"}}]}',
)
"""A connection that broke, a proxy's page, nothing at all, UTF-16, a stream that was not asked for, a surrogate in
UTF-8."""

_BUSY, _CLIENT_GONE = 429, 499
_WAITING = frozenset({_BUSY, 503})
_HOSTS = frozenset({"127.0.0.1", "localhost"})

_LOOK_SECONDS = 0.25
"""How often it is looked whether a client that is kept waiting has left."""

_AT_ONCE = struct.pack("ii", 1, 0)
"""SO_LINGER: on, for no seconds."""

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class ChatServer:
    """The endpoints around one completion function; where it raises `HttpError`, that is the answer.

    What goes wrong with a request and how long it takes depend on `seed` and on how many requests came before it, on
    nothing else.
    """

    call: Completion
    latency: float
    """Seconds until an answer begins, on average."""
    jitter: float
    """Share by which that varies to either side, 0 to 1."""
    faults: HttpFaults
    seed: int
    traffic: Traffic

    def app(self) -> web.Application:
        """The application. Only requests that name this machine as their host are answered.

        So no web page can reach it by a name of its own that resolves to 127.0.0.1; and because it takes JSON alone and
        allows no other origin, no page can post to it either.
        """
        app = web.Application(client_max_size=wire.MAX_BODY_BYTES, middlewares=[_guarded])
        app.router.add_post("/v1/chat/completions", self.complete)
        app.router.add_get("/v1/models", self.list_models)
        app.router.add_get("/stats", self.stats)
        return app

    async def stats(self, request: web.Request) -> web.Response:
        """Counts of chat requests so far."""
        del request
        return _response(self.traffic.report())

    async def list_models(self, request: web.Request) -> web.Response:
        """As OpenAI lists models; a request may name any."""
        del request
        model = {"id": "rehearsal", "object": "model", "created": 0, "owned_by": "refinesynth"}
        return _response({"object": "list", "data": [model]})

    async def complete(self, request: web.Request) -> web.StreamResponse:
        """One chat completion."""
        exchange = self.traffic.begin()
        try:
            answer = await self._complete(request, exchange)
            exchange.status = answer.status
        except ConnectionError:
            # The client left, or was left. aiohttp has no client to send this to, and logs no traceback.
            answer = web.Response(status=_CLIENT_GONE)
        finally:
            self.traffic.end(exchange)
        return answer

    async def _complete(self, request: web.Request, exchange: Exchange) -> web.StreamResponse:
        random = Random(f"{self.seed}:{exchange.number}")
        fault = self.faults.draw(random)
        pause = self.latency * (1.0 + self.jitter * random.uniform(-1.0, 1.0))
        body = await wire.read(request)
        if isinstance(body, web.Response):
            return body
        self.traffic.identify(exchange, session=request.headers.get(SESSION_HEADER), body=body)
        await anyio.sleep(pause)
        if isinstance(fault, int) or fault == "busy":
            status = fault if isinstance(fault, int) else _BUSY
            code = "rate_limit_exceeded" if status == _BUSY else None
            wait = RETRY_AFTER_SECONDS if fault in _WAITING else None
            return wire.error(status, f"made to fail with {fault}", code=code, retry_after=wait)
        exchange.fault = fault
        if fault == "hang":
            await _left(request)
        if fault == "before":
            await _reset(request)
        if fault == "garbage":
            return web.Response(body=random.choice(GARBAGE), content_type=wire.JSON)
        try:
            asked = {key: value for key, value in body.items() if key in wire.PASSED_ON and value is not None}
            whole = wire.plain(await self.call(**asked))
            answer = _stream(whole, body) if body.get("stream") else _response(whole)
        except HttpError as refusal:
            exchange.fault = None
            return wire.error(refusal.status_code, str(refusal))
        except Exception as error:  # noqa: BLE001 - whatever the completion function does, the next request is answered
            _log.exception("the completion function failed")
            exchange.fault = None
            return wire.error(500, f"the backend failed with {type(error).__name__}")
        exchange.paid = True
        return answer if fault is None else await _broken(request, exchange, answer)


def _stream(whole: dict[str, Any], body: dict[str, Any]) -> web.Response:
    options: dict[str, Any] = body.get("stream_options") or {}
    return web.Response(body=wire.streamed(whole, usage=bool(options.get("include_usage"))), content_type=wire.EVENTS)


async def _broken(request: web.Request, exchange: Exchange, answer: web.Response) -> web.StreamResponse:
    """Send an answer a byte at a time, or until the connection is reset in its middle or after its end.

    Raises:
        ConnectionError: The client left, or was reset on purpose.
    """
    whole = bytes(answer.body)  # pyright: ignore[reportArgumentType]
    step = 1 if exchange.fault == "drip" else len(whole) // 2 if exchange.fault == "middle" else len(whole)
    response = web.StreamResponse(status=answer.status)
    response.content_type, response.content_length = answer.content_type, len(whole)
    exchange.status = response.status
    await response.prepare(request)
    for start in range(0, len(whole), step):
        await response.write(whole[start : start + step])
        if exchange.fault == "middle":
            await _reset(request)
        await anyio.sleep(DRIP_SECONDS if exchange.fault == "drip" else 0.0)
    await response.write_eof()
    if exchange.fault == "after":
        await _reset(request)
    return response


async def _reset(request: web.Request) -> None:
    """Close the connection with a TCP RST, so that whatever the client does next on it fails.

    What was written before is with the operating system by then.

    Raises:
        ConnectionResetError: Always.
    """
    while (transport := _open(request)) is not None and transport.get_write_buffer_size():  # noqa: ASYNC110
        await anyio.sleep(_LOOK_SECONDS)
    if transport is not None:
        with suppress(OSError):
            transport.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _AT_ONCE)
        transport.abort()
    raise ConnectionResetError("reset on purpose")


async def _left(request: web.Request) -> None:
    """Wait until the client leaves.

    Raises:
        ConnectionResetError: Then.
    """
    while _open(request) is not None:  # noqa: ASYNC110
        await anyio.sleep(_LOOK_SECONDS)
    raise ConnectionResetError("the client left")


def _open(request: web.Request) -> Transport | None:
    """The connection, None where it was lost: aiohttp tells no handler, so this has to be looked at."""
    transport = request.transport
    return None if transport is None or transport.is_closing() else transport


@web.middleware
async def _guarded(
    request: web.Request, handler: Callable[[web.Request], Awaitable[web.StreamResponse]]
) -> web.StreamResponse:
    """Refuse other hosts, and answer what no route takes as OpenAI does."""
    if request.host.rpartition(":")[0] not in _HOSTS and request.host not in _HOSTS:
        return wire.error(400, f"the host is {request.host!r}; ask 127.0.0.1")
    try:
        return await handler(request)
    except web.HTTPException as error:
        return wire.error(error.status, f"there is no {request.method} {request.path}", code="not_found")


def _response(data: object) -> web.Response:
    return web.Response(body=write_json(data), content_type=wire.JSON)
