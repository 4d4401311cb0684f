"""Rank and signals of a training process. Imports no torch."""

import os
import signal
import socket
from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress
from types import FrameType
from typing import Any


def rank() -> int:
    """Number of this process over all machines; rank 0 reports and prints."""
    return int(os.environ.get("RANK", "0"))


def is_launched() -> bool:
    """Return True if torchrun started this process as a rank."""
    return "RANK" in os.environ


def free_port() -> int:
    """A free local port, for the rendezvous of the ranks."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])


@contextmanager
def signals_handled(handler: Callable[[int, FrameType | None], None]) -> Generator[Callable[[], None]]:
    """Context in which `handler` receives SIGTERM and SIGINT.

    Yields a function that restores the former handlers. In threads other than the main thread, nothing is changed.
    """
    previous: dict[int, Any] = {}

    def restore() -> None:
        for number, previous_handler in previous.items():
            signal.signal(number, signal.SIG_DFL if previous_handler is None else previous_handler)

    try:
        with suppress(ValueError):
            previous.update((number, signal.signal(number, handler)) for number in (signal.SIGTERM, signal.SIGINT))
        yield restore
    finally:
        restore()
