"""Our settings as the library's: TrainingArguments with the user's own fields, a DeepSpeed configuration, FSDP2's options."""

import importlib
import os
from datetime import timedelta
from pathlib import Path
from typing import Any, Final, Literal, cast, get_type_hints

import torch
import torch.distributed as dist
from pydantic import ConfigDict, TypeAdapter, ValidationError
from torch import nn
from transformers import Trainer, TrainingArguments, optimization
from transformers.training_args import trainer_log_levels

from refinesynth.errors import ConfigurationError, RefinesynthError
from refinesynth.extras import missing, require
from refinesynth.train.config import TrainConfig, interval
from refinesynth.train.engine.distributed import Distributed
from refinesynth.train.engine.schedule import Schedule
from refinesynth.train.folder import CHECKPOINTS, TENSORBOARD
from refinesynth.train.memory import ComputeSettings
from refinesynth.train.passthrough import own_deepspeed
from refinesynth.train.ranks import is_launched


def training_arguments(
    config: TrainConfig, schedule: Schedule, means: ComputeSettings, distributed: Distributed, *, evaluates: bool
) -> TrainingArguments:
    """The library's arguments. They set up the process group, and with ZeRO-3 how a model is loaded: make them first.

    Raises:
        InputError: A DeepSpeed file that cannot be used.
        ConfigurationError: DeepSpeed is asked for and not installed.
    """
    evaluating = interval(config.evaluate_every, schedule.steps_per_epoch) if evaluates else None
    saving = interval(config.save_every, schedule.steps_per_epoch)
    gpu = distributed.kind == "gpu"
    defaults: dict[str, Any] = {
        "optim": "adamw_torch_fused" if gpu else "adamw_torch",
        "ddp_find_unused_parameters": False,
    }
    given = defaults | passthrough_arguments(config)
    place_trackers(config)
    _join(distributed, given)
    return TrainingArguments(
        output_dir=str(Path(config.output) / CHECKPOINTS),
        per_device_train_batch_size=1,
        gradient_accumulation_steps=schedule.accumulation,
        max_steps=schedule.steps,
        learning_rate=config.learning_rate,
        # The library's constant schedule knows no warm-up.
        lr_scheduler_type="constant_with_warmup"
        if config.schedule == "constant" and config.warmup
        else config.schedule,
        warmup_steps=_warmup(config.warmup, schedule.steps),
        weight_decay=config.weight_decay,
        adam_beta1=config.adam_betas[0],
        adam_beta2=config.adam_betas[1],
        max_grad_norm=config.max_grad_norm,
        bf16=means.precision == "bf16" or (means.precision == "bf16-pure" and means.parallel in {"zero2", "zero3"}),
        use_cpu=not gpu,
        seed=config.seed,
        logging_strategy="steps",
        logging_steps=config.log_every,
        logging_nan_inf_filter=False,  # it would hide a loss that is no number; that ends the training here
        eval_strategy="no" if evaluating is None else "steps",
        eval_steps=evaluating,
        save_strategy="no" if saving is None else "steps",
        save_steps=saving or 500,
        save_total_limit=None,  # rotated by us, behind the mark
        metric_for_best_model=None if evaluating is None else "loss",
        greater_is_better=False,
        disable_tqdm=True,
        remove_unused_columns=False,
        deepspeed=deepspeed_json(config, means.parallel, distributed.kind)
        if means.parallel in {"zero2", "zero3"}
        else None,
        **_fsdp() if means.parallel == "fsdp" else {},
        **given,
    )


def _join(distributed: Distributed, given: dict[str, Any]) -> None:
    """Form the process group of CPUs, for which the library does not hand on how long ranks wait for each other."""
    if distributed.kind == "cpu" and is_launched() and "ddp_timeout" in given and not dist.is_initialized():
        dist.init_process_group(given.get("ddp_backend") or "gloo", timeout=timedelta(seconds=given["ddp_timeout"]))


def deepspeed_json(config: TrainConfig, parallel: str, kind: Literal["cpu", "gpu"]) -> dict[str, Any]:
    """The configuration that DeepSpeed is given: the user's own file, or ours. It names no optimizer: AdamW is torch's.

    Raises:
        InputError: The file cannot be read, or is no JSON object.
    """
    require("deepspeed", "deepspeed")
    if kind == "cpu":
        _leave_shared_memory_alone()
    if config.deepspeed is not None:
        return own_deepspeed(config.deepspeed)
    return {
        "train_micro_batch_size_per_gpu": "auto",
        "gradient_accumulation_steps": "auto",
        "gradient_clipping": "auto",
        "bf16": {"enabled": "auto"},
        "zero_allow_untested_optimizer": True,
        "zero_optimization": {
            "stage": 3 if parallel == "zero3" else 2,
            "overlap_comm": kind == "gpu",
            "contiguous_gradients": True,
            "stage3_gather_16bit_weights_on_model_save": True,
        },
    }


