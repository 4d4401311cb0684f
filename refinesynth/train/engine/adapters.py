"""Trained parameters: low-rank adapters instead of all weights, also over weights in 4 bits (QLoRA).

Vision towers and their like are frozen before the model is wrapped, because DDP would wait for their gradients. They get
no adapters, which would learn nothing.
"""

import re
import warnings
from collections.abc import Collection, Iterable, Sequence
from operator import attrgetter
from typing import Any, Final, cast

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import nn
from transformers import BitsAndBytesConfig

from refinesynth.errors import InputError
from refinesynth.lazy_imports import require
from refinesynth.train.config import LoraConfig, TrainConfig
from refinesynth.train.engine.lm_head import base_model, output_head
from refinesynth.train.engine.model_writer import TrainedTensors, saved_differences
from refinesynth.train.inputs import SETTINGS_FILE, WEIGHTS_FILE, Adapter
from refinesynth.train.plan import Precision


def add_adapters(
    model: nn.Module,
    lora: LoraConfig,
    adapter: Adapter | None = None,
    *,
    exclude: Collection[str] = (),
    empty: bool = False,
) -> nn.Module:
    """Put trainable adapters on `model` and freeze the rest; modules named in `exclude`, and their children, get none.

    An existing `adapter` is trained further with its own settings; `empty` skips reading its weights. Raises
    `InputError` if a name of `targets` or `modules_to_save` matches no module, or if the adapter does not fit.
    """
    if adapter is not None:
        return _add_existing(model, adapter, empty=empty)
    names = cast("list[str]", [name for name, _ in model.named_modules()])
    unknown = [end for end in lora.modules_to_save if not any(name.endswith(end) for name in names)]
    _refuse_unknown(model, unknown, "modules_to_save", "lm_head, embed_tokens")
    targets = lora.targets if isinstance(lora.targets, str) else list(lora.targets)
    peft_config = require("peft", "train").LoraConfig(
        r=lora.rank,
        lora_alpha=lora.alpha,
        lora_dropout=lora.dropout,
        target_modules=targets,
        modules_to_save=list(lora.modules_to_save) or None,
        exclude_modules=rf"(.*\.)?({'|'.join(map(re.escape, exclude))})(\..*)?" if exclude else None,
        task_type="CAUSAL_LM",
    )
    adapted = cast("Any", _add_to(model, peft_config, "See lora.targets."))
    if not isinstance(targets, str):
        targeted = cast("list[str]", adapted.base_model.targeted_module_names)
        unknown = [end for end in targets if not any(f".{name}".endswith(f".{end}") for name in targeted)]
        if peft_config.target_parameters:  # peft has replaced the names of experts, such as w1
            unknown = [end for end in unknown if end in peft_config.target_modules]
        _refuse_unknown(model, [end for end in unknown if end not in lora.modules_to_save], "targets", "q_proj, v_proj")
    return cast("nn.Module", adapted)


def _refuse_unknown(model: nn.Module, unknown: Sequence[str], setting: str, examples: str) -> None:
    """Raise `InputError` for names that match no module, which peft silently ignores."""
    if unknown:
        raise InputError(
            f"no module of {type(model).__name__} is called {' or '.join(map(repr, unknown))}; lora.{setting} are names, or ends of names, "
            f"of modules: {examples}"
        )


def _add_existing(model: nn.Module, adapter: Adapter, *, empty: bool) -> nn.Module:
    peft = require("peft", "train")
    try:
        peft_config = peft.PeftConfig.from_pretrained(str(adapter.folder))
    except (ValueError, TypeError, KeyError) as exc:
        raise InputError(f"the adapter {str(adapter.folder)!r} cannot be used: in its {SETTINGS_FILE}, {exc}") from exc
    peft_config.inference_mode, peft_config.task_type = False, "CAUSAL_LM"
    adapted = _add_to(model, peft_config, f"They are those of {str(adapter.folder)!r}; is this its base?")
    if differences := saved_differences(TrainedTensors.from_model(adapted), adapter.folder):
        raise InputError(
            f"the adapter {str(adapter.folder)!r} does not fit {type(model).__name__}, so that is not its base: {'; '.join(differences)}"
        )
    if not empty:
        try:
            weights = load_file(adapter.folder / WEIGHTS_FILE)
            peft.set_peft_model_state_dict(adapted, weights)
        except (OSError, SafetensorError, RuntimeError) as exc:
            raise InputError(f"the adapter {str(adapter.folder)!r} cannot be read: {exc}") from exc
        if broken := [name for name, weight in weights.items() if not weight.isfinite().all()]:
            raise InputError(f"the adapter {str(adapter.folder)!r} holds what are no numbers, in {broken[0]}")
    return adapted


def _add_to(model: nn.Module, peft_config: Any, hint: str) -> nn.Module:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # a user cannot act on peft's warnings
            adapted = require("peft", "train").get_peft_model(cast("Any", model), peft_config)
    except (ValueError, LookupError, TypeError, AttributeError, NotImplementedError, re.error) as exc:
        raise InputError(f"adapters cannot be put on {type(model).__name__}: {exc}. {hint}") from exc
    # With a name, peft asks the hub at every save for a changed vocabulary, which cannot occur here.
    # `model_writer.py` writes the name.
    cast("Any", model).name_or_path, peft_config.base_model_name_or_path = "", None
    _untie_replaced_weights(model)
    return cast("nn.Module", adapted)


