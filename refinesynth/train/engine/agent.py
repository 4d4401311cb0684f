"""torchrun without its traceback: a rank that fails has reported why, and torchrun's own report would bury that.

python -m refinesynth.train.engine.agent --standalone --nproc-per-node 2 -m refinesynth.train --config FILE
"""

import logging
import os
import signal
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from types import FrameType
from typing import Final

from torch.distributed.elastic.multiprocessing import api
from torch.distributed.elastic.multiprocessing.api import SignalException
from torch.distributed.elastic.multiprocessing.errors import ChildFailedError
from torch.distributed.run import main as torchrun  # pyright: ignore[reportUnknownVariableType]

from refinesynth.errors import ConfigurationError
from refinesynth.train.engine.signatures import STARTING, check
from refinesynth.train.ranks import write_outcome

_ASKED_WRONGLY: Final = 2


def main(arguments: Sequence[str]) -> int:
    """Start the ranks and wait for them; the exit code of the first that failed, else 0."""
    try:
        check(STARTING)
    except ConfigurationError as error:
        write_outcome(error)
        return _ASKED_WRONGLY
    _second_ends_ranks()
    logging.disable(logging.WARNING)  # each of its loggers has a level of its own
    try:
        torchrun(list(arguments))
    except ChildFailedError as exc:
        return exc.get_first_failure()[1].exitcode
    except SignalException as exc:
        return 128 + exc.sigval
    return 0


def _second_ends_ranks() -> None:
    """End them at a second signal: torchrun takes a second signal for another first one, and waits on while they
    save.
    """
    first = api._terminate_process_handler  # noqa: SLF001  # pyright: ignore[reportPrivateUsage]
    received: list[int] = []

    def hear(number: int, frame: FrameType | None) -> None:
        received.append(number)
        if len(received) == 1:
            first(number, frame)
        else:
            _end_ranks()

    # There is no public way.
    api._terminate_process_handler = hear  # noqa: SLF001  # pyright: ignore[reportPrivateUsage]


def _end_ranks() -> None:
    children = Path(f"/proc/self/task/{os.getpid()}/children")
    with suppress(OSError):  # another system than Linux: then they end when they have saved
        for child in children.read_text(encoding="ascii").split():
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(int(child), signal.SIGKILL)  # each is the first of a session of its own


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
