"""Signals: the first one stops a run, the second ends the process. A run on Ray is a child process.

When a process of Ray dies, Ray's library ends its own process with code 1, without an exception or exit handler. Only
another process can report that.
"""

import os
import select
import signal
import sys
import threading
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress
from threading import Thread, active_count
from types import FrameType
from typing import TYPE_CHECKING

from refinesynth.cli.exit_codes import ExitCode

if TYPE_CHECKING:
    from sys import UnraisableHookArgs

    from anyio import CancelScope


EXIT_CODES = {signal.SIGINT: ExitCode.INTERRUPTED, signal.SIGTERM: ExitCode.TERMINATED, signal.SIGHUP: ExitCode.HANGUP}
"""Signals that end a run, with their exit codes."""
DEBOUNCE = 0.2
"""Seconds within which a second signal counts as the first: a terminal and a wrapper may both send one."""
THREAD_TIMEOUT = 1.0
"""Seconds that an interrupted process waits for its threads."""


class Interrupt:
    """The first received signal, and the function that it calls."""

    def __init__(self) -> None:
        self.received: signal.Signals | None = None
        self._received_at = 0.0
        self._callback: Callable[[], object] | None = None

    @property
    def exit_code(self) -> ExitCode | None:
        return None if self.received is None else EXIT_CODES[self.received]

    def call_on_signal(self, callback: Callable[[], object]) -> None:
        """Call `callback` in the main thread at the first signal, or at once if one was received already."""
        self._callback = callback
        if self.received is not None:
            callback()

    def cancel_on_signal(self, scope: "CancelScope") -> None:
        """Cancel `scope` in the running event loop at the first signal, or soon if one was received already."""
        from asyncio import get_running_loop

        loop = get_running_loop()
        # A signal handler may interrupt any code; the event loop therefore cancels the scope in its next iteration.
        self.call_on_signal(lambda: loop.call_soon_threadsafe(scope.cancel))

    def receive(self, number: int, _frame: FrameType | None = None) -> None:
        """Handle a signal: store the first one; end the process at once at the second.

        A resume only needs the complete lines of the files, which stay intact.
        """
        now = time.monotonic()
        if self.received is not None:
            if now - self._received_at > DEBOUNCE:
                os._exit(EXIT_CODES[signal.Signals(number)])
            return
        self.received, self._received_at = signal.Signals(number), now
        if self._callback is not None:
            self._callback()


def _saw_sigint(pipe: int, deadline: float | None) -> bool | None:
    """Wait for SIGINT: True if it arrives before `deadline`, False at that time, None if the pipe is closed first.

    Other signals in `EXIT_CODES` end the process.
    """
    while select.select([pipe], [], [], None if deadline is None else max(0.0, deadline - time.monotonic()))[0]:
        number = os.read(pipe, 1)
        if not number:
            return None
        if number[0] == signal.SIGINT:
            return True
        if number[0] in EXIT_CODES:
            _exit(EXIT_CODES[signal.Signals(number[0])])
    return False


@contextmanager
def force_exit_after(seconds: float, before_exit: Callable[[], object]) -> Generator[Callable[[], None]]:
    """End the process at most `seconds` after a Ctrl-C in the block; at once at a second one and at other signals.

    Python's signal handlers stay as they are, such as that of an event loop which cancels its work. Signal numbers are
    written into a pipe, even while the main thread runs C code. Yields a function that calls `before_exit` and, after a
    Ctrl-C, ends the process: C++ threads that still run would abort an ordinary exit.
    """
    read_fd, write_fd = os.pipe()
    os.set_blocking(write_fd, False)
    former_fd = signal.set_wakeup_fd(write_fd, warn_on_full_buffer=False)
    pressed, end_lock = threading.Event(), threading.Lock()

    def end() -> None:
        # The lock is never released: `before_exit` runs once, and a second caller waits `THREAD_TIMEOUT` seconds for it.
        if end_lock.acquire(timeout=THREAD_TIMEOUT):
            with suppress(OSError, ValueError):
                before_exit()
        if pressed.is_set():
            _exit(ExitCode.INTERRUPTED)

    def watch() -> None:
        if _saw_sigint(read_fd, None):
            pressed.set()
            now = time.monotonic()
            if _saw_sigint(read_fd, now + DEBOUNCE) is not None and _saw_sigint(read_fd, now + seconds) is not None:
                end()

    watcher = threading.Thread(target=watch, name="refinesynth-interrupt", daemon=True)
    watcher.start()
    try:
        yield end
    finally:
        signal.set_wakeup_fd(former_fd)
        os.close(write_fd)
        watcher.join()
        os.close(read_fd)


def exit_despite_threads(code: int) -> None:
    """End the process if a thread would delay it by more than `THREAD_TIMEOUT` seconds."""
    deadline = time.monotonic() + THREAD_TIMEOUT
    for thread in threading.enumerate():
        if thread is threading.main_thread() or thread.daemon:
            continue
        thread.join(max(0.0, deadline - time.monotonic()))
        if thread.is_alive():
            _exit(code)


