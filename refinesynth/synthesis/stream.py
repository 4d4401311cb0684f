"""`stream`: a run whose trajectories are taken as they come."""

import math
from collections.abc import AsyncGenerator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from types import TracebackType
from typing import Any, NoReturn, Self

import anyio
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream

from refinesynth.synthesis.configured import merged, takes_what
from refinesynth.synthesis.progress import Progress
from refinesynth.synthesis.request import Request
from refinesynth.synthesis.result import SynthesisResult
from refinesynth.synthesis.room import most_of
from refinesynth.synthesis.setup import Begun, begin
from refinesynth.synthesis.synthesize import synthesize
from refinesynth.trajectory import Trajectory


class TrajectoryStream:
    """Accepted trajectories, in the order of the personas, each as soon as it is on disk. To be iterated once."""

    def __init__(self, run: Begun, received: MemoryObjectReceiveStream[Trajectory]) -> None:
        self._run = run
        self._received = received
        self._failure: Exception | None = None

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Trajectory:
        """The next trajectory.

        Raises:
            RefinesynthError: The run failed, as `synthesize` would have.
        """
        try:
            trajectory = await self._received.receive()
        except anyio.EndOfStream:
            self.raise_failure()
            raise StopAsyncIteration from None
        self._run.pool.wake()
        return trajectory

    @property
    def path(self) -> Path:
        """The run folder."""
        return self._run.folder.path

    @property
    def progress(self) -> Progress:
        """Where the run stands."""
        return self._run.pool.progress

    def result(self) -> SynthesisResult:
        """What is on disk by now: the whole run after the last trajectory, or after the `async with` block."""
        return self._run.result()

    async def drive(self, send: MemoryObjectSendStream[Trajectory]) -> None:
        """Play the run; a failure is kept for the iteration."""
        with send:
            try:
                await self._run.pool.run()
            except Exception as error:  # noqa: BLE001
                self._failure = error

    def raise_failure(self) -> None:
        """Raise what the run failed with, once."""
        failure, self._failure = self._failure, None
        if failure is not None:
            raise failure


class EnteredStream:
    """A stream before it is entered: `async with` gives it."""

    def __init__(self, entered: AbstractAsyncContextManager[TrajectoryStream]) -> None:
        self._entered = entered

    async def __aenter__(self) -> TrajectoryStream:
        """Begin the run."""
        return await self._entered.__aenter__()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool | None:
        """End it, cleanly also in the middle."""
        return await self._entered.__aexit__(kind, error, trace)

    def __aiter__(self) -> NoReturn:
        """Raises: TypeError: It was not entered, so nothing would end the run where the loop is left."""
        raise TypeError(
            "stream(...) has to be entered before it is iterated: `async with stream(...) as trajectories:`, and in the "
            "block `async for trajectory in trajectories:`"
        )


@takes_what(synthesize)
def stream(**given: Any) -> EnteredStream:
    """The run that `synthesize` makes of these arguments; `async with` gives its trajectories as they come.

    A slow consumer slows the run down: about `concurrency` of them wait in memory, then nothing new is started. Leaving
    the block early stops the run cleanly; the same call goes on with it, and gives only what is new. What was accepted
    and not taken by then is in `result()` and on disk; it is not given again.

    Raises:
        InputError: Something that was given cannot be used.
        RunStopped: No episode can go on; raised where the trajectories are taken, or else at the end of the block.
    """
    return EnteredStream(_stream(Request.of(merged(given))))


@asynccontextmanager
async def _stream(request: Request) -> AsyncGenerator[TrajectoryStream, None]:
    # Unbounded, because a commit cannot wait; `has_room` bounds it.
    send, receive = anyio.create_memory_object_stream[Trajectory](math.inf)

    def has_room() -> bool:
        return receive.statistics().current_buffer_used < most_of(
            request.settings.concurrency, workers=request.settings.workers
        )

    with send, receive:
        async with begin(request, on_accepted=send.send_nowait, has_room=has_room) as run:
            trajectories = TrajectoryStream(run, receive)
            failure: Exception | None = None
            async with anyio.create_task_group() as group:
                group.start_soon(trajectories.drive, send)
                try:
                    yield trajectories
                except Exception as error:  # noqa: BLE001
                    # Kept, so that the task group does not wrap what the caller's own block raised.
                    failure = error
                group.cancel_scope.cancel()
            if failure is not None:
                raise failure
            trajectories.raise_failure()
