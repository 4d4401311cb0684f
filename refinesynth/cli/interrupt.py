"""Ctrl-C and its relatives: the first asks a run to end, the second ends the process."""

import os
import select
import signal
import sys
import threading
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress
from queue import SimpleQueue
from types import FrameType

from refinesynth.cli.exits import ExitCode

EXIT_CODES = {
    signal.SIGINT: ExitCode.INTERRUPTED,
    signal.SIGTERM: ExitCode.TERMINATED,
    signal.SIGHUP: ExitCode.HUNG_UP,
}
"""The signals that end a run, and what the process exits with."""


ONE_PRESS = 0.2
"""Seconds within which a second signal is taken for the first: a wrapper that hands on what the terminal sent as
well."""


LET_GO = 1.0
"""Seconds that an interrupted process waits for its threads."""


HEARD = 1.5
"""Seconds that the work may take to notice the first signal."""


class Interrupt:
    """What has been received so far."""

    def __init__(self) -> None:
        self.received: signal.Signals | None = None
        self.heard = threading.Event()
        """To be set by what is stopped, when it has come to that: until then something may hold it up."""
        self._at = 0.0
        self._stop: Callable[[], object] | None = None
        self._signals = SimpleQueue[signal.Signals | None]()  # which a handler may put into, at any moment
        self._main = threading.get_ident()

    @property
    def exit_code(self) -> ExitCode | None:
        """What to exit with; None if no signal came."""
        return None if self.received is None else EXIT_CODES[self.received]

    def stops(self, stop: Callable[[], object]) -> None:
        """Have `stop` called when the first signal comes, in the main thread, between two of its instructions.

        It is called at once if the signal came already.
        """
        self._stop = stop
        if self.received is not None:
            stop()

    def receive(self, number: int, _frame: FrameType | None = None) -> None:
        """The handler: remember the first signal; at the second, end the process without another word.

        Files stay whole up to their last complete line, which is all that a resume needs.
        """
        now = time.monotonic()
        if self.received is not None:
            if now - self._at > ONE_PRESS:
                os._exit(EXIT_CODES[signal.Signals(number)])
            return
        self.received, self._at = signal.Signals(number), now
        self._signals.put(self.received)
        if self._stop is not None:
            self._stop()

    @contextmanager
    def insisting(self) -> Generator[None]:
        """Within the block, end the process when a first signal is not heard in time, with a word on what holds it up.

        Files stay whole then too.
        """
        watcher = threading.Thread(target=self._insist, name="refinesynth-interrupt", daemon=True)
        watcher.start()
        try:
            yield
        finally:
            self.heard.set()
            self._signals.put(None)
            watcher.join()

    def _insist(self) -> None:
        number = self._signals.get()
        if number is None or self.heard.wait(HEARD):
            return
        from refinesynth.cli.terminal import notes
        from refinesynth.rules.failing import running

        busy = running(sys._current_frames()[self._main]) or "something"  # noqa: SLF001 # pyright: ignore[reportPrivateUsage] - the one way
        with suppress(OSError, ValueError):
            console = notes()
            console.show_cursor()
            console.print(
                f"interrupted while {busy} held everything up; what was finished is on disk, and the same command goes on with it",
                soft_wrap=True,
            )
        os._exit(EXIT_CODES[number])


def _pressed(pipe: int, until: float | None) -> bool | None:
    """Wait for a signal: true for a Ctrl-C before that moment, false at that moment, None if the pipe is closed first."""
    while select.select([pipe], [], [], None if until is None else max(0.0, until - time.monotonic()))[0]:
        number = os.read(pipe, 1)
        if not number:
            return None
        if number[0] == signal.SIGINT:
            return True
    return False


@contextmanager
def ended_within(seconds: float, last_words: Callable[[], object]) -> Generator[Callable[[], None]]:
    """Within the block, a Ctrl-C ends the process after `seconds` at the latest, and a second one at once.

    The handler stays the one that is there, which an event loop replaces by one that cancels its work. The system
    writes the signal's number into a pipe, also while the main thread is busy with an import or with a library in C.
    Gives a function that says the last words and, after a Ctrl-C, ends the process: what still runs in threads of C++
    would break off an ordinary end by an abort.
    """
    reading, writing = os.pipe()
    os.set_blocking(writing, False)
    before = signal.set_wakeup_fd(writing, warn_on_full_buffer=False)
    pressed, said = threading.Event(), threading.Lock()

    def end() -> None:
        # Said once; whoever comes second waits for it, but not for ever.
        if said.acquire(timeout=LET_GO):
            with suppress(OSError, ValueError):
                last_words()
        if pressed.is_set():
            for stream in (sys.stdout, sys.stderr):
                with suppress(OSError, ValueError):
                    stream.flush()
            os._exit(ExitCode.INTERRUPTED)

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
    """End the process now if a thread would hold it up: one that waits for a pipe or a disk cannot be stopped."""
    until = time.monotonic() + LET_GO
    for thread in threading.enumerate():
        if thread is threading.main_thread() or thread.daemon:
            continue
        thread.join(max(0.0, until - time.monotonic()))
        if thread.is_alive():
            for stream in (sys.stdout, sys.stderr):
                with suppress(OSError, ValueError):
                    stream.flush()
            os._exit(code)


@contextmanager
def interruptible() -> Generator[Interrupt]:
    """Receive the signals in `EXIT_CODES` instead of dying of them; what was there before is put back if none came.

    Once one came the process is to end, and as long as that takes a second ends it at once.

    One that is ignored stays ignored: that is how nohup, and a shell for what it runs in the background, say that it is
    not meant for this process. These are handlers of the process, not of the event loop, so that a second Ctrl-C works
    while the loop is busy.
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
