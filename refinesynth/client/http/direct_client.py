"""Direct HTTP client: the completion function of a backend, over connections that belong to an event loop."""

import asyncio
import os
import ssl
from base64 import b64encode
from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast

import aiohttp
import certifi
import orjson
from pydantic_ai.models import check_allow_model_requests
from yarl import URL

from refinesynth._version import __version__
from refinesynth.backends.backend import Backend
from refinesynth.backends.providers import key_of, server_of, split_model
from refinesynth.client.classify_error import causes_of
from refinesynth.client.http.reply import HttpError, Reply, read_reply, status_error
from refinesynth.client.http.transport import base_url_of, body_of, direct_obstacle, proxy_of
from refinesynth.errors import ConfigurationError

MAX_BYTES = 16 * 1024 * 1024
"""Longest response that is read, in bytes, decompressed; about ten times the longest completion of a model."""

_MAX_CONNECTIONS = 4096
_IDLE_TIMEOUT_S = 4.0
"""Seconds until an idle connection is closed; uvicorn, and thus vLLM, closes it after 5 s."""
_CONNECT_TIMEOUT_S = 30.0
"""Connection timeout in seconds; the caller limits the time of the whole request."""
_DNS_TTL_S = 60
"""Seconds that a resolved address is cached."""
_SUCCESSES = range(200, 300)
_ENDPOINT = "chat/completions"
_NO_KEY = "none"
"""Placeholder key for servers that need none; litellm sends the same."""


class DirectCompletion:
    """Replacement for `litellm.acompletion` for one model, with less CPU time per call.

    Guarantees: the same request body, parsed completion and classification of faults as with litellm. A response is
    read up to `MAX_BYTES`. Redirects are not followed. `repr` and errors hold no key, unless the server echoes it.

    Not supported: streaming, and timeouts, which the caller sets. `api_base` and `api_key` of a request are ignored:
    the constructor takes both from the backend.

    Connections belong to the running event loop. Call `aclose` before it ends; a later call, in any loop, opens new ones.
    """

    def __init__(self, backend: Backend) -> None:
        """Prepare requests, without an import of litellm. Raises ConfigurationError: the backend is not supported."""
        if (why_not := direct_obstacle(backend)) is not None:
            raise ConfigurationError(f"{backend.label} cannot be asked with path=direct: {why_not}; take path=auto")
        self._provider, self.model = split_model(backend.model)
        address = base_url_of(backend).rstrip("/")
        self.url = URL(address if address.endswith(_ENDPOINT) else f"{address}/{_ENDPOINT}")
        key = key_of(backend)
        if self._provider == "hosted_vllm" and server_of(backend) is None:
            # The server comes from the provider's own variable and may get the key from the provider's own variable.
            key = key or os.environ.get("HOSTED_VLLM_API_KEY")
        proxy = proxy_of(address)
        self.proxy = None if proxy is None else URL(proxy)
        """Proxy from the environment; None without a proxy."""
        self.tls = _tls_context() if self.url.scheme == "https" else None
        """TLS context with the authorities in the file that SSL_CERT_FILE names, else certifi's; None for HTTP."""
        self._headers = {
            "Authorization": f"Bearer {key or _NO_KEY}",
            "Content-Type": "application/json",
            "User-Agent": f"refinesynth/{__version__}",
        }
        self._options: dict[str, Any] = {"allow_redirects": False}
        if self.proxy is not None:
            self._options |= {"proxy": self.proxy.with_user(None), "proxy_headers": _proxy_headers(self.proxy)}
        self._loop: asyncio.AbstractEventLoop | None = None
        self._session: aiohttp.ClientSession | None = None

    def __repr__(self) -> str:
        # Without the headers, which hold the key.
        return f"{type(self).__name__}({self.model!r}, {str(self.url)!r})"

    async def __call__(self, **request: object) -> Reply:
        """Return one completion.

        Raises:
            UnsupportedParamsError: The provider does not accept one of the arguments.
            HttpError: The response is an error, no JSON object, or too long.
            aiohttp.ClientError: The server is unreachable or drops the connection.
            OSError: The same, reported by the operating system.
        """
        check_allow_model_requests()
        body = body_of(request, provider=self._provider, model=self.model)
        headers = cast("Mapping[str, str] | None", request.get("extra_headers"))
        status, response_headers, response_body = await self._post(orjson.dumps(body), headers)
        if status not in _SUCCESSES:
            raise status_error(status, response_body, response_headers)
        return read_reply(response_body, response_headers)

    async def _post(self, body: bytes, headers: Mapping[str, str] | None) -> tuple[int, dict[str, str], bytes]:
        """Return status, headers with lower-case names, and body of the response."""
        session = self._session
        if session is None or self._loop is not asyncio.get_running_loop():
            session = await self._open_session()
        try:
            async with session.post(self.url, data=body, headers=headers, **self._options) as response:
                received = {name.lower(): value for name, value in response.headers.items()}
                return response.status, received, await _read(response, received)
        except aiohttp.ClientResponseError as error:
            # Only the message: the error's `repr` has the request's headers.
            reason = error.message
        except (aiohttp.ClientError, OSError) as error:
            # Local variables in aiohttp's frames hold the headers with the key.
            for cause in causes_of(error):
                cause.__traceback__ = None
            raise
        raise HttpError(200, f"its answer is no HTTP: {reason}")

    async def aclose(self) -> None:
        """Close the open connections; a later call opens new ones."""
        session, self._session = self._session, None
        if session is not None and self._loop is asyncio.get_running_loop():
            await session.close()

    async def _open_session(self) -> aiohttp.ClientSession:
        self._loop = asyncio.get_running_loop()
        connector = aiohttp.TCPConnector(
            limit=_MAX_CONNECTIONS, keepalive_timeout=_IDLE_TIMEOUT_S, ttl_dns_cache=_DNS_TTL_S, ssl=self.tls or True
        )
        session = aiohttp.ClientSession(
            connector=connector,
            headers=self._headers,
            cookie_jar=aiohttp.DummyCookieJar(),
            timeout=aiohttp.ClientTimeout(total=None, sock_connect=_CONNECT_TIMEOUT_S),
        )
        self._session = session
        return session


async def _read(response: aiohttp.ClientResponse, headers: Mapping[str, str]) -> bytes:
    if response.content_length is not None and "content-encoding" not in headers:
        if response.content_length > MAX_BYTES:
            raise _too_long(headers)
        return await response.read()
    body = bytearray()
    async for chunk in response.content.iter_any():
        body += chunk
        if len(body) > MAX_BYTES:
            raise _too_long(headers)
    return bytes(body)


def _too_long(headers: Mapping[str, str]) -> HttpError:
    return HttpError(200, f"its body is no completion: it is longer than {MAX_BYTES:,} bytes", headers)


def _proxy_headers(proxy: URL) -> dict[str, str]:
    """Return the header with a proxy's user and password, for aiohttp's `proxy_headers`; empty without a user."""
    if proxy.user is None:
        return {}
    credentials = b64encode(f"{proxy.user}:{proxy.password or ''}".encode()).decode()
    return {"Authorization": f"Basic {credentials}"}


def _tls_context() -> ssl.SSLContext:
    file = os.environ.get("SSL_CERT_FILE")
    return ssl.create_default_context(cafile=file if file and Path(file).exists() else certifi.where())
