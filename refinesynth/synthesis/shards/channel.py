"""Messages between the processes of one run, over a socket pair that no other process holds."""

import math
import pickle
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress
from typing import Any, Self

import anyio
from anyio.abc import SocketStream
from anyio.streams.buffered import BufferedByteReceiveStream

_LENGTH = 4


class Closed(Exception):
    """The other side is gone."""


class Channel:
    """Whole messages in order, each a pickled value: both sides are the same program of the same user."""

    def __init__(self, stream: SocketStream) -> None:
        self._stream = stream
        self._incoming = BufferedByteReceiveStream(stream)
        self._post, self._posted = anyio.create_memory_object_stream[bytes](math.inf)

    @asynccontextmanager
    async def opened(self) -> AsyncGenerator[Self, None]:
        """Send what is posted while the block runs; closed after it."""
        async with self._stream, self._post, self._posted, anyio.create_task_group() as tasks:
            tasks.start_soon(self._pump)
            try:
                yield self
            finally:
                tasks.cancel_scope.cancel()

    def post(self, message: object) -> None:
        """Send a message, after those that were posted before; if the other side is gone, it goes nowhere."""
        data = pickle.dumps(message, protocol=pickle.HIGHEST_PROTOCOL)
        # Between the other side's death and the end of `opened` there is a moment in which nothing is sent any more.
        with suppress(anyio.BrokenResourceError, anyio.ClosedResourceError):
            self._post.send_nowait(len(data).to_bytes(_LENGTH, "big") + data)

    async def receive(self) -> Any:
        """The next message.

        Raises:
            Closed: The other side is gone.
        """
        try:
            length = int.from_bytes(await self._incoming.receive_exactly(_LENGTH), "big")
            return pickle.loads(await self._incoming.receive_exactly(length))  # noqa: S301 - see the class
        except (anyio.EndOfStream, anyio.IncompleteRead, anyio.BrokenResourceError, anyio.ClosedResourceError):
            raise Closed from None

    async def _pump(self) -> None:
        async for data in self._posted:
            try:
                await self._stream.send(data)
            except (anyio.BrokenResourceError, anyio.ClosedResourceError):
                # The receiver finds out as well.
                return
