"""An event loop whose time passes only when nobody has anything to do: hours in milliseconds, the same every time."""

import asyncio
import selectors
from collections.abc import Awaitable, Callable
from typing import TypeVar

import anyio

_Result = TypeVar("_Result")


class _Selector(selectors.DefaultSelector):
    """Instead of waiting, puts the clock on."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 1_000.0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        ready = super().select(0)
        if not ready:
            if timeout is None:
                raise AssertionError("everyone waits for something that never comes")
            self.now += max(timeout, 0.0)
        return ready


class VirtualLoop(asyncio.SelectorEventLoop):
    def __init__(self) -> None:
        self._virtual = _Selector()
        super().__init__(self._virtual)

    def time(self) -> float:
        return self._virtual.now


def in_virtual_time(work: Callable[[], Awaitable[_Result]]) -> _Result:
    """Run a coroutine function to its end; `anyio.sleep`, timeouts and `loop.call_at` take no real time."""
    return anyio.run(work, backend_options={"loop_factory": VirtualLoop})
