"""What is committed in one transaction, and who waits for it."""

import asyncio
from collections.abc import Generator
from dataclasses import dataclass
from threading import Event, Lock

from refinesynth.errors import StorageError
from refinesynth.journal.rows import Row


@dataclass
class Failure:
    """Why nothing more can be committed."""

    message: str
    cause: BaseException
    reported: bool = False
    """Whether a caller got it."""

    def error(self) -> StorageError:
        """A new error for each caller that gets it, since each has a traceback of its own."""
        self.reported = True
        error = StorageError(self.message)
        error.__cause__ = self.cause
        return error


class Batch:
    """Filled by its owner until the writer takes it. Awaiting it returns when it is committed.

    Raises:
        StorageError: It could not be committed, and neither can anything after it.
    """

    def __init__(self) -> None:
        self.calls = 0
        """How often something was put in."""
        self.forget_from: int | None = None
        """Comes before everything else."""
        self.paid: list[Row] = []
        self.begun: list[Row] = []
        self.committed: list[Row] = []
        self.held: dict[int, Row] = {}
        self.totals: tuple[bytes | None] | None = None
        """The new value, None included; None: it stays."""
        self.size = 0
        """Roughly, in bytes."""
        self.failure: Failure | None = None
        self._ended = False
        self._telling = Lock()
        self._waiting: dict[asyncio.AbstractEventLoop, list[asyncio.Future[None]]] = {}
        self._blocked: list[Event] = []

    def __await__(self) -> Generator[object, None, None]:
        waiter = self._waiter()
        if waiter is not None:
            # A caller that is cancelled here takes nothing back.
            yield from waiter
        self._tell()

    def wait(self) -> None:
        """Block this thread until the batch is committed.

        Raises:
            StorageError: It could not be.
        """
        event = Event()
        with self._telling:
            if self._ended:
                event.set()
            self._blocked.append(event)
        event.wait()
        self._tell()

    def end(self, failure: Failure | None) -> None:
        """Notify all that wait, on any loop or thread."""
        self.failure = failure
        with self._telling:
            self._ended = True
        for event in self._blocked:
            event.set()
        for loop, waiting in self._waiting.items():
            try:
                loop.call_soon_threadsafe(_release, waiting)
            except RuntimeError:
                # The loop is closed: nothing waits there any more.
                continue

    def _waiter(self) -> "asyncio.Future[None] | None":
        loop = asyncio.get_running_loop()
        with self._telling:
            if self._ended:
                return None
            waiter = loop.create_future()
            self._waiting.setdefault(loop, []).append(waiter)
            return waiter

    def _tell(self) -> None:
        if self.failure is not None:
            raise self.failure.error()


def _release(waiting: "list[asyncio.Future[None]]") -> None:
    for waiter in waiting:
        if not waiter.done():
            waiter.set_result(None)
