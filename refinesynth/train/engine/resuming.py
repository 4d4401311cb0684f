"""State of a training in a checkpoint: weights, optimizer, learning rate, random numbers and progress, written and
brought back for copies, FSDP's shards and DeepSpeed's.
"""

import json
import math
import random
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Final, cast

import numpy as np
import torch
import torch.distributed.checkpoint as dcp
from accelerate import Accelerator, DistributedType
from safetensors.torch import load_file
from torch import nn
from torch.distributed.checkpoint.state_dict import StateDictOptions, get_state_dict, set_state_dict
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler

from refinesynth.train.events import LOSS

PROGRESS: Final = "progress.json"
OPTIMIZER: Final = "optimizer.pt"
SHARDS: Final = "shards"


@dataclass(slots=True)
class Progress:
    """Where a training stands."""

    step: int = 0
    """Optimizer steps done."""
    loss: float = 0.0
    """Sum of the losses of the steps that are not logged yet."""
    unlogged: int = 0
    last_loss: float = math.nan
    """Of the last line of metrics."""
    evaluations: list[tuple[int, Mapping[str, float]]] = field(default_factory=list[tuple[int, Mapping[str, float]]])
    """Steps and losses on what is held out."""

    def evaluated(self, means: Mapping[str, float]) -> bool:
        """Note an evaluation; whether its loss is the least so far."""
        before = self.best
        self.evaluations.append((self.step, means))
        return before is None or means[LOSS] < before[1]

    @property
    def best(self) -> tuple[int, float] | None:
        """Step and loss of the best evaluation; the first of those that are equal."""
        found = [(step, means[LOSS]) for step, means in self.evaluations if not math.isnan(means[LOSS])]
        return min(found, key=lambda each: each[1], default=None)


@dataclass(slots=True)
class Resumable:
    """All that a training goes on from."""

    accelerator: Accelerator
    model: nn.Module
    """As it is wrapped."""
    optimizer: Optimizer
    rates: LRScheduler
    progress: Progress

    def write(self, folder: Path, *, adapters: bool) -> None:
        """Write this rank's part; every rank calls this. `adapters`: frozen weights are left out."""
        folder.mkdir(parents=True, exist_ok=True)
        rank, kind = self.accelerator.process_index, self.accelerator.distributed_type
        if kind == DistributedType.DEEPSPEED:
            cast("Any", self.model).save_checkpoint(str(folder), "deepspeed", exclude_frozen_parameters=adapters)
        elif kind == DistributedType.FSDP:
            weights, moments = get_state_dict(self.model, self.optimizer, options=_options(adapters=adapters))
            dcp.save({"model": weights, "optimizer": moments}, checkpoint_id=folder / SHARDS)
        elif rank == 0:
            self.accelerator.unwrap_model(cast("Any", self.model)).save_pretrained(str(folder))
            torch.save(self.optimizer.state_dict(), folder / OPTIMIZER)
        torch.save(_random_states(), folder / f"random_{rank}.pt")
        if rank == 0:
            state = {"progress": asdict(self.progress), "rates": self.rates.state_dict()}
            (folder / PROGRESS).write_text(json.dumps(state), encoding="utf-8")

    def read(self, folder: Path, *, adapters: bool) -> Progress:
        """Bring this rank's part back; every rank calls this."""
        kind = self.accelerator.distributed_type
        if kind == DistributedType.DEEPSPEED:
            cast("Any", self.model).load_checkpoint(str(folder), "deepspeed", load_module_strict=not adapters)
        elif kind == DistributedType.FSDP:
            options = _options(adapters=adapters)
            weights, moments = get_state_dict(self.model, self.optimizer, options=options)
            dcp.load(state := {"model": weights, "optimizer": moments}, checkpoint_id=folder / SHARDS)
            set_state_dict(
                self.model,
                self.optimizer,
                model_state_dict=state["model"],
                optim_state_dict=state["optimizer"],
                options=options,
            )
        else:
            inner = cast("Any", self.accelerator.unwrap_model(cast("Any", self.model)))
            for file in folder.glob("model*.safetensors"):
                inner.load_state_dict(load_file(file), strict=False)
            self.optimizer.load_state_dict(torch.load(folder / OPTIMIZER, weights_only=True))
        found = json.loads((folder / PROGRESS).read_text(encoding="utf-8"))
        self.rates.load_state_dict(found["rates"])
        states = folder / f"random_{self.accelerator.process_index}.pt"
        if states.is_file():  # another number of ranks than before has none
            _bring_back(torch.load(states, weights_only=False))
        evaluations = [(step, means) for step, means in found["progress"].pop("evaluations")]
        return Progress(**found["progress"], evaluations=evaluations)


def _options(*, adapters: bool) -> StateDictOptions:
    return StateDictOptions(cpu_offload=True, ignore_frozen_params=adapters)


def _random_states() -> dict[str, Any]:
    return {
        "python": random.getstate(),
        "numpy": np.random.get_state(),  # noqa: NPY002 - the library's state, of which models may draw
        "torch": torch.get_rng_state(),
        "cuda": torch.cuda.get_rng_state_all() if torch.cuda.is_available() else [],
    }


def _bring_back(states: dict[str, Any]) -> None:
    random.setstate(states["python"])
    np.random.set_state(states["numpy"])  # noqa: NPY002
    torch.set_rng_state(states["torch"])
    if states["cuda"]:
        torch.cuda.set_rng_state_all(states["cuda"])
