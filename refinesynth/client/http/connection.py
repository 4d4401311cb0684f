"""Requests to one address over connections that stay open, for as long as an event loop runs."""

import asyncio
import os
import ssl
import weakref
from base64 import b64encode
from collections.abc import AsyncGenerator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, Self

import aiohttp
import certifi
from yarl import URL

from refinesynth.client.http.choosing import proxy_of
from refinesynth.client.http.reply import HttpError

MAX_BYTES = 16 * 1024 * 1024
"""Longest answer that is read, unpacked; the longest that a model can give is about a tenth of it."""

_CONNECTIONS = 4096
"""Upper bound; only as many are opened as are needed."""
_IDLE = 4.0
"""Seconds that a connection is kept unused: less than the five after which uvicorn, and with it vLLM, drops it."""
_CONNECTING = 30.0
"""Seconds for a connection to come about; the caller limits the time of the whole request."""
_RESOLVED = 60
"""Seconds that an address is remembered."""

_SUCCESS = 200


class HttpResponse(NamedTuple):
    """An HTTP response, of any content."""

    status: int
    headers: Mapping[str, str]
    """Their names in lower case."""
    body: bytes


@dataclass(frozen=True)
class Route:
    """How a server is reached."""

    url: URL
    proxy: URL | None
    """From the environment, as for other programs; None goes straight there."""
    tls: ssl.SSLContext | None
    """Trusts the authorities in the file that SSL_CERT_FILE names, else certifi's; None for plain HTTP."""

    @classmethod
    def to(cls, url: str) -> Self:
        """The way to a server as the environment has it now."""
        address, proxy = URL(url), proxy_of(url)
        tls = _trusted() if address.scheme == "https" else None
        return cls(address, None if proxy is None else URL(proxy), tls)


class Connection:
    """One address with the headers that all requests to it have; safe for any number of tasks at once.

    The open connections belong to the running event loop. They are closed by `aclose`, or else when the loop ends or
    this object is no longer referenced; what is asked after that, in this loop or another, opens new ones.
    """

    def __init__(self, route: Route, headers: Mapping[str, str]) -> None:
        self.route = route
        self._headers = dict(headers)
        self._options: dict[str, Any] = {"allow_redirects": False}
        if route.proxy is not None:
            self._options |= {"proxy": route.proxy.with_user(None), "proxy_headers": _word_for(route.proxy)}
        self._loop: asyncio.AbstractEventLoop | None = None
        self._session: aiohttp.ClientSession | None = None
        self._forgotten: weakref.finalize[..., Self] | None = None

    def __repr__(self) -> str:
        # Without the headers, where the key is.
        return f"{type(self).__name__}({str(self.route.url)!r})"

    async def post(self, body: bytes, headers: Mapping[str, str] | None = None) -> HttpResponse:
        """Post JSON, with further headers.

        Raises:
            HttpError: The answer is too long.
            aiohttp.ClientError: The server cannot be reached, or breaks the connection off.
            OSError: Likewise.
        """
        session = self._session
        if session is None or self._loop is not asyncio.get_running_loop():
            session = await self._begin()
        try:
            async with session.post(self.route.url, data=body, headers=headers, **self._options) as answer:
                received = {name.lower(): value for name, value in answer.headers.items()}
                return HttpResponse(answer.status, received, await _read(answer, received))
        except aiohttp.ClientResponseError as error:
            # Its `repr` has the request's headers.
            why = error.message
        except (aiohttp.ClientError, OSError) as error:
            _forget_frames(error)
            raise
        raise HttpError(_SUCCESS, f"its answer is no HTTP: {why}")

    async def aclose(self) -> None:
        """Close the connections that are open; those of a loop that has ended are closed already."""
        self._session = None
        kept = None if self._forgotten is None else self._forgotten.detach()
        if kept is not None and self._loop is asyncio.get_running_loop():
            _, _, (_, guard), _ = kept
            await guard.aclose()

    async def _begin(self) -> aiohttp.ClientSession:
        self._loop = asyncio.get_running_loop()
        route = self.route
        connector = aiohttp.TCPConnector(
            limit=_CONNECTIONS, keepalive_timeout=_IDLE, ttl_dns_cache=_RESOLVED, ssl=route.tls or True
        )
        session = aiohttp.ClientSession(
            connector=connector,
            headers=self._headers,
            cookie_jar=aiohttp.DummyCookieJar(),
            timeout=aiohttp.ClientTimeout(total=None, sock_connect=_CONNECTING),
        )
        if self._forgotten is not None:
            self._forgotten.detach()
        self._session = session
        guard = _open_until_closed(session)
        # Held from outside of this object: as part of the same garbage the session would be found open.
        self._forgotten = weakref.finalize(self, _close_soon, self._loop, guard)
        self._forgotten.atexit = False
        await anext(guard)
        return session


async def _open_until_closed(session: aiohttp.ClientSession) -> AsyncGenerator[None]:
    """Close a session when this generator is closed: an event loop that ends does that to all that it has begun."""
    try:
        yield
    finally:
        await session.close()


def _close_soon(loop: asyncio.AbstractEventLoop, guard: AsyncGenerator[None]) -> None:
    """Close a generator in its loop; called in whichever thread collects the garbage. A loop that ended has closed
    it.
    """

    async def close() -> None:
        await guard.aclose()

    if not loop.is_closed():
        asyncio.run_coroutine_threadsafe(close(), loop)


async def _read(answer: aiohttp.ClientResponse, headers: Mapping[str, str]) -> bytes:
    """The body, unpacked; never more of it than may be kept."""
    if answer.content_length is not None and "content-encoding" not in headers:
        if answer.content_length > MAX_BYTES:
            raise _too_long(headers)
        return await answer.read()
    body = bytearray()
    async for piece in answer.content.iter_any():
        body += piece
        if len(body) > MAX_BYTES:
            raise _too_long(headers)
    return bytes(body)


def _too_long(headers: Mapping[str, str]) -> HttpError:
    return HttpError(_SUCCESS, f"its body is no completion: it is longer than {MAX_BYTES:,} bytes", headers)


def _forget_frames(error: BaseException) -> None:
    """Take an error's tracebacks off: the frames of aiohttp have the headers among their locals, and with them the
    key.
    """
    seen: set[int] = set()
    at: BaseException | None = error
    while at is not None and id(at) not in seen:
        seen.add(id(at))
        at.__traceback__ = None
        at = at.__cause__ or at.__context__


def _word_for(proxy: URL) -> dict[str, str]:
    """Name and password for a proxy that asks for them; aiohttp makes a Proxy-Authorization of it."""
    if proxy.user is None:
        return {}
    word = b64encode(f"{proxy.user}:{proxy.password or ''}".encode()).decode()
    return {"Authorization": f"Basic {word}"}


def _trusted() -> ssl.SSLContext:
    named = os.environ.get("SSL_CERT_FILE")
    return ssl.create_default_context(cafile=named if named and Path(named).exists() else certifi.where())
