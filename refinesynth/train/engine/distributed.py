"""Distributed training: rank, world size and devices from torchrun's environment, and the end of torch's process
group.
"""

# torch and transformers are typed in part: pyright may not know all of a member that is used here.
# pyright: reportUnknownMemberType=false

import os
import socket
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal, Self, cast

import torch
import torch.distributed as dist

from refinesynth.errors import InputError
from refinesynth.train.config import TrainConfig
from refinesynth.train.memory import Host, Load, ModelShape, Parallel, Precision, estimate_memory
from refinesynth.train.passthrough import own_deepspeed, stage_of
from refinesynth.train.plan import Devices
from refinesynth.train.ranks import is_launched, rank

_USABLE: Final = 0.9
"""Share of a device's memory that estimates may fill."""


@dataclass(frozen=True, slots=True)
class Distributed:
    """This process among the ranks of a training."""

    rank: int
    local_rank: int
    """Among those of this machine: the number of its GPU."""
    world_size: int
    kind: Literal["cpu", "gpu"]

    @classmethod
    def from_environment(cls, config: TrainConfig) -> Self:
        """From the environment.

        Raises:
            InputError: More processes on this machine than it has GPUs.
        """
        environment = os.environ
        gpu = config.device == "auto" and torch.cuda.is_available()
        local_rank = int(environment.get("LOCAL_RANK", "0"))
        # Every process of this machine finds this error, so that none waits for another.
        here = max(local_rank + 1, int(environment.get("LOCAL_WORLD_SIZE", str(config.processes))))
        if gpu and here > torch.cuda.device_count():
            raise InputError(
                f"there are {here} processes on this machine and {torch.cuda.device_count()} GPUs; start as many processes as there are "
                f"GPUs, or give device cpu"
            )
        # Those that a plan is made for are not started yet.
        ranks = int(environment.get("WORLD_SIZE", str(config.processes)))
        return cls(rank(), local_rank, ranks, "gpu" if gpu else "cpu")

    @property
    def is_main(self) -> bool:
        """Whether this is rank 0, which alone writes files and reports."""
        return self.rank == 0

    def devices(self) -> Devices:
        """For the plan."""
        if self.kind == "cpu":
            return Devices("cpu", "CPU", self.world_size)
        properties = cast("Any", torch.cuda.get_device_properties(self.local_rank))
        bf16 = torch.cuda.is_bf16_supported(including_emulation=False)
        return Devices("gpu", properties.name, self.world_size, properties.total_memory, bf16)

    def host(self, config: TrainConfig) -> Host:
        """For the plan."""
        ranks = int(os.environ.get("LOCAL_WORLD_SIZE", str(self.world_size)))
        return Host.here(Path(config.output), ranks, anew=config.resume == "never")


def resolved_precision(config: TrainConfig, distributed: Distributed) -> Precision:
    """bf16 on GPUs that have it (T4 and V100 only emulate it, more slowly than they compute in fp32), else fp32."""
    if config.precision != "auto":
        return config.precision
    return "bf16" if distributed.kind == "gpu" and distributed.devices().bf16 else "fp32"


def resolved_checkpointing(
    config: TrainConfig, devices: Devices, shape: ModelShape, load: Load, *, precision: Precision, parallel: Parallel
) -> bool:
    """`auto` is decided last: on GPUs, where keeping all activations would take more than 9 tenths of a device.

    `parallel` is decided before, as if activations were computed again wherever they may be: a copy on each device that
    computes a third more sends less than weights that are split.
    """
    if config.gradient_checkpointing != "auto":
        return config.gradient_checkpointing
    if devices.kind == "cpu":
        return False
    kept = estimate_memory(
        shape, load, precision=precision, parallel=parallel, ranks=devices.ranks, gradient_checkpointing=False
    )
    return devices.memory is None or kept.total >= _USABLE * devices.memory


def resolved_parallel(
    config: TrainConfig, distributed: Distributed, shape: ModelShape, precision: Precision, *, checkpointing: bool
) -> Parallel:
    """The simplest way that leaves room: copies where one fits into 9 tenths of a device, else everything split.

    Raises:
        InputError: Several processes, and `parallel` is `none`; FSDP on CPUs; or a DeepSpeed file that cannot be used,
            or asks for another stage than `parallel`.
    """
    if config.parallel == "none" and distributed.world_size > 1:
        raise InputError(
            f"parallel is 'none', and there are {distributed.world_size} processes; give ddp, zero2, zero3, fsdp or auto"
        )
    if config.parallel == "fsdp" and distributed.kind == "cpu":
        # accelerate would silently make copies (ddp) of it.
        raise InputError("parallel is 'fsdp', which accelerate does on GPUs only; on CPUs give zero3, zero2 or ddp")
    asked = stage_of(own_deepspeed(config.deepspeed)) if config.deepspeed is not None else config.parallel
    if config.parallel not in {"auto", asked}:
        raise InputError(
            f"the DeepSpeed file {config.deepspeed!r} asks for {asked}, and parallel is {config.parallel!r}; leave parallel out, or change one"
        )
    quantized = config.lora is not None and config.lora.quantize is not None
    if quantized and asked in {"zero3", "fsdp"}:
        raise InputError(
            f"parallel is {asked!r}, which cannot split quantized weights (lora.quantize); give ddp, zero2 or auto"
        )
    if asked != "auto":
        return asked
    if distributed.world_size == 1:
        return "none"
    if quantized:
        return "ddp"
    room = distributed.devices().memory
    load = Load(config.pack_tokens, config.pack_tokens // 2)
    needed = estimate_memory(
        shape,
        load,
        precision=precision,
        parallel="ddp",
        ranks=distributed.world_size,
        gradient_checkpointing=checkpointing,
    )
    return "ddp" if room is None or needed.total < _USABLE * room else "fsdp"


@contextmanager
def single_process_environment(parallel: Parallel) -> Generator[None]:
    """Within, a single process has the environment that torchrun would give it; ZeRO and FSDP ask for it."""
    if is_launched() or parallel not in {"zero2", "zero3", "fsdp"}:
        yield
        return
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    alone = {"RANK": 0, "LOCAL_RANK": 0, "WORLD_SIZE": 1, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
    with environment_variables({name: str(value) for name, value in alone.items()}):
        yield  # a later training of this process is not one of several


@contextmanager
def environment_variables(values: Mapping[str, str]) -> Generator[None]:
    """Within, the environment has these; afterwards what it had."""
    before = {name: os.environ.get(name) for name in values}
    os.environ.update(values)
    try:
        yield
    finally:
        for name, value in before.items():
            os.environ.pop(name) if value is None else os.environ.update({name: value})


def all_gather_objects(here: Any) -> list[Any]:
    """What every rank gives, in their order; all of them call this."""
    if not (dist.is_available() and dist.is_initialized()):
        return [here]
    gathered: list[Any] = [None] * dist.get_world_size()
    dist.all_gather_object(gathered, here)
    return gathered


def destroy_process_group() -> None:
    """Wait for all ranks and take the process group down: one that is left standing hangs or warns at exit."""
    if dist.is_available() and dist.is_initialized():
        dist.barrier()
        dist.destroy_process_group()
