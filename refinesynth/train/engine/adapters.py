"""Low-rank adapters instead of all weights, also over frozen weights in 4 or 8 bits (QLoRA)."""

import re
import warnings
from collections.abc import Collection, Generator, Iterable
from contextlib import contextmanager
from typing import Any, Final, Literal, cast

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import nn
from transformers import BitsAndBytesConfig

from refinesynth.errors import InputError
from refinesynth.extras import require
from refinesynth.train.config import LoraConfig, TrainConfig
from refinesynth.train.engine.lm_head import output_head
from refinesynth.train.engine.model_writer import Trained, saved_differences
from refinesynth.train.inputs import SETTINGS, WEIGHTS, Adapter
from refinesynth.train.plan import Precision


def with_adapters(
    model: nn.Module,
    lora: LoraConfig,
    adapter: Adapter | None = None,
    *,
    exclude: Collection[str] = (),
    empty: bool = False,
) -> nn.Module:
    """Put trainable adapters on `model` and freeze the rest; modules under the (ends of) names `exclude` get none.

    An existing `adapter` is trained further as it is; `empty`: its weights are not read. Raises `InputError` if no
    module has a name of `targets` or of `modules_to_save`, or the adapter does not fit.
    """
    if adapter is not None:
        return _with_existing(model, adapter, empty=empty)
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


def _with_existing(model: nn.Module, adapter: Adapter, *, empty: bool) -> nn.Module:
    peft = require("peft", "train")
    try:
        wanted = peft.PeftConfig.from_pretrained(str(adapter.folder))
    except (ValueError, TypeError, KeyError) as exc:
        raise InputError(f"the adapter {str(adapter.folder)!r} cannot be used: in its {SETTINGS}, {exc}") from exc
    wanted.inference_mode, wanted.task_type = False, "CAUSAL_LM"
    made = _put_on(model, wanted, f"They are those of {str(adapter.folder)!r}; is this its base?")
    if differences := saved_differences(Trained.of(made), adapter.folder):
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
    # `model_writer.py` writes it.
    cast("Any", model).name_or_path, wanted.base_model_name_or_path = "", None
    _untie_what_was_replaced(model)
    return cast("nn.Module", made)


def hold_exactly(model: nn.Module) -> None:
    """Hold trained weights in fp32. By itself, peft leaves `modules_to_save` in the frozen weights' bf16."""
    for one in model.parameters():
        if one.requires_grad and not hasattr(one, "ds_id"):  # DeepSpeed keeps fp32 copies of its own
            one.data = one.data.float()


def _untie_what_was_replaced(model: nn.Module) -> None:
    """Keep the library from tying weights again (accelerate asks it to for FSDP) that an adapter's module renamed."""
    tied = cast("dict[str, str]", getattr(model, "all_tied_weights_keys", None) or {})
    if {*tied, *tied.values()} <= {name for name, _ in model.named_parameters(remove_duplicate=False)}:
        return
    config = cast("Any", model).config
    for each in (config, config.get_text_config()):
        each.tie_word_embeddings = False


@contextmanager
def _quiet() -> Generator[None]:
    """Suppress warnings of peft that no user can act on."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "`is_gradient_checkpointing` is deprecated", FutureWarning)
        warnings.filterwarnings("ignore", "The PEFT config's `base_model_name_or_path` was renamed")
        warnings.filterwarnings("ignore", "Model has `tie_word_embeddings=True`")
        yield


_BYTES: Final = {"4bit": 0.5 + 0.127 / 8, "8bit": 1.0}
"""Bytes per weight: 4-bit NormalFloat with double quantization (0.127 bits, QLoRA section 3); LLM.int8()."""
_FLOAT: Final = 4


def loading_options(config: TrainConfig, precision: Precision) -> dict[str, Any]:
    """Arguments of `from_pretrained` that quantize a model; empty without quantization."""
    if config.quantize is None:
        return {}
    if config.quantize == "4bit":
        how = BitsAndBytesConfig(
            load_in_4bit=True,
            bnb_4bit_quant_type="nf4",
            bnb_4bit_use_double_quant=True,
            bnb_4bit_compute_dtype=torch.bfloat16 if precision == "bf16" else torch.float32,
        )
    else:
        how = BitsAndBytesConfig(load_in_8bit=True)
    on_gpu = config.device == "auto" and torch.cuda.is_available()
    # Quantized weights cannot be moved, so they are read to where they are used.
    return {"quantization_config": how, "device_map": {"": torch.cuda.current_device() if on_gpu else "cpu"}}


def is_quantized(model: nn.Module) -> bool:
    return bool(getattr(model, "is_quantized", False))


def ready_to_train(model: nn.Module) -> nn.Module:
    """Freeze a quantized model and hold norms, embeddings and head in fp32, as peft prepares it.

    On CPUs with AVX512-BF16, bitsandbytes repacks 4-bit weights at the first forward pass in `eval()`, for a kernel
    without gradient (`Linear4bit.forward`, 0.50.2). A probe or an evaluation would break training, so it is switched
    off.
    """
    for one in cast("Iterable[Any]", model.modules()):
        if hasattr(one, "support_avx512bf16_for_cpu"):
            one.support_avx512bf16_for_cpu = False
    return cast(
        "nn.Module", require("peft", "train").prepare_model_for_kbit_training(model, use_gradient_checkpointing=False)
    )


def frozen_bytes(model: nn.Module, bits: Literal["4bit", "8bit"]) -> int:
    """Bytes of quantized weights: linear layers but the head in few bits, the rest in fp32."""
    head = output_head(model)
    linear = {id(one.weight) for one in model.modules() if isinstance(one, nn.Linear) and one is not head}
    return int(sum(one.numel() * (_BYTES[bits] if id(one) in linear else _FLOAT) for one in model.parameters()))
