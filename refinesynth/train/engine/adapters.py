"""Low-rank adapters: put on a model in the place of training all its weights."""

# torch and peft are typed in part: pyright may not know all of a member that is used here.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false

import re
import warnings
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from typing import Any, cast

from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import nn

from refinesynth.errors import InputError
from refinesynth.extras import require
from refinesynth.train.adapter import SETTINGS, WEIGHTS, Adapter
from refinesynth.train.config import LoraConfig
from refinesynth.train.engine.save_check import Trained, file_differences


def with_adapters(model: nn.Module, lora: LoraConfig, *, exclude: Sequence[str] = ()) -> nn.Module:
    """`model` with trainable low-rank adapters, all else frozen; modules called as one of `exclude` says, and those in
    them, get none.

    `exclude` are names, or ends of names: `lm_head`, `model.vision_tower`.

    Raises:
        InputError: No module is called what `targets` says, or what `modules_to_save` says.
    """
    names = cast("list[str]", [name for name, _ in model.named_modules()])
    if unknown := [end for end in lora.modules_to_save if not any(name.endswith(end) for name in names)]:
        # Peft would leave them out, and say nothing.
        raise InputError(
            f"no module of {type(model).__name__} is called {' or '.join(map(repr, unknown))}; lora.modules_to_save are names, or ends of names, "
            f"of modules: lm_head, embed_tokens"
        )
    targets = lora.targets if isinstance(lora.targets, str) else list(lora.targets)
    wanted = require("peft", "train").LoraConfig(
        r=lora.rank,
        lora_alpha=lora.alpha,
        lora_dropout=lora.dropout,
        target_modules=targets,
        modules_to_save=list(lora.modules_to_save) or None,
        exclude_modules=rf"(.*\.)?({'|'.join(map(re.escape, exclude))})(\..*)?" if exclude else None,
        task_type="CAUSAL_LM",
    )
    return _put_on(model, wanted, "See lora.targets.")


def with_adapter(model: nn.Module, adapter: Adapter, *, empty: bool = False) -> nn.Module:
    """`model` with an adapter that was trained before, trainable again; `empty`: its weights are not read.

    Raises:
        InputError: It belongs to a model with other modules or shapes, or cannot be read.
    """
    peft = require("peft", "train")
    try:
        wanted = peft.PeftConfig.from_pretrained(str(adapter.folder))
    except (ValueError, TypeError, KeyError) as exc:
        raise InputError(f"the adapter {str(adapter.folder)!r} cannot be used: in its {SETTINGS}, {exc}") from exc
    wanted.inference_mode, wanted.task_type = False, "CAUSAL_LM"
    made = _put_on(model, wanted, f"They are those of {str(adapter.folder)!r}; is this its base?")
    if differences := file_differences(Trained.of(made), adapter.folder):
        raise InputError(
            f"the adapter {str(adapter.folder)!r} does not fit {type(model).__name__}, so that is not its base: {'; '.join(differences)}"
        )
    if not empty:
        try:
            weights = load_file(adapter.folder / WEIGHTS)
            peft.set_peft_model_state_dict(made, weights)
        except (OSError, SafetensorError, RuntimeError) as exc:
            raise InputError(f"the adapter {str(adapter.folder)!r} cannot be read: {exc}") from exc
        if broken := [name for name, one in weights.items() if not one.isfinite().all()]:
            raise InputError(f"the adapter {str(adapter.folder)!r} holds what are no numbers, in {broken[0]}")
    return made


def _put_on(model: nn.Module, wanted: Any, hint: str) -> nn.Module:
    try:
        with _quiet():
            made = require("peft", "train").get_peft_model(cast("Any", model), wanted)
    except (ValueError, LookupError, TypeError, AttributeError, NotImplementedError, re.error) as exc:
        raise InputError(f"adapters cannot be put on {type(model).__name__}: {exc}. {hint}") from exc
    # By its name peft asks the hub at every save whether the vocabulary was changed, which nothing here does;
    # `save_dtype.py` writes it.
    cast("Any", model).name_or_path, wanted.base_model_name_or_path = "", None
    _untie_what_was_replaced(model)
    return cast("nn.Module", made)


def hold_exactly(model: nn.Module) -> None:
    """Hold what is trained in fp32: peft does so with adapters alone, and leaves modules that are trained whole in the
    frozen weights' bf16.
    """
    for one in model.parameters():
        if one.requires_grad and not hasattr(one, "ds_id"):  # DeepSpeed keeps fp32 copies of its own
            one.data = one.data.float()


def _untie_what_was_replaced(model: nn.Module) -> None:
    """Have the library tie no weights anew, as accelerate asks it to for FSDP, that an adapter's module holds by
    another name.
    """
    tied = cast("dict[str, str]", getattr(model, "all_tied_weights_keys", None) or {})
    if {*tied, *tied.values()} <= {name for name, _ in model.named_parameters(remove_duplicate=False)}:
        return
    config = cast("Any", model).config
    for each in (config, config.get_text_config()):
        each.tie_word_embeddings = False


@contextmanager
def _quiet() -> Generator[None]:
    """Without what peft says that no user need change: old names by which it asks, where it was loaded before, heads
    that are tied no longer.
    """
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "`is_gradient_checkpointing` is deprecated", FutureWarning)
        warnings.filterwarnings("ignore", "The PEFT config's `base_model_name_or_path` was renamed")
        warnings.filterwarnings("ignore", "Model has `tie_word_embeddings=True`")
        yield
