"""Running the server: in the foreground for the command line, in a thread for tests and load."""

import socket
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

import anyio

from refinesynth.backends import Completion
from refinesynth.errors import ConfigurationError, InputError
from refinesynth.serve.faults import HttpFaults

if TYPE_CHECKING:
    from starlette.applications import Starlette
    from uvicorn import Server

HOST = "127.0.0.1"
"""The only address that is listened on: whatever is served has no authentication."""

_STOPPING_SECONDS = 1
"""How long a stopping server waits for answers under way; hanging ones never end."""

_STARTING_SECONDS = 0.01
"""How often a starting server is looked at."""

_BACKLOG = 2_048

_LAST_PORT = 65_535


def create_app(
    call: Completion,
    *,
    latency: float = 0.0,
    jitter: float = 0.0,
    faults: HttpFaults | None = None,
    seed: int = 0,
    models: Sequence[str] = ("rehearsal",),
    max_body: int | None = None,
) -> "Starlette":
    """A completion function as an OpenAI-compatible application.

    `POST /v1/chat/completions` (whole or streamed), `GET /v1/models`, `GET /health`, and `GET /stats` with counts of
    requests, of endings by status, and of requests at once.

    Args:
        call: Gets the request's keys as keyword arguments, `stream` left out, and returns a whole chat completion.
        latency: Seconds until an answer begins, on average.
        jitter: Share by which that varies to either side, 0 to 1.
        faults: What goes wrong on purpose; nothing if None.
        seed: Decides which request fails and how long each takes.
        models: Names for `/v1/models`; a request may name any model.
        max_body: Longest request, in bytes; 10 MB if None.

    Raises:
        ConfigurationError: The extra `serve` is not installed.
        InputError: A latency or jitter that cannot be.
    """
    if not 0.0 <= latency < float("inf"):
        raise InputError(f"latency is {latency!r}; it is a number of seconds, 0 or more")
    if not 0.0 <= jitter <= 1.0:
        raise InputError(f"jitter is {jitter!r}; it is a share of the latency, between 0 and 1")
    try:
        from refinesynth.serve.app import MAX_BODY_BYTES, ChatServer
        from refinesynth.serve.traffic import Traffic
    except ImportError as error:
        raise _missing(error) from error
    return ChatServer(
        call=call,
        models=tuple(models),
        latency=latency,
        jitter=jitter,
        faults=faults or HttpFaults(),
        seed=seed,
        max_body=max_body or MAX_BODY_BYTES,
        traffic=Traffic(),
    ).app()


def serve(app: "Starlette", *, port: int = 8400, on_ready: Callable[[str], None] | None = None) -> None:
    """Serve on 127.0.0.1 until interrupted.

    `on_ready` is called with the server's address once connections are taken; port 0 takes any free one.

    Raises:
        ConfigurationError: The extra `serve` is not installed.
        InputError: The port cannot be listened on.
        KeyboardInterrupt: Ctrl-C, after the server has stopped.
    """
    server = _server(app)
    with _listening(port) as listener:

        async def announced() -> None:
            async with anyio.create_task_group() as group:
                group.start_soon(server.serve, [listener])
                # Not before the server handles signals: whoever reads the address may interrupt at once.
                while not server.started:  # noqa: ASYNC110 - uvicorn sets a flag, not an event
                    await anyio.sleep(_STARTING_SECONDS)
                if on_ready:
                    on_ready(_address(listener))

        anyio.run(announced)


@contextmanager
def running(app: "Starlette", *, port: int = 0) -> Generator[str]:
    """Serve on 127.0.0.1 from another thread while the block runs, and give the server's address.

    Connections are taken from the start; port 0 takes any free one. Leaving the block stops the server within about two seconds,
    answers under way or not.

    Raises:
        ConfigurationError: The extra `serve` is not installed.
        InputError: The port cannot be listened on.
    """
    from anyio.from_thread import start_blocking_portal

    server = _server(app)
    with _listening(port) as listener, start_blocking_portal() as portal:
        stopped = portal.start_task_soon(server.serve, [listener])
        try:
            yield _address(listener)
        finally:
            server.should_exit = True
            stopped.result()


def _server(app: "Starlette") -> "Server":
    try:
        import uvicorn
    except ImportError as error:
        raise _missing(error) from error
    config = uvicorn.Config(
        app,
        log_config=None,
        log_level="critical",
        access_log=False,
        lifespan="off",
        ws="none",
        backlog=_BACKLOG,
        timeout_graceful_shutdown=_STOPPING_SECONDS,
    )
    return uvicorn.Server(config)


def _listening(port: int) -> socket.socket:
    if not 0 <= port <= _LAST_PORT:
        raise InputError(f"there is no port {port}; choose another port, 0 to {_LAST_PORT}")
    try:
        return socket.create_server((HOST, port), backlog=_BACKLOG)
    except OSError as error:
        raise InputError(f"cannot listen on {HOST}:{port}: {error}; choose another port") from error


def _address(listener: socket.socket) -> str:
    return f"http://{HOST}:{listener.getsockname()[1]}"


def _missing(error: ImportError) -> ConfigurationError:
    return ConfigurationError(f"the server needs the extra `serve` ({error}): pip install 'refinesynth[serve]'")
