"""How an answer leaves: whole, in pieces, too slowly, or on a connection that is reset."""

import socket
import struct
from asyncio import Transport
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass

import anyio
from aiohttp import web

from refinesynth.serve.traffic import Exchange

JSON = "application/json"

DRIP_SECONDS = 0.1
"""How long after one byte of a dripping answer the next one comes."""

BREAKING = frozenset({"middle", "after", "drip"})
"""The faults that `send` knows."""

_LOOK_SECONDS = 0.25
"""How often it is looked whether a client that is kept waiting has left."""

_AT_ONCE = struct.pack("ii", 1, 0)
"""SO_LINGER: on, for no seconds."""


@dataclass(frozen=True)
class Body:
    """The body of an answer."""

    pieces: Iterable[bytes]
    """Made one by one as they are sent, so that a long body takes no room."""
    media_type: str = JSON
    length: int | None = None
    """In bytes; None for a stream without a known end."""

    @classmethod
    def of(cls, content: bytes, media_type: str = JSON) -> "Body":
        """A body in one piece."""
        return cls((content,), media_type, len(content))


async def send(
    request: web.Request, exchange: Exchange, body: Body, *, status: int = 200, headers: Mapping[str, str] | None = None
) -> web.StreamResponse:
    """Send an answer as `exchange.fault` lets it: to its end, a byte at a time, or until the connection is reset.

    Raises:
        ConnectionError: The client left, or was reset on purpose.
    """
    exchange.status = status
    fault, pause = exchange.fault, 0.0
    if fault in BREAKING:
        whole = b"".join(body.pieces)
        pause = DRIP_SECONDS if fault == "drip" else 0.0
        body = Body(_bytes(whole) if fault == "drip" else _halves(whole), body.media_type, len(whole))
    response = web.StreamResponse(status=status, headers=headers)
    response.content_type = body.media_type
    response.content_length = body.length
    await response.prepare(request)
    for number, piece in enumerate(body.pieces):
        if number and fault == "middle":
            raise await reset(request)
        await response.write(piece)
        exchange.bytes += len(piece)
        # One piece is one write, so that clients see a stream and not one long read.
        await anyio.sleep(pause)
    await response.write_eof()
    if fault == "after":
        raise await reset(request)
    return response


async def reset(request: web.Request) -> ConnectionError:
    """Close the connection with a TCP RST, so that whatever the client does next on it fails; the error is to be raised.

    What was written before is with the operating system by then.
    """
    while (transport := _open(request)) is not None and transport.get_write_buffer_size():  # noqa: ASYNC110
        await anyio.sleep(_LOOK_SECONDS)
    if transport is not None:
        with suppress(OSError):
            transport.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _AT_ONCE)
        transport.abort()
    return ConnectionResetError("reset on purpose")


async def hang(request: web.Request) -> ConnectionError:
    """Wait until the client leaves; the error is to be raised."""
    while _open(request) is not None:  # noqa: ASYNC110
        await anyio.sleep(_LOOK_SECONDS)
    return ConnectionResetError("the client left")


def _open(request: web.Request) -> Transport | None:
    """The connection, None where it was lost: aiohttp tells no handler, so this has to be looked at."""
    transport = request.transport
    return None if transport is None or transport.is_closing() else transport


def _halves(whole: bytes) -> tuple[bytes, bytes]:
    middle = len(whole) // 2
    return whole[:middle], whole[middle:]


def _bytes(whole: bytes) -> Iterable[bytes]:
    return (whole[at : at + 1] for at in range(len(whole)))
