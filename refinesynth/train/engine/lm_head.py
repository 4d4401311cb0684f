"""LM head on predicting positions only, in chunks where positions x vocabulary would fill the memory.

The head is called inside the model's `forward`: wrappers (ZeRO-3, FSDP, adapters) see an ordinary call.
"""

import inspect
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from typing import Any, Final, cast

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy
from torch.utils import checkpoint as recomputing

from refinesynth.train.engine.batch import Batch

CHUNK_ELEMENTS: Final = 2**27
"""Logits in memory at once: 0.5 GiB in fp32, about three times as much with the gradient."""


def token_losses(
    model: Callable[..., Any],
    inner: nn.Module,
    inputs: Mapping[str, Tensor | int],
    batch: Batch,
    *,
    chunk_elements: int | None = None,
) -> Tensor:
    """(K,) Negative log probability of each predicted token, in nats; fp32, or fp64 for an fp64 model.

    `model` is called with `inputs`; `inner` is the unwrapped model. `chunk_elements` limits the logits in memory, for
    models whose logits are the head's output (`Layout.plain_head`).
    """
    keep = {"logits_to_keep": batch.column} if takes(base_model(inner), "logits_to_keep") else {}
    column = torch.arange(len(batch.column), device=batch.column.device) if keep else batch.column
    head = output_head(inner)
    if chunk_elements is not None and head is not None:
        rows = max(1, chunk_elements // vocabulary(inner))
        # No chunks if the library keeps only the predicting positions and they fit one chunk.
        if len(batch.target) > rows or not keep:
            with _in_chunks(head, batch, column, rows):
                return _logits(model, inputs, **keep)[0, :, 0]
    logits = _logits(model, inputs, **keep)
    return negative_log_probability(logits[0] if keep else logits[0, column], batch.target)


def negative_log_probability(logits: Tensor, target: Tensor) -> Tensor:
    """(K,) Cross entropy of logits (K, vocabulary), in nats; computed in fp32 or fp64."""
    exact = logits if logits.dtype == torch.float64 else logits.float()
    return cross_entropy(exact, target, reduction="none")


def _logits(model: Callable[..., Any], inputs: Mapping[str, Tensor | int], **keep: Tensor) -> Tensor:
    # A cache costs memory, and some models treat a call with a cache as generation and join the conversations.
    return model(**inputs, **keep, use_cache=False).logits


@contextmanager
def _in_chunks(head: nn.Module, batch: Batch, column: Tensor, rows: int) -> Generator[None]:
    """Context in which the head returns (1, K, 1) losses instead of (1, columns, vocabulary) logits.

    Only the instance's `forward` is replaced, and hooks still run. The backward pass recomputes each chunk's logits.
    """
    head_forward = head.forward

    def chunk_loss(hidden: Tensor, tokens: Tensor) -> Tensor:
        return negative_log_probability(head_forward(hidden), tokens)

    def chunked(hidden: Tensor) -> Tensor:
        predicting = hidden[0, column]
        pieces: list[Tensor] = []
        for k in range(0, len(predicting), rows):
            chunk = predicting[k : k + rows], batch.target[k : k + rows]
            pieces.append(cast("Tensor", recomputing.checkpoint(chunk_loss, *chunk, use_reentrant=False)))
        # FSDP warns about outputs that are views: return a copy.
        return torch.cat(pieces)[None, :, None].clone()

    previous = vars(head).get("forward")
    head.forward = chunked
    try:
        yield
    finally:
        if previous is None:
            del head.forward  # restores the method of the class
        else:
            head.forward = previous


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
    """Return True if the model's `forward` has the parameter `argument`, or (`**`) accepts any keyword.

    The signature of the class is used: accelerate wraps the instance's `forward` with another signature.
    """
    parameters = inspect.signature(type(model).forward).parameters
    if argument == "**":
        return any(parameter.kind is inspect.Parameter.VAR_KEYWORD for parameter in parameters.values())
    return argument in parameters
