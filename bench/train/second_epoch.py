"""A stopwatch for transformers' Trainer, which all of them build on: the second pass over the data alone.

The first one is for everything that is made once: caches, compiled kernels, the allocator's memory.
"""

import time
from importlib import import_module
from pathlib import Path
from typing import Any


def stopwatch(device: str) -> Any:
    """A TrainerCallback with `seconds` (of CPU time where it computes), `steps` and `memory` (MiB) of the second epoch.

    Memory is the most that the second epoch held beyond what the process held when the training began, its weights
    included: gradients, optimizer states and activations. On a GPU it is the most that torch had allocated, weights and
    all.
    """
    # Typed as Any: it is imported by the others' Pythons.
    transformers: Any = import_module("transformers")
    torch: Any = import_module("torch")
    on_gpu = device == "cuda"

    def now() -> float:
        if on_gpu:
            torch.cuda.synchronize()
            return time.perf_counter()
        # One core computes and nothing is waited for: what else the machine does is left out.
        return time.process_time()

    class Stopwatch(transformers.TrainerCallback):
        def __init__(self) -> None:
            self.epochs = 0
            self.seconds = 0.0
            self.steps = 0
            self.memory = 0.0

        def on_train_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
            del args, state, control
            self.memory = 0.0 if on_gpu else _held("VmRSS")

        def on_epoch_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
            del args, control
            self.epochs += 1
            self.steps = state.global_step
            if self.epochs == 2:
                torch.cuda.reset_peak_memory_stats() if on_gpu else _forget_peak()
            self.seconds = now()

        def on_epoch_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
            del args, control
            if self.epochs == 2:
                self.seconds = now() - self.seconds
                self.steps = state.global_step - self.steps
                peak = torch.cuda.max_memory_allocated() / 2**20 if on_gpu else _held("VmHWM")
                self.memory = peak - self.memory

    return Stopwatch()


def _held(name: str) -> float:
    """MiB that this process holds (`VmRSS`), or held at most (`VmHWM`); Linux."""
    lines = Path("/proc/self/status").read_text(encoding="ascii").splitlines()
    return next(int(line.split()[1]) / 2**10 for line in lines if line.startswith(f"{name}:"))


def _forget_peak() -> None:
    """Begin `VmHWM` anew."""
    Path("/proc/self/clear_refs").write_text("5", encoding="ascii")
