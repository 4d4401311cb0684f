"""Ranks and parallel training with accelerate (DDP, DeepSpeed's ZeRO, FSDP2).

Also the optimizer, the learning rate schedule and the trackers of the loop.
"""

import os
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from datetime import timedelta
from importlib.util import find_spec
from typing import Any, Literal, Self, cast

import torch
import torch.distributed as dist
from accelerate import Accelerator, DistributedType
from accelerate.state import AcceleratorState, PartialState
from accelerate.tracking import TensorBoardTracker
from accelerate.utils import (
    DeepSpeedPlugin,
    DistributedDataParallelKwargs,
    FullyShardedDataParallelPlugin,
    GradientAccumulationPlugin,
    ProjectConfiguration,
    patch_environment,
)
from torch import nn
from torch.distributed.fsdp import MixedPrecisionPolicy
from torch.optim import Optimizer
from transformers import get_scheduler
from transformers.modeling_layers import GradientCheckpointingLayer

from refinesynth.errors import ConfigurationError, RefinesynthError
from refinesynth.lazy_imports import check_installed, missing, require
from refinesynth.train.config import TrainConfig
from refinesynth.train.engine.lm_head import base_model
from refinesynth.train.plan import ComputeSettings, Devices, Parallel, read_deepspeed
from refinesynth.train.ranks import free_port, is_launched, rank
from refinesynth.train.training_folder import TENSORBOARD


@dataclass(frozen=True, slots=True)
class Distributed:
    """Position of this process among the ranks of a training."""

    rank: int
    """Number of this process; rank 0 writes the model and reports."""
    local_rank: int
    """Number of this process on this machine, and index of its GPU."""
    world_size: int
    kind: Literal["cpu", "gpu"]

    @classmethod
    def from_environment(cls, config: TrainConfig) -> Self:
        environment = os.environ
        gpu = config.device == "auto" and torch.cuda.is_available()
        local_rank = int(environment.get("LOCAL_RANK", "0"))
        return cls(rank(), local_rank, int(environment.get("WORLD_SIZE", "1")), "gpu" if gpu else "cpu")

    def devices(self) -> Devices:
        if self.kind == "cpu":
            return Devices("cpu", "CPU", self.world_size)
        properties = cast("Any", torch.cuda.get_device_properties(self.local_rank))
        bf16 = torch.cuda.is_bf16_supported(including_emulation=False)
        return Devices("gpu", properties.name, self.world_size, properties.total_memory, bf16)


def single_process_environment(parallel: Parallel) -> AbstractContextManager[Any]:
    """Context in which a single process has torchrun's environment variables, which ZeRO and FSDP need."""
    if is_launched() or parallel not in {"zero2", "zero3", "fsdp"}:
        return nullcontext()
    return patch_environment(RANK=0, LOCAL_RANK=0, WORLD_SIZE=1, MASTER_ADDR="127.0.0.1", MASTER_PORT=free_port())


def gather_objects(local: Any) -> list[Any]:
    """Gather an object from every rank, in rank order; all ranks call this function."""
    if not dist.is_initialized():
        return [local]
    gathered: list[Any] = [None] * dist.get_world_size()
    dist.all_gather_object(gathered, local)
    return gathered


def raise_on_all_ranks(error: RefinesynthError | None) -> None:
    """Raise this rank's error, else that of another rank; all ranks call this function."""
    for failed in (error, *gather_objects(error)):
        if failed is not None:
            raise failed


def destroy_process_group() -> None:
    """Wait for all ranks and destroy the process group, which would otherwise hang or warn at exit."""
    if dist.is_initialized():
        dist.barrier()
        dist.destroy_process_group()


