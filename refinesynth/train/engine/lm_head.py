"""LM head on trained positions alone, and in chunks where positions x vocabulary would fill the memory.

The head is called inside the model's `forward`, so wrappers (ZeRO-3, FSDP, adapters) see an ordinary call.
"""

import inspect
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from typing import Any, Final, cast

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy
from torch.utils import checkpoint as recomputing

from refinesynth.errors import InputError
from refinesynth.train.config import TrainConfig
from refinesynth.train.engine.batch import Batch

CHUNK_ELEMENTS: Final = 2**27
"""Logits held at once: half a gigabyte in fp32, about three times that with the gradient."""


def token_losses(
    model: Callable[..., Any],
    inner: nn.Module,
    inputs: Mapping[str, Tensor | int],
    batch: Batch,
    *,
    chunk_elements: int | None = None,
) -> Tensor:
    """(K,) Minus log probability of each predicted token, in nats; in fp32, or fp64 in an fp64 model.

    `model` is called with `inputs`; `inner` is the transformers model in it. `chunk_elements` limits the logits held at
    once, for models whose logits are their head's output (see `batch_layout.py`).
    """
    keep, column = _kept(inner, batch)
    head = output_head(inner)
    if chunk_elements is not None and head is not None:
        rows = max(1, chunk_elements // vocabulary(inner))
        # One row of which the library keeps what predicts, and no more than a chunk: its own way is as good.
        if len(batch.target) > rows or batch.rows > 1 or not keep:
            with _in_chunks(head, batch, column, rows):
                return _logits(model, inputs, **keep)[0, :, 0]
    logits = _logits(model, inputs, **keep)
    # The first without a copy: with one row nothing but what predicts was kept.
    found = logits[0] if keep and batch.rows == 1 else logits[batch.row, column]
    return negative_log_probability(found, batch.target)


def _kept(inner: nn.Module, batch: Batch) -> tuple[dict[str, Tensor], Tensor]:
    """The argument that limits the head to some positions, and (K,) the place of each predicting one among these."""
    if not takes(base_model(inner), "logits_to_keep"):
        return {}, batch.column
    if batch.rows == 1:
        return {"logits_to_keep": batch.column}, torch.arange(len(batch.column), device=batch.column.device)
    # The library keeps the same positions of all rows: those that any row wants.
    columns, which = cast("tuple[Tensor, Tensor]", torch.unique(batch.column, return_inverse=True))
    return {"logits_to_keep": columns}, which


def negative_log_probability(logits: Tensor, target: Tensor) -> Tensor:
    """(K,) from logits (K, vocabulary); computed in fp32 at least."""
    exact = logits if logits.dtype == torch.float64 else logits.float()
    return cross_entropy(exact, target, reduction="none")


def _logits(model: Callable[..., Any], inputs: Mapping[str, Tensor | int], **keep: Tensor) -> Tensor:
    # A cache would only cost memory, and some models take its presence for generation and join the conversations.
    return model(**inputs, **keep, use_cache=False).logits


@contextmanager
def _in_chunks(head: nn.Module, batch: Batch, column: Tensor, rows: int) -> Generator[None]:
    """Within, the head gives (1, K, 1) losses instead of (rows, columns, vocabulary) logits.

    Only the instance's `forward` is replaced, so hooks fire; the backward pass computes each chunk's logits again.
    """
    plain = head.forward

    def loss_of(hidden: Tensor, tokens: Tensor) -> Tensor:
        return negative_log_probability(plain(hidden), tokens)

    def chunked(hidden: Tensor) -> Tensor:
        predicting = hidden[batch.row, column]
        pieces = [
            cast(
                "Tensor",
                recomputing.checkpoint(
                    loss_of, predicting[k : k + rows], batch.target[k : k + rows], use_reentrant=False
                ),
            )
            for k in range(0, len(predicting), rows)
        ]
        # A copy, for FSDP, which warns of views: they could be changed behind its back.
        return torch.cat(pieces)[None, :, None].clone()

    replaced = vars(head).get("forward")
    head.forward = chunked
    try:
        yield
    finally:
        if replaced is None:
            del head.forward  # the class's own comes back
        else:
            head.forward = replaced


def base_model(inner: nn.Module) -> nn.Module:
    """The transformers model under adapters."""
    return cast("nn.Module", cast("Any", inner).get_base_model()) if hasattr(inner, "get_base_model") else inner


def output_head(inner: nn.Module) -> nn.Module | None:
    """The module that turns hidden states into logits."""
    return cast("nn.Module | None", cast("Any", base_model(inner)).get_output_embeddings())


def vocabulary(inner: nn.Module) -> int:
    """Number of logits per position."""
    return int(cast("Any", base_model(inner)).config.get_text_config().vocab_size)


def takes(model: nn.Module, argument: str) -> bool:
    """Return True if the model's `forward` names `argument`, or (`**`) takes any keyword.

    The class is asked: accelerate wraps the instance's `forward` with another signature.
    """
    parameters = inspect.signature(type(model).forward).parameters
    if argument == "**":
        return any(one.kind is inspect.Parameter.VAR_KEYWORD for one in parameters.values())
    return argument in parameters


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
    """Call of a model on `batch` that also keeps its load-balancing loss.

    It is the library's (Switch Transformer, equations 4 to 6), over all tokens of the pass: no sum over tokens, so a step
    has no value of its own. The loop takes the mean over the step's passes on all ranks, weighted by tokens; the library
    would add it once per pass, and accumulation would multiply it.
    """

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
