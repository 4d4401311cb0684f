"""Reader of the user's own DeepSpeed file. Imports no torch."""

import json
from pathlib import Path
from typing import Any, Final, Literal, cast

from refinesynth.errors import InputError

_OURS: Final = ("train_batch_size", "train_micro_batch_size_per_gpu", "gradient_accumulation_steps")
_SETTINGS: Final = {
    "optimizer": "learning_rate, weight_decay and adam_betas",
    "scheduler": "schedule and warmup",
    "gradient_clipping": "max_grad_norm",
    "bf16": "precision",
    "fp16": "precision",
}
"""Sections of the file that are settings of a training here."""


def own_deepspeed(name: str) -> dict[str, Any]:
    """The file's configuration, with the additions that a training needs. Raises `InputError`."""
    try:
        given = _object(json.loads(Path(name).read_text(encoding="utf-8")))
    except (OSError, ValueError) as exc:
        raise InputError(f"the DeepSpeed file {name!r} cannot be read: {exc}") from exc
    zero = _object(given.get("zero_optimization"))
    stage = zero.get("stage")
    if stage not in (2, 3):
        raise InputError(
            f"the DeepSpeed file {name!r} asks for ZeRO stage {stage!r}; set zero_optimization.stage to 2 or 3"
        )
    for section in (each for each in _SETTINGS if each in given):
        value: object = given[section]
        value = cast("dict[str, Any]", value).get("enabled") if isinstance(value, dict) else value
        left_open = value in (None, "auto") or (section == "fp16" and value is False)
        if not left_open or section in {"optimizer", "scheduler"}:
            raise InputError(
                f"the DeepSpeed file {name!r} sets {section!r}; take it out, and set {_SETTINGS[section]} instead"
            )
    kept = {key: value for key, value in given.items() if key not in {*_OURS, "fp16"}}
    # Without it the model would be saved in DeepSpeed's own pieces alone.
    needed: dict[str, Any] = {"stage3_gather_16bit_weights_on_model_save": True} if stage == 3 else {}  # noqa: PLR2004
    return {"zero_allow_untested_optimizer": True} | kept | {"zero_optimization": {**zero, **needed}}


def stage_of(settings: dict[str, Any]) -> Literal["zero2", "zero3"]:
    return "zero3" if settings["zero_optimization"]["stage"] == 3 else "zero2"  # noqa: PLR2004


def _object(value: object) -> dict[str, Any]:
    return cast("dict[str, Any]", value) if isinstance(value, dict) else {}
