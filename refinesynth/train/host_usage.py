"""What a training uses of its machine: host memory to load in, and disk for what it keeps. Sizes only, no torch."""

import os
import shutil
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal

from refinesynth.errors import InputError
from refinesynth.files.memory import memory_of_machine
from refinesynth.text.figures import counted, in_bytes
from refinesynth.train.config import ALL, SCRATCH, TrainConfig
from refinesynth.train.memory import MemoryEstimate, ModelShape, Parallel, Precision, held_bytes

_BYTES: Final = {"bf16": 2, "fp16": 2, "fp32": 4, "fp64": 8, "bfloat16": 2, "float16": 2, "float32": 4, "float64": 8}
_FLOAT: Final = 4


@dataclass(frozen=True, slots=True)
class Host:
    """A machine of the training."""

    ranks: int = 1
    """Processes of the training on it."""
    memory: int | None = None
    """Bytes that processes may use; None if unknown."""
    disk: int | None = None
    """Bytes that are free where the output goes; None if unknown."""
    there: int = 0
    """Bytes of this training's checkpoints that are there already: they are among those that are kept, or make room."""

    @classmethod
    def here(cls, output: Path, ranks: int, *, anew: bool) -> "Host":
        """This one. `anew`: what is in the output folder is set aside and stays."""
        folder = output.absolute()
        there = 0 if anew else sum(_sizes(folder / "checkpoints"))
        with suppress(OSError):
            nearest = next(path for path in (folder, *folder.parents) if path.is_dir())
            return cls(ranks, memory_of_machine(), shutil.disk_usage(nearest).free, there)
        return cls(ranks, memory_of_machine())


@dataclass(frozen=True, slots=True)
class HostUsage:
    """Bytes that a training takes of a machine and its disk, estimated; tokenizers, logs and curves come on top."""

    host: int
    """Of the machine's memory: to load the model into, or, on CPUs, to train in."""
    checkpoint: int
    """Of the disk, for one checkpoint: weights, and what the optimizer goes on from."""
    checkpoints: int
    """Checkpoints that are there at once: those that are kept, the best, and one that is being written."""
    model: int
    """Of the disk, for the finished model."""

    @property
    def disk(self) -> int:
        """Of the disk, all together."""
        return self.checkpoints * self.checkpoint + self.model


def estimate_host_usage(
    config: TrainConfig,
    model: ModelShape,
    memory: MemoryEstimate,
    *,
    kind: Literal["cpu", "gpu"],
    precision: Precision,
    parallel: Parallel,
    ranks: int,
    saved: int,
    evaluates: bool,
) -> HostUsage:
    """What a training takes of a machine with `ranks` processes that saves `saved` times.

    On GPUs every process loads the model into the machine's memory before its device gets it, with FSDP one alone where
    the model allows it; on CPUs weights, gradients and optimizer lie there, and activations come on top.
    """
    held = held_bytes(precision, parallel)
    written = model.trainable * max(held, _FLOAT) if model.adapted else model.parameters * held
    if parallel in {"zero2", "zero3"}:
        # DeepSpeed keeps fp32 weights with the moments; the second stage writes the model once more.
        states = model.trainable * 3 * _FLOAT + (written if parallel == "zero2" else 0)
    else:
        # With FSDP the ranks' pieces are all that a checkpoint has, unless it is to be loaded by others.
        again = parallel == "fsdp" and (model.adapted or config.keep == ALL)
        states = written * again + model.trainable * 2 * (max(held, _FLOAT) if model.adapted else held)
    best = int(evaluates and saved > 0)
    kept = saved if config.keep == "all" else min(saved, config.keep + 1 + best)
    return HostUsage(
        host=ranks * memory.fixed if kind == "cpu" else _loaded(config, model, precision, parallel, ranks),
        checkpoint=written + states,
        checkpoints=kept,
        model=written if model.adapted else model.parameters * _finished(config, model),
    )


def refuse_too_small_host(config: TrainConfig, model: ModelShape, room: HostUsage, host: Host) -> None:
    """Raises: InputError: The machine's memory or its disk cannot hold what the training takes.

    With an optimizer of the user's own, which may keep less than AdamW does, the disk is left to them.
    """
    if host.memory is not None and room.host > host.memory:
        once = "parallel fsdp on GPUs (one process alone loads the model), " if model.read_once else ""
        raise InputError(
            f"the model is too large for this machine's memory: {host.ranks} processes take {in_bytes(room.host)} of it, and it has "
            f"{in_bytes(host.memory)}. Use {'' if config.lora else '--lora, '}{once}fewer processes or a smaller model"
        )
    needed = room.disk - host.there
    if host.disk is not None and needed > host.disk and not config.trainer.get("optim"):
        smaller = "" if config.keep == 1 else "--set keep=1, "
        raise InputError(
            f"what is kept would fill the disk: {counted(room.checkpoints, 'checkpoint')} of {in_bytes(room.checkpoint)} and the model's "
            f"{in_bytes(room.model)} need {in_bytes(needed)} more, and {config.output!r} has {in_bytes(host.disk)} free. Use {smaller}"
            f"{'' if config.lora else '--lora, '}--set save_every=never (only the model is written) or another -o"
        )


def _finished(config: TrainConfig, model: ModelShape) -> int:
    if config.save_dtype != "auto":
        return _BYTES[config.save_dtype]
    return _BYTES.get(model.dtype or "", _FLOAT) if config.model != SCRATCH else _FLOAT


def _loaded(config: TrainConfig, model: ModelShape, precision: Precision, parallel: Parallel, ranks: int) -> int:
    each = (
        2 if precision == "bf16-pure" or (config.lora and precision == "bf16") else 8 if precision == "fp64" else _FLOAT
    )
    if parallel == "zero3":  # split up as it comes from the file
        each = min(each, _BYTES.get(model.dtype or "", each))
    return model.parameters * each * (1 if parallel == "fsdp" and model.read_once else ranks)


def _sizes(folder: Path) -> Iterator[int]:
    for parent, _, files in os.walk(folder):
        for name in files:
            with suppress(OSError):
                yield Path(parent, name).lstat().st_size
