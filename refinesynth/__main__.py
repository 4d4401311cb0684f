"""Entry point of the process: `python -m refinesynth` is the command `refinesynth`."""

import os
import signal
import sys
from types import FrameType
from typing import NoReturn

_INTERRUPTED = 130


def main() -> None:
    """Run the command line; Ctrl-C ends it without a traceback, also during its imports and the interpreter's exit."""
    previous = signal.getsignal(signal.SIGINT)
    # A parent process may have set the signal to be ignored.
    if previous is signal.default_int_handler:
        signal.signal(signal.SIGINT, _exit_at_once)
    try:
        from refinesynth.cli import main as command_line

        signal.signal(signal.SIGINT, previous)
        command_line()
    except KeyboardInterrupt:
        sys.exit(_INTERRUPTED)
    finally:
        # The exit handlers of libraries can take a second, and would print an exception.
        if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
            signal.signal(signal.SIGINT, _exit_at_once)


def _exit_at_once(_number: int, _frame: FrameType | None) -> NoReturn:
    # Modules that are being imported would print an exception, or catch it.
    os._exit(_INTERRUPTED)


if __name__ == "__main__":
    main()
