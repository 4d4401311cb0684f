"""Signal handling: the first signal stops a run, the second ends the process."""

import os
import select
import signal
import sys
import threading
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress
from types import FrameType
from typing import TYPE_CHECKING

from refinesynth.cli.exit_codes import ExitCode

if TYPE_CHECKING:
    from anyio import CancelScope

EXIT_CODES = {signal.SIGINT: ExitCode.INTERRUPTED, signal.SIGTERM: ExitCode.TERMINATED, signal.SIGHUP: ExitCode.HUNG_UP}
"""Signals that end a run, with their exit codes."""
ONE_PRESS = 0.2
"""Seconds within which a second signal counts as the first: a terminal and a wrapper may both send one."""
LET_GO = 1.0
"""Seconds that an interrupted process waits for its threads."""


class Interrupt:
    """The first received signal, and the function that it calls."""

    def __init__(self) -> None:
        self.received: signal.Signals | None = None
        self._at = 0.0
        self._stop: Callable[[], object] | None = None

    @property
    def exit_code(self) -> ExitCode | None:
        return None if self.received is None else EXIT_CODES[self.received]

    def stops(self, stop: Callable[[], object]) -> None:
        """Call `stop` in the main thread at the first signal, or at once if one was received already."""
        self._stop = stop
        if self.received is not None:
            stop()

    def cancels(self, scope: "CancelScope") -> None:
        """Cancel `scope` in the running event loop at the first signal, or soon if one was received already."""
        from asyncio import get_running_loop

        loop = get_running_loop()
        # A signal handler may interrupt any code; the event loop therefore cancels the scope in its next iteration.
        self.stops(lambda: loop.call_soon_threadsafe(scope.cancel))

    def receive(self, number: int, _frame: FrameType | None = None) -> None:
        """Handle a signal: store the first one; end the process at once at the second.

        A resume only needs the complete lines of the files, which stay intact.
        """
        now = time.monotonic()
        if self.received is not None:
            if now - self._at > ONE_PRESS:
                os._exit(EXIT_CODES[signal.Signals(number)])
            return
        self.received, self._at = signal.Signals(number), now
        if self._stop is not None:
            self._stop()


def _pressed(pipe: int, until: float | None) -> bool | None:
    """Wait for SIGINT: True if it arrives before `until`, False at that time, None if the pipe is closed first.

    Other signals in `EXIT_CODES` end the process.
    """
    while select.select([pipe], [], [], None if until is None else max(0.0, until - time.monotonic()))[0]:
        number = os.read(pipe, 1)
        if not number:
            return None
        if number[0] == signal.SIGINT:
            return True
        if number[0] in EXIT_CODES:
            _exit(EXIT_CODES[signal.Signals(number[0])])
    return False


@contextmanager
def ended_within(seconds: float, last_words: Callable[[], object]) -> Generator[Callable[[], None]]:
    """End the process at most `seconds` after a Ctrl-C in the block; at once at a second one and at other signals.

    Python's signal handlers stay as they are, such as that of an event loop which cancels its work. Signal numbers are
    written into a pipe, even while the main thread runs C code. Yields a function that calls `last_words` and, after a
    Ctrl-C, ends the process: C++ threads that still run would abort an ordinary exit.
    """
    reading, writing = os.pipe()
    os.set_blocking(writing, False)
    before = signal.set_wakeup_fd(writing, warn_on_full_buffer=False)
    pressed, once = threading.Event(), threading.Lock()

    def end() -> None:
        # The lock is never released: `last_words` runs once, and a second caller waits `LET_GO` seconds for it.
        if once.acquire(timeout=LET_GO):
            with suppress(OSError, ValueError):
                last_words()
        if pressed.is_set():
            _exit(ExitCode.INTERRUPTED)

    def watch() -> None:
        if _pressed(reading, None):
            pressed.set()
            at = time.monotonic()
            if _pressed(reading, at + ONE_PRESS) is not None and _pressed(reading, at + seconds) is not None:
                end()

    watcher = threading.Thread(target=watch, name="refinesynth-interrupt", daemon=True)
    watcher.start()
    try:
        yield end
    finally:
        signal.set_wakeup_fd(before)
        os.close(writing)
        watcher.join()
        os.close(reading)


def end_promptly(code: int) -> None:
    """End the process if a thread would delay it by more than `LET_GO` seconds."""
    until = time.monotonic() + LET_GO
    for thread in threading.enumerate():
        if thread is threading.main_thread() or thread.daemon:
            continue
        thread.join(max(0.0, until - time.monotonic()))
        if thread.is_alive():
            _exit(code)


def _exit(code: int) -> None:
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError, ValueError):
            stream.flush()
    os._exit(code)


@contextmanager
def exits_on_signals() -> Generator[None]:
    """Raise SystemExit at SIGTERM and SIGHUP in the block, which runs cleanup code; a second signal ends the process.

    Ignored (nohup) and handled signals stay as they are. Commands may install other handlers within the block.
    """
    interrupt = Interrupt()
    interrupt.stops(lambda: sys.exit(interrupt.exit_code))
    numbers = [number for number in EXIT_CODES if signal.getsignal(number) is signal.SIG_DFL]
    for number in numbers:
        signal.signal(number, interrupt.receive)
    try:
        yield
    finally:
        for number in numbers:
            signal.signal(number, signal.SIG_DFL)


@contextmanager
def interruptible() -> Generator[Interrupt]:
    """Receive the signals in `EXIT_CODES` in the block; restore the former handlers if none was received.

    Ignored signals stay ignored (nohup, background jobs). The handlers belong to the process, not to the event loop;
    a second Ctrl-C therefore works while the loop is busy.
    """
    interrupt = Interrupt()
    before = {
        number: signal.signal(number, interrupt.receive)
        for number in EXIT_CODES
        if signal.getsignal(number) is not signal.SIG_IGN
    }
    try:
        yield interrupt
    finally:
        if interrupt.received is None:
            for number, handler in before.items():
                signal.signal(number, handler)
