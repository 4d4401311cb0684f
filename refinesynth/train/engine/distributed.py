"""Rank, world size and devices from torchrun's environment, and the end of torch's process group."""

import os
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any, Literal, Self, cast

import torch
import torch.distributed as dist
from accelerate.utils import patch_environment

from refinesynth.errors import InputError
from refinesynth.train.config import TrainConfig
from refinesynth.train.plan import Devices, Parallel
from refinesynth.train.ranks import free_port, is_launched, rank


@dataclass(frozen=True, slots=True)
class Distributed:
    """This process among the ranks of a training."""

    rank: int
    local_rank: int
    """Number among the ranks of this machine, and of its GPU."""
    world_size: int
    kind: Literal["cpu", "gpu"]

    @classmethod
    def from_environment(cls, config: TrainConfig) -> Self:
        """Read the environment. Raises `InputError` for more processes on this machine than GPUs."""
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
        """True for rank 0, which alone writes files and reports."""
        return self.rank == 0

    def devices(self) -> Devices:
        if self.kind == "cpu":
            return Devices("cpu", "CPU", self.world_size)
        properties = cast("Any", torch.cuda.get_device_properties(self.local_rank))
        bf16 = torch.cuda.is_bf16_supported(including_emulation=False)
        return Devices("gpu", properties.name, self.world_size, properties.total_memory, bf16)


def single_process_environment(parallel: Parallel) -> AbstractContextManager[Any]:
    """Within, a single process has the environment that torchrun would set, as ZeRO and FSDP need it."""
    if is_launched() or parallel not in {"zero2", "zero3", "fsdp"}:
        return nullcontext()
    return patch_environment(RANK=0, LOCAL_RANK=0, WORLD_SIZE=1, MASTER_ADDR="127.0.0.1", MASTER_PORT=free_port())


def all_gather_objects(here: Any) -> list[Any]:
    """Gather an object from every rank, in order; all ranks call this."""
    if not (dist.is_available() and dist.is_initialized()):
        return [here]
    gathered: list[Any] = [None] * dist.get_world_size()
    dist.all_gather_object(gathered, here)
    return gathered


def destroy_process_group() -> None:
    """Wait for all ranks and destroy the process group: one that is left hangs or warns at exit."""
    if dist.is_available() and dist.is_initialized():
        dist.barrier()
        dist.destroy_process_group()
