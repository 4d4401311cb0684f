"""Settings that are passed on: fields of transformers' `TrainingArguments`, and a DeepSpeed file. No torch."""

import ast
import difflib
import json
from collections.abc import Collection, Iterator, Mapping
from functools import cache
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final, Literal, cast

from refinesynth.errors import InputError

_LOSS: Final = "the loss is equation 1, over the trained tokens of all devices"
_BATCHES: Final = "conversations are packed, spread and loaded by a schedule of our own"
_EVALUATION: Final = "held-out losses are measured by kind of turn"
_CHECKPOINTS: Final = "checkpoints are whole, marked and rotated by rank 0, so that every one can be gone on from"
_OWN: Final = "it is a setting of its own"
_SHARED: Final = "one setting says how the work is shared"
_DECIDED: Final[tuple[tuple[str, str | None, str], ...]] = (
    (_LOSS, None, "label_smoothing_factor label_names average_tokens_across_devices"),
    (_BATCHES, "batch_size", "per_device_train_batch_size gradient_accumulation_steps"),
    (_BATCHES, "tokens_per_pack", "auto_find_batch_size per_device_eval_batch_size"),
    (_BATCHES, "packing", "group_by_length train_sampling_strategy length_column_name remove_unused_columns"),
    (
        _BATCHES,
        None,
        (
            "accelerator_config include_num_input_tokens_seen ignore_data_skip dataloader_drop_last "
            "dataloader_in_order dataloader_multiprocessing_context dataloader_num_workers "
            "dataloader_persistent_workers dataloader_pin_memory dataloader_prefetch_factor"
        ),
    ),
    (_OWN, "epochs", "num_train_epochs"),
    (_OWN, "max_steps", "max_steps"),
    (_OWN, "learning_rate", "learning_rate"),
    (_OWN, "schedule", "lr_scheduler_type"),
    (_OWN, "warmup", "warmup_steps warmup_ratio"),
    (_OWN, "weight_decay", "weight_decay"),
    (_OWN, "adam_betas", "adam_beta1 adam_beta2"),
    (_OWN, "max_grad_norm", "max_grad_norm"),
    (_OWN, "log_every", "logging_steps logging_strategy"),
    (_OWN, "seed", "seed data_seed"),
    (_OWN, "device", "use_cpu"),
    ("weights and computing have their types together", "precision", "bf16 fp16 bf16_full_eval fp16_full_eval"),
    (
        "how it is done depends on what splits the weights",
        "gradient_checkpointing",
        "gradient_checkpointing gradient_checkpointing_kwargs activation_checkpointing activation_checkpointing_kwargs",
    ),
    ("a training has no use for a cache, and the model is saved with what it came with", None, "use_cache"),
    (_SHARED, "parallel", "fsdp fsdp_config parallelism_config"),
    (_SHARED, "deepspeed", "deepspeed"),
    ("one setting says how many there are", "processes", "local_rank"),
    (_EVALUATION, "evaluate_every", "eval_strategy eval_steps eval_delay eval_on_start do_eval"),
    (
        _EVALUATION,
        None,
        (
            "prediction_loss_only eval_do_concat_batches eval_use_gather_object eval_accumulation_steps "
            "include_for_metrics batch_eval_metrics do_predict load_best_model_at_end metric_for_best_model "
            "greater_is_better"
        ),
    ),
    (_CHECKPOINTS, "save_every", "save_strategy save_steps"),
    (_CHECKPOINTS, "keep", "save_total_limit"),
    (_CHECKPOINTS, None, "save_only_model save_on_each_node enable_jit_checkpoint"),
    (
        "a training goes on as if it had not been interrupted",
        "resume",
        "resume_from_checkpoint restore_callback_states_from_checkpoint do_train",
    ),
    ("it is where everything is written", "output", "output_dir"),
    ("it would hide a loss that is no number, which ends a training here", None, "logging_nan_inf_filter"),
    ("what is shown comes from here, line by line or as a board", None, "disable_tqdm"),
    ("it is a secret, and would stand in train.yaml; log in with `hf auth login`, or set HF_TOKEN", None, "hub_token"),
    (
        "a finished model is pushed with the hub's own command: hf upload OWNER/NAME FOLDER",
        None,
        "push_to_hub hub_model_id hub_private_repo hub_revision hub_strategy hub_always_push",
    ),
)
"""Why fields are not passed on, our own setting to give instead, and the fields."""
_WHY: Final = {name: (why, own) for why, own, names in _DECIDED for name in names.split()}

