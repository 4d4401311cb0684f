"""QLoRA: adapters over frozen weights that bitsandbytes holds in 4 or 8 bits (Dettmers et al., 2023)."""

# torch and transformers are typed in part: pyright may not know all of a member that is used here.
# pyright: reportUnknownMemberType=false

from collections.abc import Iterable
from typing import Any, Final, Literal, cast

import torch
from torch import nn
from transformers import BitsAndBytesConfig

from refinesynth.extras import require
from refinesynth.train.config import TrainConfig
from refinesynth.train.engine.head import output_head
from refinesynth.train.memory import Precision

_BYTES: Final = {"4bit": 0.5 + 0.127 / 8, "8bit": 1.0}
"""Of a weight: 4-bit NormalFloat with its constants quantized again (0.127 bits, section 3 of the paper);
LLM.int8()."""
_FLOAT: Final = 4


def loading_options(config: TrainConfig, precision: Precision) -> dict[str, Any]:
    """What `from_pretrained` is given to quantize a model as it is read; nothing where that is not asked for."""
    bits = config.lora.quantize if config.lora is not None else None
    if bits is None:
        return {}
    if bits == "4bit":
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
    """Whether the weights are held in few bits."""
    return bool(getattr(model, "is_quantized", False))


def ready_to_train(model: nn.Module) -> nn.Module:
    """Peft's preparation: all frozen, and what is not quantized (norms, embeddings, the head) in fp32.

    On a CPU with AVX512-BF16, bitsandbytes packs 4-bit weights again at the first forward pass in `eval()`, for a
    kernel that gives no gradient to what comes before it and that small layers do not fit (`Linear4bit.forward`,
    0.50.2). A probe or an evaluation would change what is trained, so it is switched off here.
    """
    for one in cast("Iterable[Any]", model.modules()):
        if hasattr(one, "support_avx512bf16_for_cpu"):
            one.support_avx512bf16_for_cpu = False
    return cast(
        "nn.Module", require("peft", "train").prepare_model_for_kbit_training(model, use_gradient_checkpointing=False)
    )


def frozen_bytes(model: nn.Module, bits: Literal["4bit", "8bit"]) -> int:
    """Bytes of a model's weights when they are held so: linear layers but the head in few bits, all else in fp32."""
    head = output_head(model)
    linear = {id(one.weight) for one in model.modules() if isinstance(one, nn.Linear) and one is not head}
    return int(sum(one.numel() * (_BYTES[bits] if id(one) in linear else _FLOAT) for one in model.parameters()))
