"""The deadline of an episode, which stands still while its requests wait for a backend that is down."""

from collections.abc import Generator
from contextlib import contextmanager
from contextvars import ContextVar

import anyio

_current: ContextVar["Deadline | None"] = ContextVar("deadline", default=None)


class Deadline:
    """A cancel scope whose time can be stopped; by several at once, and then until the last of them goes on."""

    def __init__(self, scope: anyio.CancelScope) -> None:
        self._scope = scope
        self._left = 0.0
        self._stops = 0

    @property
    def passed(self) -> bool:
        """True if the time was up and the work was cancelled."""
        return self._scope.cancelled_caught

    def stop(self) -> None:
        """The time stands still from now on."""
        if not self._stops:
            self._left = self._scope.deadline - anyio.current_time()
            self._scope.deadline = float("inf")
        self._stops += 1

    def go_on(self) -> None:
        """Undo one `stop`."""
        self._stops -= 1
        if not self._stops:
            self._scope.deadline = anyio.current_time() + self._left


@contextmanager
def deadline(seconds: float | None) -> Generator[Deadline]:
    """Cancel the block after this long, None for never; what it was in time for is kept (`Deadline.passed`)."""
    limit = float("inf") if seconds is None else anyio.current_time() + seconds
    with anyio.CancelScope(deadline=limit) as scope:
        found = Deadline(scope)
        token = _current.set(found)
        try:
            yield found
        finally:
            _current.reset(token)


def current_deadline() -> Deadline | None:
    """The innermost deadline around this task's work."""
    return _current.get()
