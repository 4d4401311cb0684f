"""SIGTERM and SIGINT end a training at the next step's end, with a checkpoint."""

# torch and transformers are typed in part: pyright may not know all of a member that is used here.
# pyright: reportUnknownMemberType=false

import signal
from collections.abc import Generator
from contextlib import contextmanager
from types import FrameType

import torch
import torch.distributed as dist


class Interruption:
    """Whether a signal asks for the end."""

    def __init__(self) -> None:
        self.signal: int | None = None
        """The one that came to any rank, once all ranks know of it."""
        self._came = 0

    @contextmanager
    def watched(self) -> Generator[None]:
        """Within, the first signal is noted and no more; a second one has its usual effect."""
        before: dict[int, object] = {}

        def note(number: int, _frame: FrameType | None) -> None:
            self._came = number
            for each, handler in before.items():
                signal.signal(each, handler)  # pyright: ignore[reportArgumentType]

        try:
            for number in (signal.SIGTERM, signal.SIGINT):
                before[number] = signal.signal(number, note)
        except ValueError:  # not the main thread, which alone may set handlers
            before.clear()
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)  # pyright: ignore[reportArgumentType]

    def everywhere(self, device: torch.device) -> bool:
        """Whether any rank was asked to end; every rank calls this after the same steps and gets the same answer."""
        came = self._came
        if dist.is_available() and dist.is_initialized():
            asked = torch.tensor(came, device=device)
            dist.all_reduce(asked, op=dist.ReduceOp.MAX)
            came = int(asked)
        self.signal = came or None
        return bool(came)
