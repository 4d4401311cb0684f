"""Interruption of a training: SIGTERM and SIGINT end it with a checkpoint."""

import signal
from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress
from time import monotonic
from types import FrameType
from typing import Final

import torch
import torch.distributed as dist

from refinesynth.train.ranks import signals_handled

_ONE_PRESS: Final = 0.2
"""Seconds within which a second signal counts as the first, which launcher and terminal may both send."""
_HEARD: Final = "interrupted: finishing this step and saving a checkpoint; once more ends it at once"


class Interruption:
    """Signals that ask for the end; `note` gets a message at once, since a step may take a minute."""

    def __init__(self, note: Callable[[str], object]) -> None:
        self._note = note
        self.signal: int | None = None
        """Signal that any rank got, once all ranks know of it."""
        self._came = 0

    @contextmanager
    def watched(self) -> Generator[None]:
        """Within, the first signal is only noted; a second one has its usual effect."""
        at = 0.0

        def hear(number: int, _frame: FrameType | None) -> None:
            nonlocal at
            if self._came:
                if monotonic() - at > _ONE_PRESS:
                    put_back()
                    signal.raise_signal(number)
                return
            self._came, at = number, monotonic()
            # It may have come while something else was being written; then the result will say it.
            with suppress(RuntimeError):
                self._note(_HEARD)

        with signals_handled(hear) as put_back:
            yield

    def everywhere(self, device: torch.device) -> bool:
        """Return True if any rank got a signal; all ranks call this after the same steps."""
        came = self._came
        if dist.is_available() and dist.is_initialized():
            asked = torch.tensor(came, device=device)
            dist.all_reduce(asked, op=dist.ReduceOp.MAX)
            came = int(asked)
        self.signal = came or None
        return bool(came)