def _exit(code: int) -> None:
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError, ValueError):
            stream.flush()
    os._exit(code)


@contextmanager
def exit_on_signals() -> Generator[None]:
    """Raise SystemExit at SIGTERM and SIGHUP in the block, which runs cleanup code; a second signal ends the process.

    Ignored (nohup) and handled signals stay as they are. Commands may install other handlers within the block.

    A signal handler's exception, KeyboardInterrupt too, may be raised in a function that C code calls, such as an
    `isinstance` of pydantic. Python then only reports it; the signal is therefore sent again.
    """
    interrupt = Interrupt()
    interrupt.call_on_signal(lambda: sys.exit(interrupt.exit_code))
    numbers = [number for number in EXIT_CODES if signal.getsignal(number) is signal.SIG_DFL]
    former_hook = sys.unraisablehook

    def send_again(unraisable: "UnraisableHookArgs") -> None:
        lost = signal.SIGINT if unraisable.exc_type is KeyboardInterrupt else interrupt.received
        if lost is None or unraisable.exc_type not in {KeyboardInterrupt, SystemExit}:
            former_hook(unraisable)
            return
        interrupt.received = None
        # Later: an exception that is raised in this hook is lost as well.
        timer = threading.Timer(DEBOUNCE, signal.pthread_kill, (threading.main_thread().ident, lost))
        timer.daemon = True
        timer.start()

    for number in numbers:
        signal.signal(number, interrupt.receive)
    sys.unraisablehook = send_again
    try:
        yield
    finally:
        sys.unraisablehook = former_hook
        for number in numbers:
            signal.signal(number, signal.SIG_DFL)


@contextmanager
def interruptible() -> Generator[Interrupt]:
    """Receive the signals in `EXIT_CODES` in the block; restore the former handlers if none was received.

    Ignored signals stay ignored (nohup, background jobs). The handlers belong to the process, not to the event loop;
    a second Ctrl-C therefore works while the loop is busy.
    """
    interrupt = Interrupt()
    former_handlers = {
        number: signal.signal(number, interrupt.receive)
        for number in EXIT_CODES
        if signal.getsignal(number) is not signal.SIG_IGN
    }
    try:
        yield interrupt
    finally:
        if interrupt.received is None:
            for number, handler in former_handlers.items():
                signal.signal(number, handler)


_report_fd: int | None = None
"""Write end of the pipe to the parent; None outside the child."""


def supervise() -> None:
    """Return in a child process; the parent forwards signals and exits with the child's code.

    Does nothing where processes cannot be forked. If the parent is killed, the child ends too.
    """
    global _report_fd  # noqa: PLW0603 - of the process, as `sys.argv` is
    if not hasattr(os, "fork") or active_count() > 1:
        return
    alive_reader, alive_writer = os.pipe()
    report_reader, report_writer = os.pipe()
    sys.stdout.flush()
    sys.stderr.flush()
    # Blocked signals wait until the handlers that forward them are set.
    former_mask = signal.pthread_sigmask(signal.SIG_BLOCK, EXIT_CODES)
    child = os.fork()
    if child == 0:
        signal.pthread_sigmask(signal.SIG_SETMASK, former_mask)
        os.close(alive_writer)
        os.close(report_reader)
        _report_fd = report_writer
        Thread(target=_end_with_the_parent, args=(alive_reader,), name="refinesynth-parent", daemon=True).start()
        return
    os.close(report_writer)
    for number in EXIT_CODES:
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, lambda received, _frame: _forward_signal(child, received))
    signal.pthread_sigmask(signal.SIG_SETMASK, former_mask)
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    os._exit(_explain_exit(code, reported=bool(os.read(report_reader, 1))))


def report_end() -> None:
    """Tell the parent that the following exit code is intended."""
    if _report_fd is not None:
        os.write(_report_fd, b".")


def _end_with_the_parent(alive_reader: int) -> None:
    os.read(alive_reader, 1)
    os._exit(128 + signal.SIGKILL)


def _forward_signal(child: int, number: int) -> None:
    with suppress(ProcessLookupError):
        os.kill(child, number)


def _explain_exit(code: int, *, reported: bool) -> int:
    """Return the exit code of this process; print a message if the child ended without a report."""
    if code >= 0 and (reported or code != ExitCode.INCOMPLETE):
        return code
    if -code in EXIT_CODES:
        return EXIT_CODES[signal.Signals(-code)]
    from refinesynth.cli.terminal import note, notes

    notes().show_cursor()
    if code == -signal.SIGKILL:
        reason, exit_code = "the process of the run was killed (signal 9), for lack of memory perhaps", 128 - code
    else:
        reason = (
            "Ray ended the run: one of its processes on this machine (the raylet, its agent or the control server) died"
            + ("" if code > 0 else f", signal {-code}")
        )
        exit_code = int(ExitCode.STORAGE)
    note(f"refinesynth: {reason}. What was finished is on disk. Run the same command again to go on")
    return exit_code
