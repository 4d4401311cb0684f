"""The mock server with requests that fail at random, and with a log of what was paid for."""

import socket
import struct
from asyncio import Transport
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from hashlib import blake2b
from pathlib import Path
from random import Random
from typing import Any

import anyio
import orjson
from aiohttp import web

from refinesynth.backends import Completion
from refinesynth.serve import create_app

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]

FAULTS = ("busy", "hang", "before", "garbage", "drip", "middle", "after")
"""429 without Retry-After; never answered; reset (TCP RST) before any byte; status 200 and no JSON; a byte at a time;
reset in the middle of the body; reset after it. The last three break a whole answer, so their requests are paid."""

DRIP_SECONDS = 0.1
"""Between one byte of a dripping answer and the next."""

GARBAGE = (
    b'{"id": "chatcmpl-0", "choices": [{"index": 0, "mess',
    b"<!doctype html><html><head><title>502 Bad Gateway</title></head><body>Bad Gateway</body></html>",
    b"",
    b"\xff\xfe{\x00}\x00",
    b'data: {"choices": []}\n\ndata: [DONE]\n\n',
    b'{"choices": [{"message": {"content": "\xed\xa0\x80"}}]}',
)
"""A connection that broke, a proxy's page, nothing, UTF-16, a stream nobody requested, a surrogate in UTF-8."""

_WAITING = frozenset({429, 503})
"""Statuses that come with Retry-After."""
_LOOK_SECONDS = 0.25
_LINGER_FOR_NO_SECONDS = struct.pack("ii", 1, 0)


@dataclass
class _Line:
    """Of the log."""

    number: int
    session: str | None
    seed: object
    digest: str
    """Of the request's body without its seed."""
    status: int | None = None
    paid: bool = False


def faulty_app(
    call: Completion,
    faults: Mapping[int | str, float] | None = None,
    *,
    latency: float = 0.0,
    jitter: float = 0.0,
    seed: int = 0,
    log: Path | None = None,
) -> web.Application:
    """Return the mock server with these shares of requests failing: HTTP statuses, and names of `FAULTS`.

    The fault of a request depends on `seed` and on how many requests came before it. `log` gets a line of JSON for each
    request that has ended.
    """
    server = _Faulty(dict(faults or {}), latency, jitter, seed, log)
    app = create_app(call, latency=latency)
    app.middlewares.append(server.middleware)
    return app


@dataclass
class _Faulty:
    faults: dict[int | str, float]
    latency: float
    jitter: float
    seed: int
    log: Path | None
    requests: int = 0
    in_flight: int = 0
    max_in_flight: int = 0
    by_status: Counter[str] = field(default_factory=Counter[str])

    def __post_init__(self) -> None:
        assert all(isinstance(fault, int) or fault in FAULTS for fault in self.faults)

    @web.middleware
    async def middleware(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        if request.path == "/stats":
            counts = {name: getattr(self, name) for name in ("requests", "in_flight", "max_in_flight", "by_status")}
            return web.json_response(counts)
        if request.method != "POST":
            return await handler(request)
        body = await request.json()
        line = _Line(self.requests, request.headers.get("x-session-id"), body.get("seed"), _digest(body))
        self.requests += 1
        self.in_flight += 1
        self.max_in_flight = max(self.max_in_flight, self.in_flight)
        random = Random(f"{self.seed}:{line.number}")
        fault = self.draw(random)
        try:
            if fault in {"drip", "middle", "after", None}:
                answer = await handler(request)
                line.status, line.paid = answer.status, answer.status == web.HTTPOk.status_code
                if not line.paid:
                    fault = None
                elif fault is not None:
                    assert isinstance(answer, web.Response)
                    answer = await _broken(request, str(fault), answer)
            else:
                await anyio.sleep(self.latency * (1.0 + self.jitter * random.uniform(-1.0, 1.0)))
                answer = await _failed(request, fault, random.choice(GARBAGE))
                line.status = answer.status
        except ConnectionError:
            # aiohttp has no client to send this to, and logs no traceback.
            answer = web.Response(status=499)
        finally:
            self.in_flight -= 1
            self.by_status[str(line.status or "none" if fault in {None, "busy"} else fault)] += 1
            if self.log is not None:
                with self.log.open("ab", buffering=0) as file:
                    file.write(orjson.dumps(asdict(line), default=str) + b"\n")
        return answer

    def draw(self, random: Random) -> int | str | None:
        point = random.random()
        for fault, share in self.faults.items():
            if point < share:
                return fault
            point -= share
        return None


def _digest(body: Mapping[str, Any]) -> str:
    asked = {key: value for key, value in body.items() if key != "seed"}
    return blake2b(orjson.dumps(asked, option=orjson.OPT_SORT_KEYS), digest_size=16).hexdigest()


async def _failed(request: web.Request, fault: int | str | None, garbage: bytes) -> web.Response:
    """Answer without a completion."""
    if fault == "hang":
        while _open(request) is not None:  # noqa: ASYNC110
            await anyio.sleep(_LOOK_SECONDS)
        raise ConnectionResetError("the client left")
    if fault == "before":
        await _reset(request)
    if fault == "garbage":
        return web.Response(body=garbage, content_type="application/json")
    status = fault if isinstance(fault, int) else 429
    kind = {429: "rate_limit_error"}.get(status, "invalid_request_error" if status < 500 else "server_error")
    code = "rate_limit_exceeded" if status == 429 else None
    error = {"message": f"made to fail with {fault}", "type": kind, "param": None, "code": code}
    headers = {"retry-after": "1"} if fault in _WAITING else {}
    return web.json_response({"error": error}, status=status, headers=headers)


async def _broken(request: web.Request, fault: str, answer: web.Response) -> web.StreamResponse:
    """Send an answer a byte at a time, or until the connection is reset in its middle or after its end."""
    whole = bytes(answer.body)  # pyright: ignore[reportArgumentType]
    step = 1 if fault == "drip" else len(whole) // 2 if fault == "middle" else len(whole)
    response = web.StreamResponse(status=answer.status)
    response.content_type, response.content_length = answer.content_type, len(whole)
    await response.prepare(request)
    for start in range(0, len(whole), step):
        await response.write(whole[start : start + step])
        if fault == "middle":
            await _reset(request)
        await anyio.sleep(DRIP_SECONDS if fault == "drip" else 0.0)
    await response.write_eof()
    if fault == "after":
        await _reset(request)
    return response


async def _reset(request: web.Request) -> None:
    """Close the connection with a TCP RST, so that whatever the client does next on it fails.

    What was written before is with the operating system by then.
    """
    while (transport := _open(request)) is not None and transport.get_write_buffer_size():  # noqa: ASYNC110
        await anyio.sleep(_LOOK_SECONDS)
    if transport is not None:
        with suppress(OSError):
            transport.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _LINGER_FOR_NO_SECONDS)
        transport.abort()
    raise ConnectionResetError("reset on purpose")


def _open(request: web.Request) -> Transport | None:
    """The connection, None where it was lost: aiohttp does not notify handlers."""
    transport = request.transport
    return None if transport is None or transport.is_closing() else transport
