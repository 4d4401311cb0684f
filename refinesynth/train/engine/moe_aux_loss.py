"""Load-balancing loss of a mixture of experts, as a mean over the optimizer step.

For one forward pass it is the library's (Switch Transformer, equations 4 to 6), over all tokens of the pass. It is no
sum over tokens, so a step has no value of its own: here it is the mean over the step's passes on all ranks, weighted by
tokens. It asks for balance within each pass, and so depends on how a step is cut. The library would add it once per
pass: accumulation would multiply it.
"""

from typing import Any, cast

import torch
from torch import Tensor, nn

from refinesynth.errors import InputError
from refinesynth.train.config import TrainConfig
from refinesynth.train.engine.batch import Batch
from refinesynth.train.engine.lm_head import base_model, takes


def coefficient(config: TrainConfig, model: nn.Module) -> float:
    """Coefficient of the load-balancing loss, or 0. Raises `InputError` if one is given for a model without this loss."""
    base, asked = base_model(model), config.router_aux_loss
    own = getattr(cast("Any", base).config.get_text_config(), "router_aux_loss_coef", None)
    routes = own is not None and takes(base, "output_router_logits")
    if isinstance(asked, float):
        if asked and not routes:
            raise InputError(f"router_aux_loss is {asked:g}, and {type(base).__name__} has no such loss; leave it out")
        return asked
    return float(own) if asked == "auto" and config.lora is None and own is not None and routes else 0.0


class Balanced:
    """Call of a model on `batch` that also keeps its load-balancing loss."""

    loss: Tensor
    """Of the last call, not yet multiplied by the coefficient."""

    def __init__(self, model: nn.Module, batch: Batch) -> None:
        self._model, self._batch = model, batch
        self._padded = "cu_seq_lens_q" not in batch.inputs

    @property
    def tokens(self) -> int:
        """Tokens of the batch without padding; 0 for an empty batch."""
        if not self._batch.ids:
            return 0
        return int(self._batch.lengths.sum()) if self._padded else self._batch.lengths.numel()

    def __call__(self, **inputs: Any) -> Any:
        if self._padded:  # padding is routed as well, and must not count
            ids = cast("Tensor", inputs["input_ids"])
            inputs["attention_mask"] = (torch.arange(ids.shape[1], device=ids.device) < self._batch.lengths).long()
        outputs = self._model(**inputs, output_router_logits=True)
        if outputs.aux_loss is None:
            raise InputError(
                "the model gives no load-balancing loss though its settings name one; set router_aux_loss to off"
            )
        self.loss = outputs.aux_loss
        return outputs
