"""A DeepSpeed file of the user's own, with what a training here cannot do without. No torch."""

import json
from pathlib import Path
from typing import Any, Final, Literal, cast

from refinesynth.errors import InputError

_OURS: Final = ("train_batch_size", "train_micro_batch_size_per_gpu", "gradient_accumulation_steps")
"""Settings that the schedule decides: conversations are packed, so that they mean something else than in the file."""
_ZERO_2: Final = 2
_ZERO_3: Final = 3


def own_deepspeed(name: str) -> dict[str, Any]:
    """The file's configuration, with what a training here cannot do without.

    Raises:
        InputError: It cannot be read, is no JSON object, has no ZeRO stage 2 or 3, or sets what is a
            setting of a training here: an optimizer, a schedule, clipping, a precision.
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
    if cast("dict[str, Any]", given.get("fp16") or {}).get("enabled") not in {None, False}:
        raise InputError(
            f"the DeepSpeed file {name!r} enables fp16, which no training here computes in; take it out and set precision"
        )
    ours = {"gradient_clipping": "max_grad_norm", "bf16": "precision"}
    if beyond := [key for key in ours if given.get(key) not in (None, "auto", {"enabled": "auto"})]:
        raise InputError(
            f"the DeepSpeed file {name!r} sets {beyond[0]!r}; take it out or write auto, and set {ours[beyond[0]]} instead"
        )
    kept = {key: value for key, value in given.items() if key not in _OURS}
    # Without the second the model would be saved in DeepSpeed's own pieces alone.
    needed: dict[str, Any] = {"stage3_gather_16bit_weights_on_model_save": True} if stage == _ZERO_3 else {}
    return {"zero_allow_untested_optimizer": True} | kept | {"zero_optimization": {**zero, **needed}}


def stage_of(settings: dict[str, Any]) -> Literal["zero2", "zero3"]:
    """The sharing that the file asks for."""
    return "zero3" if settings["zero_optimization"]["stage"] == _ZERO_3 else "zero2"
