"""A stopwatch for transformers' Trainer, which all of them build on: the second pass over the data alone.

The first one is for everything that is made once: caches, compiled kernels, the allocator's memory.
"""

import time
from importlib import import_module
from typing import Any


def stopwatch(device: str) -> Any:
    """A TrainerCallback with `seconds` and `steps` of the second epoch."""
    # Typed as Any: it is imported by the others' Pythons.
    transformers: Any = import_module("transformers")
    torch: Any = import_module("torch")

    def now() -> float:
        if device == "cuda":
            torch.cuda.synchronize()
        return time.perf_counter()

    class Stopwatch(transformers.TrainerCallback):
        def __init__(self) -> None:
            self.epochs = 0
            self.seconds = 0.0
            self.steps = 0

        def on_epoch_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
            del args, control
            self.epochs += 1
            self.steps = state.global_step
            self.seconds = now()

        def on_epoch_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
            del args, control
            if self.epochs == 2:
                self.seconds = now() - self.seconds
                self.steps = state.global_step - self.steps

    return Stopwatch()
