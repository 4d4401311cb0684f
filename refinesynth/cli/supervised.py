"""A run on Ray in a child process.

When a process of Ray dies, Ray's library ends its own process with code 1, without an exception or exit handler. Only
another process can report that.
"""

import os
import signal
import sys
from contextlib import suppress
from threading import Thread, active_count

from refinesynth.cli.exit_codes import ExitCode
from refinesynth.cli.interrupt import EXIT_CODES

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
