"""Low-rank adapters: put on a model in the place of training all its weights."""

# torch and peft are typed in part: pyright may not know all of a member that is used here.
# pyright: reportUnknownMemberType=false

import re
import warnings
from collections.abc import Sequence
from typing import Any, cast

from torch import nn

from refinesynth.errors import InputError
from refinesynth.train.config import LoraConfig
from refinesynth.train.extra import require


def with_adapters(model: nn.Module, lora: LoraConfig, *, exclude: Sequence[str] = ()) -> nn.Module:
    """`model` with trainable low-rank adapters, all else frozen; modules called as one of `exclude` says, and those in them, get none.

    `exclude` are names, or ends of names: `lm_head`, `model.vision_tower`.

    Raises:
        InputError: No module is called what `targets` says.
    """
    require("peft")
    import peft

    targets = lora.targets if isinstance(lora.targets, str) else list(lora.targets)
    wanted = peft.LoraConfig(
        r=lora.rank,
        lora_alpha=cast("int", lora.alpha),
        lora_dropout=lora.dropout,
        target_modules=targets,
        exclude_modules=rf"(.*\.)?({'|'.join(map(re.escape, exclude))})(\..*)?" if exclude else None,
        task_type="CAUSAL_LM",
    )
    try:
        with warnings.catch_warnings():
            # peft asks for it by its old name; nothing that a user could change.
            warnings.filterwarnings("ignore", "`is_gradient_checkpointing` is deprecated", FutureWarning)
            made = peft.get_peft_model(cast("Any", model), wanted)
    except (ValueError, KeyError) as exc:
        raise InputError(f"adapters cannot be put on {type(model).__name__}: {exc}. See lora.targets.") from exc
    # By its name peft asks the hub at every save whether the vocabulary was changed, which nothing here does; `weights.py` writes it.
    cast("Any", model).name_or_path, wanted.base_model_name_or_path = "", None
    return cast("nn.Module", made)
