"""The entry point of the process; `python -m refinesynth` is the command `refinesynth`."""

import os
import signal
import sys
from types import FrameType
from typing import NoReturn

_INTERRUPTED = 130


def main() -> None:
    """Run the command line. A Ctrl-C ends it without a traceback, also while it is still being imported, or is about to
    have ended.
    """
    before = signal.getsignal(signal.SIGINT)
    # One that is ignored stays ignored.
    if before is signal.default_int_handler:
        signal.signal(signal.SIGINT, _leave)
    try:
        from refinesynth.cli import main as command_line

        signal.signal(signal.SIGINT, before)
        command_line()
    except KeyboardInterrupt:
        sys.exit(_INTERRUPTED)
    finally:
        # What libraries do when an interpreter ends can take a second, and would report an exception.
        if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
            signal.signal(signal.SIGINT, _leave)


def _leave(_number: int, _frame: FrameType | None) -> NoReturn:
    # Not by an exception: some of what is imported would report it, or take it for its own.
    os._exit(_INTERRUPTED)


if __name__ == "__main__":
    main()