def convert_trained_to_fp32(model: nn.Module) -> None:
    """Convert trained weights to fp32: peft leaves `modules_to_save` in the bf16 of the frozen weights."""
    for parameter in model.parameters():
        if parameter.requires_grad and not hasattr(parameter, "ds_id"):  # DeepSpeed keeps its own fp32 copies
            parameter.data = parameter.data.float()


def _untie_replaced_weights(model: nn.Module) -> None:
    """Disable tying of weights that an adapter module renamed: accelerate would tie them again for FSDP."""
    tied = cast("dict[str, str]", getattr(model, "all_tied_weights_keys", None) or {})
    if {*tied, *tied.values()} <= {name for name, _ in model.named_parameters(remove_duplicate=False)}:
        return
    config = cast("Any", model).config
    for settings in (config, config.get_text_config()):
        settings.tie_word_embeddings = False


_WEIGHT_BYTES: Final = 0.5 + 0.127 / 8
"""Bytes per weight: 4-bit NormalFloat with double quantization (0.127 bits, QLoRA section 3)."""
_FP32_BYTES: Final = 4


def loading_options(config: TrainConfig, precision: Precision) -> dict[str, Any]:
    """Quantization arguments of `from_pretrained`; empty without quantization."""
    if config.quantize is None:
        return {}
    quantization = BitsAndBytesConfig(
        load_in_4bit=True,
        bnb_4bit_quant_type="nf4",
        bnb_4bit_use_double_quant=True,
        bnb_4bit_compute_dtype=torch.bfloat16 if precision == "bf16" else torch.float32,
    )
    on_gpu = config.device == "auto" and torch.cuda.is_available()
    # Quantized weights cannot be moved: load them on the device of the training.
    return {"quantization_config": quantization, "device_map": {"": torch.cuda.current_device() if on_gpu else "cpu"}}


def is_quantized(model: nn.Module) -> bool:
    return bool(getattr(model, "is_quantized", False))


def prepare_quantized(model: nn.Module) -> nn.Module:
    """Freeze a quantized model and convert norms, embeddings and head to fp32, with peft's preparation.

    On CPUs with AVX512-BF16, bitsandbytes repacks 4-bit weights at the first forward pass in `eval()`, for a kernel
    without gradient (`Linear4bit.forward`, 0.50.2). The kernel is disabled: an evaluation would break training.
    """
    for module in cast("Iterable[Any]", model.modules()):
        if hasattr(module, "support_avx512bf16_for_cpu"):
            module.support_avx512bf16_for_cpu = False
    return require("peft", "train").prepare_model_for_kbit_training(model, use_gradient_checkpointing=False)


def frozen_bytes(model: nn.Module) -> int:
    """Bytes of a quantized model: linear layers except the head in 4 bits, the rest in fp32."""
    head = output_head(model)
    linear = {id(layer.weight) for layer in model.modules() if isinstance(layer, nn.Linear) and layer is not head}
    return int(sum(p.numel() * (_WEIGHT_BYTES if id(p) in linear else _FP32_BYTES) for p in model.parameters()))


_EXPERT: Final = re.compile(r"(.*experts?)\.\d+\.")
"""Parameters of one expert in a list; an expert without tokens gets no gradient."""


def unused_by_text(model: nn.Module) -> dict[str, int]:
    """Numbers of parameters of a multimodal model outside decoder, input embeddings and head, by name prefix.

    `choose_layout` finds other parameters without a gradient with real values, and freezes them.
    """
    base = cast("Any", base_model(model))
    if base.config.get_text_config() is base.config:
        return {}
    text = [base.get_decoder(), base.get_input_embeddings(), output_head(model)]
    used = {id(p) for part in text if part is not None for p in part.parameters()}
    return _count_by_prefix(model, {name for name, p in model.named_parameters() if id(p) not in used})


def without_gradient(model: nn.Module) -> dict[str, int]:
    """Numbers of trainable parameters without a gradient after a backward pass, by prefix, except idle experts."""
    has_gradient = {name: p.grad is not None for name, p in model.named_parameters() if p.requires_grad}
    routed = {match[1] for name, reached in has_gradient.items() if reached and (match := _EXPERT.match(name))}
    names = {
        name
        for name, reached in has_gradient.items()
        if not reached and not ((match := _EXPERT.match(name)) and match[1] in routed)
    }
    return _count_by_prefix(model, names)


def freeze(model: nn.Module, prefixes: Iterable[str]) -> None:
    """Freeze the parameters under `prefixes`."""
    for prefix in prefixes:
        cast("nn.Module | nn.Parameter", attrgetter(prefix)(model)).requires_grad_(False)


def _count_by_prefix(model: nn.Module, names: set[str]) -> dict[str, int]:
    """The fewest prefixes that cover exactly `names`, with their numbers of parameters."""
    parameters = dict(model.named_parameters())
    shared_parents = {parent for name in parameters.keys() - names for parent in _parents(name)}
    counts: dict[str, int] = {}
    for name in (name for name in parameters if name in names):
        prefix = next((parent for parent in _parents(name) if parent not in shared_parents), name)
        counts[prefix] = counts.get(prefix, 0) + parameters[name].numel()
    return counts


def _parents(name: str) -> list[str]:
    parts = name.split(".")
    return [".".join(parts[:end]) for end in range(1, len(parts))]