def make_accelerator(config: TrainConfig, compute: ComputeSettings, distributed: Distributed) -> Accelerator:
    """Initialize the process group and accelerate; ZeRO-3 needs this before the model is loaded.

    Raises `InputError` for an unusable DeepSpeed file, `ConfigurationError` if DeepSpeed is not installed.
    """
    cpu = distributed.kind == "cpu"
    is_first = not dist.is_initialized()
    if is_launched() and is_first:
        dist.init_process_group("gloo" if cpu else "nccl", timeout=timedelta(seconds=config.trainer.ddp_timeout))
    half = compute.precision == "bf16"
    # The state of an earlier training in this process would persist; accelerate has no public way to reset it.
    AcceleratorState._reset_state(reset_partial_state=is_first)  # noqa: SLF001  # pyright: ignore[reportPrivateUsage]
    PartialState(cpu=cpu)
    plugins: dict[str, Any] = {}
    if compute.deepspeed:
        settings = deepspeed_json(config, compute.parallel, distributed.kind, half=half)
        plugins["deepspeed_plugin"] = DeepSpeedPlugin(hf_ds_config=settings)
    elif compute.parallel == "fsdp":
        plugins["fsdp_plugin"] = FullyShardedDataParallelPlugin(
            fsdp_version=2,
            reshard_after_forward=True,
            auto_wrap_policy="transformer_based_wrap",
            state_dict_type="SHARDED_STATE_DICT",
            # Gradients are reduced over ranks in fp32, and outputs of the model keep their type.
            mixed_precision_policy=MixedPrecisionPolicy(torch.bfloat16, torch.float32) if half else None,
        )
    elif compute.parallel == "ddp":
        plugins["kwargs_handlers"] = [DistributedDataParallelKwargs(find_unused_parameters=False)]
    return Accelerator(
        # The loop splits steps itself: ignore ACCELERATE_GRADIENT_ACCUMULATION_STEPS.
        gradient_accumulation_plugin=GradientAccumulationPlugin(num_steps=1),
        mixed_precision="bf16" if half else "no",
        log_with=cast("Any", _trackers(config) or None),
        project_config=ProjectConfiguration(project_dir=config.output, logging_dir=config.output),
        **plugins,
    )


def wrap_layers(accelerator: Accelerator, model: nn.Module) -> None:
    """Set the layer classes that FSDP shards separately, before the model is wrapped: those with gradient checkpointing
    in transformers, and those in the model's `_no_split_modules`.
    """
    if accelerator.distributed_type != DistributedType.FSDP:
        return
    plugin = cast("Any", accelerator.state).fsdp_plugin
    layers = {type(module).__name__ for module in model.modules() if isinstance(module, GradientCheckpointingLayer)}
    unsplit = set[str](getattr(base_model(model), "_no_split_modules", None) or ())
    layers |= unsplit.intersection(type(module).__name__ for module in model.modules())
    plugin.transformer_cls_names_to_wrap = sorted(layers) or None
    plugin.cpu_ram_efficient_loading = can_be_broadcast(model)


def start_trackers(accelerator: Accelerator, config: TrainConfig) -> None:
    """Start a run in every tracker."""
    if _trackers(config):
        accelerator.init_trackers(os.environ.get("WANDB_PROJECT") or "refinesynth")


def _trackers(config: TrainConfig) -> list[Any]:
    """Trackers; TensorBoard writes into the output folder."""
    names = config.trainer.report_to
    return [TensorBoardTracker(TENSORBOARD, config.output) if name == TENSORBOARD else name for name in names]


def deepspeed_json(
    config: TrainConfig, parallel: str, kind: Literal["cpu", "gpu"], *, half: bool = False
) -> dict[str, Any]:
    """Make DeepSpeed's configuration from the user's file or defaults, without an optimizer (`make_optimizer`)."""
    require("deepspeed", "deepspeed")
    if kind == "cpu":
        import deepspeed.ops

        # Compiling the shared-memory kernel for CPU ranks would take a minute and need a compiler.
        deepspeed.ops.__compatible_ops__["deepspeed_shm_comm"] = False  # pyright: ignore
    defaults: dict[str, Any] = {
        "zero_allow_untested_optimizer": True,
        "zero_optimization": {
            "stage": 3 if parallel == "zero3" else 2,
            "overlap_comm": kind == "gpu",
            "contiguous_gradients": True,
            "stage3_gather_16bit_weights_on_model_save": True,
        },
    }
    return (defaults if config.deepspeed is None else read_deepspeed(config.deepspeed)) | {
        "train_micro_batch_size_per_gpu": 1,
        # Any number above 1: accelerate sets the boundary at each backward pass, and the real number varies.
        "gradient_accumulation_steps": 2,
        "gradient_clipping": config.max_grad_norm,
        "bf16": {"enabled": half},
    }


