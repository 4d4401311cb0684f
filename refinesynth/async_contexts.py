"""Contexts of asynchronous code: a deadline whose clock can stop, and background tasks."""

from collections.abc import AsyncGenerator, Generator
from contextlib import AbstractContextManager, asynccontextmanager, contextmanager, nullcontext
from contextvars import ContextVar

import anyio
import anyio.abc

_deadline: ContextVar["Deadline | None"] = ContextVar("deadline", default=None)


class Deadline:
    """Cancel scope whose clock stops while at least one `stopped` context lasts."""

    def __init__(self, scope: anyio.CancelScope) -> None:
        self._scope = scope
        self._remaining = 0.0
        self._stop_count = 0

    @property
    def passed(self) -> bool:
        """True if the time ran out and the work was cancelled."""
        return self._scope.cancelled_caught

    @contextmanager
    def stopped(self) -> Generator[None]:
        if not self._stop_count:
            self._remaining = self._scope.deadline - anyio.current_time()
            self._scope.deadline = float("inf")
        self._stop_count += 1
        try:
            yield
        finally:
            self._stop_count -= 1
            if not self._stop_count:
                self._scope.deadline = anyio.current_time() + self._remaining


@contextmanager
def deadline(seconds: float | None) -> Generator[Deadline]:
    """Cancel the block after this many seconds (`Deadline.passed` is then True); None sets no limit."""
    limit = float("inf") if seconds is None else anyio.current_time() + seconds
    with anyio.CancelScope(deadline=limit) as scope:
        clock = Deadline(scope)
        token = _deadline.set(clock)
        try:
            yield clock
        finally:
            _deadline.reset(token)


def current_deadline() -> Deadline | None:
    """Return the innermost deadline of this task."""
    return _deadline.get()


def stopped_clock() -> AbstractContextManager[None]:
    """Stop the clock of this task's deadline while the context lasts."""
    clock = current_deadline()
    return nullcontext() if clock is None else clock.stopped()


@asynccontextmanager
async def background_tasks() -> AsyncGenerator[anyio.abc.TaskGroup]:
    """Yield a task group, cancelled at the context's end; raise the block's error or a task's first without a group."""
    failure: Exception | None = None
    try:
        async with anyio.create_task_group() as tasks:
            try:
                yield tasks
            except Exception as error:  # noqa: BLE001 - raised below: the task group would wrap it
                failure = error
            tasks.cancel_scope.cancel()
    except ExceptionGroup as errors:
        failure = failure or errors.exceptions[0]
    if failure is not None:
        raise failure
