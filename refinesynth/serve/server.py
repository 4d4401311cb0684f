"""The mock server on aiohttp, whose compiled parser takes a sixth of the time of the load it serves."""

import logging
import socket
from collections import Counter
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from random import Random
from threading import Event
from typing import Any, cast

import anyio
from aiohttp import web
from anyio.from_thread import start_blocking_portal

from refinesynth.backends import Completion
from refinesynth.client.http.reply import HttpError
from refinesynth.errors import InputError
from refinesynth.serve import chat_completions as chat

_HOST = "127.0.0.1"
"""The only address: the server has no authentication."""
_BACKLOG = 2_048
_CLIENT_GONE = 499

_log = logging.getLogger(__name__)


@dataclass
class _Server:
    call: Completion
    latency: float
    jitter: float
    seed: int
    requests: int = 0
    in_flight: int = 0
    max_in_flight: int = 0
    by_status: Counter[str] = field(default_factory=Counter[str])

    def app(self) -> web.Application:
        app = web.Application(client_max_size=chat.MAX_BODY_BYTES, middlewares=[_openai_errors])
        app.router.add_post("/v1/chat/completions", self._counted)
        app.router.add_get("/v1/models", self._models)
        app.router.add_get("/stats", self._stats)
        return app

    async def _counted(self, request: web.Request) -> web.Response:
        number, ending = self.requests, "none"
        self.requests += 1
        self.in_flight += 1
        self.max_in_flight = max(self.max_in_flight, self.in_flight)
        try:
            body = await chat.read(request)
            answer = body if isinstance(body, web.Response) else await self._complete(body, number)
            ending = str(answer.status)
        except ConnectionError:
            # aiohttp has no client to send this to, and logs no traceback.
            answer = web.Response(status=_CLIENT_GONE)
        finally:
            self.in_flight -= 1
            self.by_status[ending] += 1
        return answer

    async def _complete(self, body: dict[str, Any], number: int) -> web.Response:
        spread = self.jitter * Random(f"{self.seed}:{number}").uniform(-1.0, 1.0)
        await anyio.sleep(self.latency * (1.0 + spread))
        try:
            arguments = {key: value for key, value in body.items() if key in chat.PASSED_ON and value is not None}
            answer = cast("dict[str, Any]", await self.call(**arguments))
            return chat.streamed(answer, body) if body.get("stream") else chat.response(answer)
        except HttpError as refusal:
            return chat.error(refusal.status_code, str(refusal))
        except Exception as error:  # noqa: BLE001 - whatever the completion function does, the next request is answered
            _log.exception("the completion function failed")
            return chat.error(500, f"the backend failed with {type(error).__name__}")

    async def _models(self, _request: web.Request) -> web.Response:
        model = {"id": "rehearsal", "object": "model", "created": 0, "owned_by": "refinesynth"}
        return chat.response({"object": "list", "data": [model]})

    async def _stats(self, _request: web.Request) -> web.Response:
        counts = {name: getattr(self, name) for name in ("requests", "in_flight", "max_in_flight")}
        return chat.response({**counts, "by_status": dict(sorted(self.by_status.items()))})


@web.middleware
async def _openai_errors(
    request: web.Request, handler: Callable[[web.Request], Awaitable[web.StreamResponse]]
) -> web.StreamResponse:
    """Refuse other host names, which a web page could resolve to 127.0.0.1, and write errors as OpenAI does."""
    if request.host.partition(":")[0] not in {_HOST, "localhost"}:
        return chat.error(400, f"the host is {request.host!r}; ask {_HOST}")
    try:
        return await handler(request)
    except web.HTTPException as error:
        return chat.error(error.status, f"there is no {request.method} {request.path}", code="not_found")


def create_app(call: Completion, *, latency: float = 0.0, jitter: float = 0.0, seed: int = 0) -> web.Application:
    """Return an OpenAI-compatible application around a completion function.

    It serves `POST /v1/chat/completions` (a stream has two pieces), `GET /v1/models`, and `GET /stats` with counts of
    requests by status and at once. If the completion function raises `HttpError`, its status is the answer.

    `latency` is the mean in seconds until an answer begins, `jitter` its variation to either side, 0 to 1; `seed`
    decides the latency of each request.
    """
    return _Server(call, latency, jitter, seed).app()


def serve(app: web.Application, *, port: int = 8400, on_ready: Callable[[str], None]) -> None:
    """Serve until Ctrl-C; call `on_ready` with the address once connections are accepted."""
    with running(app, port=port) as address:
        on_ready(address)
        Event().wait()


@contextmanager
def running(app: web.Application, *, port: int = 0) -> Generator[str]:
    """Serve on 127.0.0.1 from another thread while the context lasts, and yield the address.

    Port 0 takes any free one. At the end the server stops within about two seconds, dropping unfinished answers. An
    application is served once.

    Raises:
        InputError: The port cannot be listened on.
    """
    with start_blocking_portal() as portal, portal.wrap_async_context_manager(_served(app, port)) as address:
        yield address


@asynccontextmanager
async def _served(app: web.Application, port: int) -> AsyncGenerator[str]:
    try:
        listener = socket.create_server((_HOST, port), backlog=_BACKLOG)
    except OSError as error:
        raise InputError(f"cannot listen on {_HOST}:{port}: {error}; choose another port") from error
    # A handler that still runs when the server stops is cut short.
    runner = web.AppRunner(app, access_log=None, handle_signals=False, shutdown_timeout=1)
    with listener:
        await runner.setup()
        try:
            await web.SockSite(runner, listener, backlog=_BACKLOG).start()
            yield f"http://{_HOST}:{listener.getsockname()[1]}"
        finally:
            with anyio.CancelScope(shield=True):
                await runner.cleanup()
