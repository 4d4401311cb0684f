"""`stream`: a run whose trajectories are taken as they come."""

import math
from collections.abc import AsyncGenerator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Any, Self

import anyio
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream

from refinesynth.client.background_tasks import background_tasks
from refinesynth.synthesis.concurrency import most_of
from refinesynth.synthesis.configured import merged, takes_what
from refinesynth.synthesis.progress import Progress
from refinesynth.synthesis.request import Request
from refinesynth.synthesis.result import SynthesisResult
from refinesynth.synthesis.setup import StartedRun, begin
from refinesynth.synthesis.synthesize import synthesize
from refinesynth.trajectory import Trajectory


class TrajectoryStream:
    """Accepted trajectories, in the order of the personas, each as soon as it is on disk. Iterate it once."""

    def __init__(self, run: StartedRun, received: MemoryObjectReceiveStream[Trajectory]) -> None:
        self._run = run
        self._received = received
        self._failure: Exception | None = None

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Trajectory:
        """Return the next trajectory; raises what `synthesize` would have, if the run failed."""
        try:
            trajectory = await self._received.receive()
        except anyio.EndOfStream:
            self.raise_failure()
            raise StopAsyncIteration from None
        self._run.pool.wake()
        return trajectory

    @property
    def path(self) -> Path:
        return self._run.folder.path

    @property
    def progress(self) -> Progress:
        """Counts of this moment."""
        return self._run.pool.progress

    def result(self) -> SynthesisResult:
        """Return the result on disk by now: the whole run after the last trajectory, or after the `async with` block."""
        return self._run.result()

    async def drive(self, send: MemoryObjectSendStream[Trajectory]) -> None:
        with send:
            try:
                await self._run.pool.run()
            except Exception as error:  # noqa: BLE001
                self._failure = error

    def raise_failure(self) -> None:
        """Raise the run's failure, once."""
        failure, self._failure = self._failure, None
        if failure is not None:
            raise failure


@takes_what(synthesize)
def stream(**given: Any) -> AbstractAsyncContextManager[TrajectoryStream]:
    """Make the run that `synthesize` makes of these arguments; `async with` gives its trajectories as they come.

    A slow consumer slows the run down: about `concurrency` of them wait in memory, then nothing new is started. Leaving
    the block early stops the run cleanly; the same call continues it, and gives only new trajectories. Trajectories that
    were accepted and not taken by then are in `result()` and on disk.

    Raises:
        InputError: A setting cannot be used.
        RunStopped: No episode can go on; raised where the trajectories are taken, or else at the end of the block.
    """
    return _stream(Request.of(merged(given)))


@asynccontextmanager
async def _stream(request: Request) -> AsyncGenerator[TrajectoryStream, None]:
    # Unbounded, because a commit cannot wait; `has_room` bounds it.
    send, receive = anyio.create_memory_object_stream[Trajectory](math.inf)

    most = most_of(request.settings.concurrency, workers=request.settings.workers)

    def has_room() -> bool:
        return receive.statistics().current_buffer_used < most

    with send, receive:
        async with begin(request, on_accepted=send.send_nowait, has_room=has_room) as run:
            trajectories = TrajectoryStream(run, receive)
            async with background_tasks() as tasks:
                tasks.start_soon(trajectories.drive, send)
                yield trajectories
            trajectories.raise_failure()
