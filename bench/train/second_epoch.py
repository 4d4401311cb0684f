"""A stopwatch for the second pass over the data alone.

The first pass pays for what is made once: caches, compiled kernels, the allocator's memory. Imports nothing but the
standard library, so that the others' Pythons can read it.
"""

import time
from importlib import import_module
from pathlib import Path
from typing import Any


class Stopwatch:
    """Seconds (of CPU time on a CPU), optimizer steps and memory in MiB of the second pass.

    Memory on a CPU is the most that the second pass held beyond what the process held when the training began, its
    weights included: gradients, optimizer states and activations. On a GPU it is the most that torch had allocated,
    weights and all.
    """

    def __init__(self, device: str) -> None:
        self.seconds = 0.0
        self.steps = 0
        self.memory = 0.0
        self._cuda: Any = import_module("torch").cuda if device == "cuda" else None

    def training_begins(self, *, weights: float = 0.0) -> None:
        """Note what the process holds, with `weights` MiB that it has not loaded yet."""
        self.memory = 0.0 if self._cuda else _held("VmRSS") + weights

    def pass_begins(self, step: int) -> None:
        """Begin to measure, anew at every pass."""
        self.steps = step
        self._cuda.reset_peak_memory_stats() if self._cuda else _forget_peak()
        self.seconds = self._now()

    def second_pass_ends(self, step: int) -> None:
        """Stop."""
        self.seconds = self._now() - self.seconds
        self.steps = step - self.steps
        self.memory = (self._cuda.max_memory_allocated() / 2**20 if self._cuda else _held("VmHWM")) - self.memory

    def _now(self) -> float:
        if self._cuda:
            self._cuda.synchronize()
            return time.perf_counter()
        # One core computes and nothing is waited for: what else the machine does is left out.
        return time.process_time()


def callback(watch: Stopwatch) -> Any:
    """A callback for transformers' Trainer that runs `watch`."""
    # Typed as Any: it is imported by the others' Pythons.
    transformers: Any = import_module("transformers")

    class Callback(transformers.TrainerCallback):
        def on_train_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
            del args, state, control
            self.passes = 0
            watch.training_begins()

        def on_epoch_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
            del args, control
            self.passes += 1
            watch.pass_begins(state.global_step)

        def on_epoch_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
            del args, control
            if self.passes == 2:
                watch.second_pass_ends(state.global_step)

    return Callback()


def _held(name: str) -> float:
    """MiB that this process holds (`VmRSS`), or held at most (`VmHWM`); Linux."""
    lines = Path("/proc/self/status").read_text(encoding="ascii").splitlines()
    return next(int(line.split()[1]) / 2**10 for line in lines if line.startswith(f"{name}:"))


def _forget_peak() -> None:
    """Begin `VmHWM` anew."""
    Path("/proc/self/clear_refs").write_text("5", encoding="ascii")