_MAY_CHANGE = (
    "report_to run_name project trackio_space_id trackio_bucket_id trackio_static_space_id log_level "
    "log_level_replica log_on_each_node logging_first_step debug skip_memory_metrics ddp_timeout ddp_backend "
    "ddp_bucket_cap_mb ddp_find_unused_parameters ddp_static_graph torch_compile torch_compile_backend "
    "torch_compile_mode torch_empty_cache_steps use_liger_kernel liger_kernel_config full_determinism"
)
MAY_CHANGE_FIELDS: Final = frozenset(_MAY_CHANGE.split())
"""Fields that change how it is computed or what is reported, not what is learned."""


@cache
def field_names() -> frozenset[str]:
    """The fields of `TrainingArguments` as its source has them: importing it takes seconds. None where it is not
    installed.
    """
    found = find_spec("transformers")
    if found is None or not found.submodule_search_locations:
        return frozenset()
    try:
        source = Path(found.submodule_search_locations[0], "training_args.py").read_text(encoding="utf-8")
        there = [node for node in ast.parse(source).body if isinstance(node, ast.ClassDef)]
    except (OSError, ValueError, SyntaxError):
        return frozenset()
    bodies = [node.body for node in there if node.name == "TrainingArguments"]
    fields = [node.target for body in bodies for node in body if isinstance(node, ast.AnnAssign)]
    return frozenset(target.id for target in fields if isinstance(target, ast.Name))


def instead_of(name: str) -> str | None:
    """The setting to give for what `TrainingArguments` calls `name`; None if it has no such field, or there is none to
    give.
    """
    if name in _WHY:
        return _WHY[name][1]
    return f"trainer.{name}" if name in field_names() else None


def problems(given: Mapping[str, Any], own: Collection[str]) -> Iterator[str]:
    """What is wrong with the names of fields that are given; `own` are the names of our settings."""
    there = field_names()
    for name in given:
        if name in _WHY:
            why, setting = _WHY[name]
            yield f"trainer.{name} is not passed on: {why}{f'; give {setting} instead' if setting else ''}"
        elif name in there or not there:
            continue
        elif name in own:
            yield f"trainer.{name} is no field of transformers' TrainingArguments; {name} is a setting of its own"
        else:
            near = difflib.get_close_matches(name, sorted(there - _WHY.keys()), n=3)
            meant = f"; did you mean {' or '.join(f'trainer.{each}' for each in near)}?" if near else ""
            version = metadata.version("transformers")
            yield f"trainer.{name} is no field of transformers' TrainingArguments (version {version}){meant}"


def deciding(given: Mapping[str, Any]) -> dict[str, Any]:
    """Of the fields that are given, those that decide about the weights."""
    return {name: value for name, value in sorted(given.items()) if name not in MAY_CHANGE_FIELDS}


_OURS: Final = ("train_batch_size", "train_micro_batch_size_per_gpu", "gradient_accumulation_steps")
"""What the schedule decides: conversations are packed, so that these do not mean what the file's writer thinks of."""
_ZERO_2: Final = 2
_ZERO_3: Final = 3


def own_deepspeed(name: str) -> dict[str, Any]:
    """The file's configuration, with what a training here cannot do without.

    Raises:
        InputError: It cannot be read, is no JSON object, or has no ZeRO stage 2 or 3.
    """
    try:
        found: Any = json.loads(Path(name).read_text(encoding="utf-8"))
    except (OSError, ValueError) as exc:
        raise InputError(f"the DeepSpeed file {name!r} cannot be read: {exc}") from exc
    if not isinstance(found, dict):
        raise InputError(f"the DeepSpeed file {name!r} holds {type(found).__name__}, not an object")
    given = cast("dict[str, Any]", found)
    zero: Any = given.get("zero_optimization")
    stage = cast("dict[str, Any]", zero).get("stage") if isinstance(zero, dict) else None
    if stage not in {_ZERO_2, _ZERO_3}:
        raise InputError(
            f"the DeepSpeed file {name!r} asks for ZeRO stage {stage!r}; set zero_optimization.stage to 2 or 3"
        )
    kept = {key: value for key, value in given.items() if key not in _OURS}
    batches: dict[str, Any] = {"train_micro_batch_size_per_gpu": "auto", "gradient_accumulation_steps": "auto"}
    # Without the second the model would be saved in DeepSpeed's own pieces alone.
    needed: dict[str, Any] = {"stage3_gather_16bit_weights_on_model_save": True} if stage == _ZERO_3 else {}
    return {"zero_allow_untested_optimizer": True} | kept | batches | {"zero_optimization": {**zero, **needed}}


def stage_of(settings: dict[str, Any]) -> Literal["zero2", "zero3"]:
    """What it makes of the training."""
    return "zero3" if settings["zero_optimization"]["stage"] == _ZERO_3 else "zero2"