def _leave_shared_memory_alone() -> None:
    """Keep DeepSpeed from compiling its kernel for CPU ranks of one machine: which takes a minute and a compiler and is
    of no use here.
    """
    import deepspeed.ops

    deepspeed.ops.__compatible_ops__["deepspeed_shm_comm"] = False  # pyright: ignore


def _fsdp() -> dict[str, Any]:
    # No activation_checkpointing: below its wrappers peft loses adapters, and the model's own gathers no weights again
    # either.
    options = {
        "version": 2,
        "reshard_after_forward": True,
        "cpu_ram_efficient_loading": True,  # see `read_once` in `loading.py`
        "state_dict_type": "SHARDED_STATE_DICT",
    }
    # Gradients that are not split up before the last micro-batch would be whole on every device until then.
    every = {"gradient_accumulation_kwargs": {"sync_each_batch": True}}
    return {"fsdp": True, "fsdp_config": options, "accelerator_config": every}


def _warmup(warmup: float, steps: int) -> int:
    return round(warmup * steps) if warmup < 1 else round(warmup)


_NONE: Final[tuple[Any, ...]] = (None, "none", [], ["none"])


def passthrough_arguments(config: TrainConfig) -> dict[str, Any]:
    """The fields, with the types that the library has for them; trackers put together.

    Raises:
        ConfigurationError: A value is of another type.
    """
    hints = get_type_hints(TrainingArguments)
    found = {name: _typed(name, value, hints[name]) for name, value in config.trainer.items()}
    found["report_to"] = _trackers(config, found.get("report_to", "none"))
    if found["report_to"] != "none":
        found.setdefault("run_name", Path(config.output).name)
    return found


def _typed(name: str, value: object, wanted: Any) -> object:
    try:
        return TypeAdapter(wanted, config=ConfigDict(arbitrary_types_allowed=True)).validate_python(value)
    except ValidationError as error:
        problem = error.errors(include_url=False)[0]["msg"]
        raise ConfigurationError(f"trainer.{name} is {value!r}: {problem}") from None


def _trackers(config: TrainConfig, asked: Any) -> Any:
    if not config.tensorboard:
        return "none" if asked in _NONE else asked
    named: list[str] = [] if asked in _NONE else [asked] if isinstance(asked, str) else list(asked)
    return named if "all" in named else [*dict.fromkeys([*named, "tensorboard"])]


def place_trackers(config: TrainConfig) -> None:
    """Have TensorBoard's files in the output folder, unless its own variable says where."""
    os.environ.setdefault("TENSORBOARD_LOGGING_DIR", str(Path(config.output) / TENSORBOARD))


class _DryArguments(TrainingArguments):
    """Arguments that touch no device and join no process group."""

    _setup_devices = torch.device("cpu")  # pyright: ignore


def check_passthrough(config: TrainConfig) -> None:
    """Check before anything is loaded that the library takes what is given, and has what that needs.

    Raises:
        ConfigurationError: It does not; the message is the library's.
    """
    values = passthrough_arguments(config)
    evaluates = bool(config.held_out) and config.evaluate_every != "never"
    try:
        asked = _DryArguments(
            output_dir="on-paper",
            use_cpu=True,
            lr_scheduler_type=config.schedule,
            eval_strategy="steps" if evaluates else "no",
            eval_steps=1,
            **values,
        )
        _check_levels(asked.log_level, asked.log_level_replica)
        _check_trackers(cast("list[str]", asked.report_to))
        Trainer.get_optimizer_cls_and_kwargs(asked, cast("Any", nn.Module()))
        _check_schedule(asked)
    except RefinesynthError:
        raise
    except Exception as error:  # The library raises many kinds.
        given = (
            ", ".join(f"{name}={value!r}" for name, value in config.trainer.items()) or f"schedule={config.schedule}"
        )
        problem = " ".join(str(error).split())
        raise ConfigurationError(
            f"transformers does not take what is given for its trainer ({given}): {problem}"
        ) from error


def _check_levels(*levels: str) -> None:
    if unknown := set(levels) - set(trainer_log_levels):
        raise ValueError(f"{', '.join(unknown)} is no log level; expected one of {', '.join(trainer_log_levels)}")


def _check_trackers(names: list[str]) -> None:
    integrations = cast("Any", importlib.import_module("transformers.integrations.integration_utils"))
    integrations.get_reporting_integration_callbacks(names)
    for name in names:
        if name not in integrations.get_available_reporting_integrations():
            raise ConfigurationError(
                missing("tensorboard", "train")
                if name == "tensorboard"
                else f"trainer.report_to is {name!r}, whose package is not installed: pip install {name}"
            )


def _check_schedule(asked: TrainingArguments) -> None:
    optimizer = torch.optim.SGD([nn.Parameter(torch.zeros(1))])
    cast("Any", optimization).get_scheduler(asked.lr_scheduler_type, optimizer, 0, 1, asked.lr_scheduler_kwargs)