def make_optimizer(model: nn.Module, config: TrainConfig, *, cuda: bool = False) -> Optimizer:
    """Make the optimizer of the trained parameters, without weight decay for one-dimensional ones (biases, norms)."""
    trained = [p for p in model.parameters() if p.requires_grad]
    decayed = [p for p in trained if len(getattr(p, "ds_shape", p.shape)) > 1]
    undecayed = [p for p in trained if len(getattr(p, "ds_shape", p.shape)) <= 1]
    groups: list[Any] = [
        {"params": ps, "weight_decay": decay} for ps, decay in ((decayed, config.weight_decay), (undecayed, 0.0)) if ps
    ]
    name, rate, betas = config.trainer.optim or "", config.learning_rate, config.adam_betas
    if not name:
        return torch.optim.AdamW(groups, rate, betas, fused=cuda or None)
    library = require("bitsandbytes", "quantize").optim
    manager = library.GlobalOptimManager.get_instance()
    for module in model.modules():
        if isinstance(module, nn.Embedding):  # moments of embeddings in 32 bits, as bitsandbytes advises
            manager.register_module_override(module, "weight", {"optim_bits": 32})
    optimizer_class = library.AdamW8bit if name == "adamw_8bit" else library.PagedAdamW8bit
    return optimizer_class(groups, lr=rate, betas=betas)


def make_schedule(optimizer: Optimizer, config: TrainConfig, steps: int) -> Any:
    """Make the learning rate schedule. `constant` with warm-up has another name in transformers."""
    name = "constant_with_warmup" if config.schedule == "constant" and config.warmup else config.schedule
    return get_scheduler(name, optimizer, config.warmup_steps(steps), steps)


def check_loop(config: TrainConfig) -> None:
    """Raises: ConfigurationError: A tracker or bitsandbytes is not installed."""
    if config.quantize is not None or config.trainer.optim:
        check_installed("quantize", "bitsandbytes")
    for name in config.trainer.report_to:
        if find_spec(name) is None:
            raise ConfigurationError(
                missing("tensorboard", "train")
                if name == "tensorboard"
                else f"trainer.report_to is {name!r}, whose package is not installed: pip install {name}"
            )


def load_once(load: Callable[..., nn.Module], distributed: Distributed) -> nn.Module:
    """Load a model for FSDP with `load(empty=...)`, on one rank per machine with weights. All ranks call this function.

    The other ranks hold meta tensors, and accelerate broadcasts the weights: eight ranks would need 256 GB of host
    memory for 8B parameters in fp32. A model that cannot be broadcast is loaded on every rank. Raises
    `RefinesynthError` on every rank if one rank fails.
    """
    is_first = distributed.local_rank == 0
    model, error = nn.Module(), None
    try:
        # transformers reads these variables when it loads a model.
        with patch_environment(ACCELERATE_USE_FSDP="true", FSDP_CPU_RAM_EFFICIENT_LOADING="true"):
            model = load(empty=not is_first)
        if not is_first and not can_be_broadcast(model):
            model = load(empty=False)
    except RefinesynthError as exc:
        error = exc
    raise_on_all_ranks(error)
    _give_meta_addresses(model)
    return model


def can_be_broadcast(model: nn.Module) -> bool:
    """Return False for models with saved buffers (some routers), which accelerate would treat as parameters."""
    return len({*model.state_dict()} - {name for name, _ in model.named_parameters(remove_duplicate=False)}) == 0


def _give_meta_addresses(model: nn.Module) -> None:
    """Give meta parameters a memory address, with which accelerate identifies the parameters of an optimizer."""
    replacements: dict[int, nn.Parameter] = {}  # tied weights stay tied
    for module in model.modules():
        for name, parameter in list(module.named_parameters(recurse=False, remove_duplicate=False)):
            if parameter.is_meta:
                scalar_view = torch.zeros((), dtype=parameter.dtype).expand(parameter.shape)  # a view of one number
                replacements.setdefault(id(parameter), nn.Parameter(scalar_view, requires_grad=parameter.requires_grad))
                setattr(module, name, replacements[id(parameter)])
