"""Running the server: in the foreground for the command line, in a thread for tests and load."""

import socket
from collections.abc import AsyncGenerator, Callable, Generator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import anyio

from refinesynth.backends import Completion
from refinesynth.errors import InputError
from refinesynth.serve.faults import HttpFaults

if TYPE_CHECKING:
    from aiohttp import web

HOST = "127.0.0.1"
"""The only address that is listened on: the server has no authentication."""

_STOPPING_SECONDS = 1
"""How long a stopping server waits for answers under way; hanging ones never end."""

_BACKLOG = 2_048

_LAST_PORT = 65_535


def create_app(
    call: Completion,
    *,
    latency: float = 0.0,
    jitter: float = 0.0,
    faults: HttpFaults | None = None,
    seed: int = 0,
    log: Path | None = None,
) -> "web.Application":
    """A completion function as an OpenAI-compatible application.

    `POST /v1/chat/completions` (a stream has two pieces), `GET /v1/models`, and `GET /stats` with counts of requests, of endings by
    status or fault, of completions paid for, and of requests at once.

    Args:
        call: Gets the request's keys as keyword arguments, and returns a whole chat completion.
        latency: Seconds until an answer begins, on average.
        jitter: Share by which that varies to either side, 0 to 1.
        faults: What goes wrong on purpose; nothing if None.
        seed: Decides which request fails and how long each takes.
        log: File to which a line of JSON is appended for each chat request that has ended: whose it was, what it asked
            (a digest, its seed left out), how it ended, and whether a completion was paid for.

    Raises:
        InputError: A latency or jitter that cannot be, or a log that cannot be written.
    """
    if not 0.0 <= latency < float("inf"):
        raise InputError(f"latency is {latency!r}; it is a number of seconds, 0 or more")
    if not 0.0 <= jitter <= 1.0:
        raise InputError(f"jitter is {jitter!r}; it is a share of the latency, between 0 and 1")
    from refinesynth.serve.app import ChatServer
    from refinesynth.serve.traffic import Traffic

    return ChatServer(
        call=call,
        latency=latency,
        jitter=jitter,
        faults=faults or HttpFaults(),
        seed=seed,
        traffic=Traffic(log=log),
    ).app()


def serve(app: "web.Application", *, port: int = 8400, on_ready: Callable[[str], None] | None = None) -> None:
    """Serve on 127.0.0.1 until interrupted.

    `on_ready` is called with the server's address once connections are taken; port 0 takes any free one.

    Raises:
        InputError: The port cannot be listened on.
        KeyboardInterrupt: Ctrl-C, after the server has stopped.
    """

    async def announced() -> None:
        async with _served(app, port) as address:
            # Not before: a reader of the address may interrupt at once.
            if on_ready:
                on_ready(address)
            await anyio.sleep_forever()

    anyio.run(announced)


@contextmanager
def running(app: "web.Application", *, port: int = 0) -> Generator[str]:
    """Serve on 127.0.0.1 from another thread while the block runs, and give the server's address.

    Connections are taken from the start; port 0 takes any free one. Leaving the block stops the server within about two
    seconds, answers under way or not. An application is served once.

    Raises:
        InputError: The port cannot be listened on.
    """
    from anyio.from_thread import start_blocking_portal

    with start_blocking_portal() as portal, portal.wrap_async_context_manager(_served(app, port)) as address:
        yield address


@asynccontextmanager
async def _served(app: "web.Application", port: int) -> AsyncGenerator[str]:
    from aiohttp import web

    # What a handler does while the server stops, such as waiting for a client that hangs, is cut short.
    runner = web.AppRunner(app, access_log=None, handle_signals=False, shutdown_timeout=_STOPPING_SECONDS)
    with _listening(port) as listener:
        await runner.setup()
        try:
            await web.SockSite(runner, listener, backlog=_BACKLOG).start()
            yield f"http://{HOST}:{listener.getsockname()[1]}"
        finally:
            with anyio.CancelScope(shield=True):
                await runner.cleanup()


def _listening(port: int) -> socket.socket:
    if not 0 <= port <= _LAST_PORT:
        raise InputError(f"there is no port {port}; choose another port, 0 to {_LAST_PORT}")
    try:
        return socket.create_server((HOST, port), backlog=_BACKLOG)
    except OSError as error:
        raise InputError(f"cannot listen on {HOST}:{port}: {error}; choose another port") from error
