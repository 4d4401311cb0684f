"""A worker process, from both sides: how it is started and ended, and what it does in between."""

import logging
import math
import multiprocessing
import os
import pickle
import signal
import socket
import sys
from collections.abc import Iterable, Mapping
from multiprocessing.process import BaseProcess
from traceback import format_exception_only

import anyio
from anyio.abc import SocketStream

from refinesynth.client.account import CostTracker
from refinesynth.errors import ConfigurationError, RefinesynthError
from refinesynth.run import Finished
from refinesynth.run.logs import LOGGER, facts_of
from refinesynth.synthesis.collector import calm_collector
from refinesynth.synthesis.shards.channel import Channel, Closed
from refinesynth.synthesis.shards.messages import Broken, Ended, How, PlayPersona, Reserved, Said
from refinesynth.synthesis.shards.paying import RemoteTracker
from refinesynth.synthesis.shards.shard import Assignment, run_shard
from refinesynth.trajectory import Persona

_NEEDED = [
    __name__,
    "refinesynth.episode",
    "refinesynth.client.model",
    "refinesynth.client.limiter.endpoints",
    "cel",
]
"""What a worker imports sooner or later."""

_PATIENCE = 5.0
"""Seconds that a process has to end by itself, and again after it was asked to."""


async def start(assignment: Assignment) -> tuple[Channel, BaseProcess]:
    """Start a process that does what is assigned.

    Raises:
        ConfigurationError: The assignment cannot be given to another process.
    """
    ours, theirs = socket.socketpair()
    # Not forked from this process, which has threads and an event loop. From one that has nothing but modules: all
    # workers share what those take, and the next one, for one that died, is there at once. Elsewhere system libraries
    # do not bear being forked.
    context = multiprocessing.get_context("forkserver" if sys.platform == "linux" else "spawn")
    context.set_forkserver_preload(_NEEDED)
    process = context.Process(
        target=work, args=(theirs, assignment, dict(os.environ)), name="refinesynth-shard", daemon=True
    )
    try:
        await anyio.to_thread.run_sync(process.start)
    except (TypeError, AttributeError, ValueError, OSError) as error:
        ours.close()
        raise ConfigurationError(
            f"the settings cannot be given to another process ({error}): rules and completion functions must be defined "
            f"at the top of a module that can be imported. Or ask for one process"
        ) from error
    finally:
        theirs.close()
    return Channel(await SocketStream.from_socket(ours)), process


def end(process: BaseProcess) -> int | None:
    """See to it that a process that was let go ends; its exit code."""
    for insist in (lambda: None, process.terminate, process.kill):
        insist()
        process.join(_PATIENCE)
        if process.exitcode is not None:
            break
    return process.exitcode


def work(connection: socket.socket, assignment: Assignment, environment: Mapping[str, str]) -> None:
    """What a worker process does: play what it is given, until its parent lets it go or dies.

    `environment` is the parent's; the process from which this one is forked may be older than a key in it.
    """
    # Ctrl-C goes to all processes of a terminal; the parent alone decides.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    os.environ.clear()
    os.environ.update(environment)
    anyio.run(_work, connection, assignment)


async def _work(connection: socket.socket, assignment: Assignment) -> None:
    async with Channel(await SocketStream.from_socket(connection)).opened() as channel:
        parent = _Parent(channel, limited=assignment.limited)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(parent.listen)
            logger = logging.getLogger(LOGGER)
            logger.addHandler(_ToParent(channel))
            logger.setLevel(assignment.log_level)
            calm_collector()
            try:
                await run_shard(assignment, parent)
            except RefinesynthError as error:
                channel.post(Broken(_portable(error)))
                # The parent ends this process, once it has read that.
                await parent.let_go.wait()
            tasks.cancel_scope.cancel()


class _ToParent(logging.Handler):
    """Hands what is logged here on to the process in which the run is."""

    def __init__(self, channel: Channel) -> None:
        super().__init__()
        self._channel = channel

    def emit(self, record: logging.LogRecord) -> None:
        """Send one message."""
        self._channel.post(Said(record.levelno, facts_of(record)))


class _Parent:
    """The commons of worker processes: their parent has them."""

    def __init__(self, channel: Channel, *, limited: bool) -> None:
        self._channel = channel
        self._remote = RemoteTracker(channel, limited=limited)
        self.let_go = anyio.Event()
        self._give, self._given = anyio.create_memory_object_stream[PlayPersona](math.inf)

    async def listen(self) -> None:
        """Take what the parent sends, until it lets go or dies."""
        with self._give:
            try:
                while True:
                    message = await self._channel.receive()
                    if isinstance(message, PlayPersona):
                        self._give.send_nowait(message)
                    elif isinstance(message, Reserved):
                        self._remote.answered(message)
            except Closed:
                self.let_go.set()
                return

    async def next(self) -> tuple[int, Persona] | None:
        """See `Commons.next`."""
        try:
            play = await self._given.receive()
        except anyio.EndOfStream:
            self._given.close()
            return None
        return play.index, play.persona

    def tracker(self, index: int) -> CostTracker:
        """See `Commons.tracker`."""
        return self._remote.episode(index)

    def how(self, retries: int, troubles: Iterable[str]) -> None:
        """See `Commons.how`."""
        self._channel.post(How(retries, tuple(troubles)))

    def ended(self, index: int, result: Finished | Exception) -> None:
        """See `Commons.ended`."""
        self._channel.post(Ended(index, result if isinstance(result, Finished) else _portable(result)))


def _portable(error: Exception) -> Exception:
    """An error that arrives: one with arguments of its own may be written, and not be read again."""
    try:
        pickle.loads(pickle.dumps(error))  # noqa: S301 - our own
    except Exception:  # noqa: BLE001 - its class may raise anything
        return RuntimeError("".join(format_exception_only(error)).strip())
    return error
