"""A DeepSpeed file of the user's own, with what a training here cannot do without. No torch."""

import json
from pathlib import Path
from typing import Any, Final, Literal, cast

from refinesynth.errors import InputError

_OURS: Final = ("train_batch_size", "train_micro_batch_size_per_gpu", "gradient_accumulation_steps")
"""What the schedule decides: conversations are packed, so that these do not mean what the file's writer thinks of."""
_ZERO_2: Final = 2
_ZERO_3: Final = 3


def own_deepspeed(name: str) -> dict[str, Any]:
    """The file's configuration, with what a training here cannot do without.

    Raises:
        InputError: It cannot be read, is no JSON object, has no ZeRO stage 2 or 3, or names an optimizer or a schedule.
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
    if beyond := [key for key in ("optimizer", "scheduler") if key in given]:
        raise InputError(
            f"the DeepSpeed file {name!r} has a section {beyond[0]!r}, which a training here makes by itself; take it out, and set "
            "learning_rate, schedule, warmup, weight_decay and adam_betas instead"
        )
    kept = {key: value for key, value in given.items() if key not in _OURS}
    # Without the second the model would be saved in DeepSpeed's own pieces alone.
    needed: dict[str, Any] = {"stage3_gather_16bit_weights_on_model_save": True} if stage == _ZERO_3 else {}
    return {"zero_allow_untested_optimizer": True} | kept | {"zero_optimization": {**zero, **needed}}


def stage_of(settings: dict[str, Any]) -> Literal["zero2", "zero3"]:
    """What it makes of the training."""
    return "zero3" if settings["zero_optimization"]["stage"] == _ZERO_3 else "zero2"
