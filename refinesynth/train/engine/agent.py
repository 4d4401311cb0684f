"""torchrun without its traceback: a rank that fails has said why, and torchrun's own report would bury that.

python -m refinesynth.train.engine.agent --standalone --nproc-per-node 2 -m refinesynth.train --config FILE
"""

import logging
import sys
from collections.abc import Sequence

from torch.distributed.elastic.multiprocessing.api import SignalException
from torch.distributed.elastic.multiprocessing.errors import ChildFailedError
from torch.distributed.run import main as torchrun  # pyright: ignore[reportUnknownVariableType]


def main(arguments: Sequence[str]) -> int:
    """Start the ranks and wait for them; the exit code of the first that failed, else 0."""
    logging.getLogger("torch.distributed.elastic").setLevel(logging.CRITICAL)
    try:
        torchrun(list(arguments))
    except ChildFailedError as exc:
        return exc.get_first_failure()[1].exitcode
    except SignalException as exc:
        return 128 + exc.sigval
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
