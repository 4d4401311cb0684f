"""Attention within each conversation of a pack, for transformers' attention interface.

On a GPU in 16 bits, `SEGMENTS` is flash attention for rows of several sequences (`torch.nn.attention.varlen`).
Elsewhere it is scaled dot product attention per sequence: on a CPU two to three times as fast as transformers' block-
diagonal mask. `cu_seq_lens_q` holds the boundaries; rows without it use transformers' own function.
"""

import inspect
from collections.abc import Callable
from functools import lru_cache
from itertools import pairwise
from typing import Any, Final, cast

import torch
from torch import Tensor, nn
from torch.nn.functional import scaled_dot_product_attention
from transformers import AttentionInterface, AttentionMaskInterface, masking_utils
from transformers.integrations import sdpa_attention
from transformers.integrations.sdpa_attention import repeat_kv

SEGMENTS: Final = "refinesynth_segments"
"""Name of the attention implementation, for `set_attn_implementation`."""

_UNSUPPORTED = ("softcap", "s_aux", "position_bias")
_MAX_HEAD_WIDTH = 256


class UnsupportedAttention(Exception):
    """The model's attention uses a feature that `SEGMENTS` does not support."""


def register() -> None:
    """Register `SEGMENTS` with transformers."""
    AttentionInterface.register(SEGMENTS, segment_attention)
    AttentionMaskInterface.register(SEGMENTS, segment_mask)


def segment_attention(  # noqa: PLR0917 - the library's signature
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    dropout: float = 0.0,
    scaling: float | None = None,
    sliding_window: int | None = None,
    cu_seq_lens_q: Tensor | None = None,
    max_length_q: int | None = None,
    **kwargs: Any,
) -> tuple[Tensor, None]:
    """Compute causal attention within each sequence of one row. Raises `UnsupportedAttention` for other features.

    Shapes: `query` (1, heads, T, width), `key` and `value` (1, key heads, T, width); returns (1, T, heads, width).
    """
    if kwargs.get("is_causal") is False or any(kwargs.get(name) is not None for name in _UNSUPPORTED):
        raise UnsupportedAttention(f"{type(module).__name__} does more than causal attention")
    if cu_seq_lens_q is None or attention_mask is not None:
        if attention_mask is None and sliding_window and key.shape[2] == query.shape[2] > sliding_window:
            attention_mask = _band(key.shape[2], sliding_window, query.device)
        forward = cast("Callable[..., tuple[Tensor, None]]", sdpa_attention.sdpa_attention_forward)
        return forward(module, query, key, value, attention_mask, dropout=dropout, scaling=scaling, **kwargs)
    flash = _flash_dtype(query, value, dropout)
    if flash is not None and max_length_q is not None:
        heads = (query, key, value)
        output = _varlen(heads, cu_seq_lens_q, max_length_q, flash, scaling=scaling, sliding_window=sliding_window)
        return output, None
    groups = query.shape[1] // key.shape[1]
    key, value = repeat_kv(key, groups), repeat_kv(value, groups)
    bounds = cast("list[int]", cu_seq_lens_q.tolist())
    parts: list[Tensor] = []
    for start, stop in pairwise(bounds):
        q, k, v = (part[:, :, start:stop] for part in (query, key, value))
        needs_band = sliding_window is not None and stop - start > sliding_window
        mask = _band(stop - start, sliding_window or 0, query.device) if needs_band else None
        parts.append(
            scaled_dot_product_attention(
                q, k, v, attn_mask=mask, dropout_p=dropout, is_causal=not needs_band, scale=scaling
            )
        )
    return torch.cat(parts, dim=2).transpose(1, 2).contiguous(), None


def segment_mask(
    batch_size: int, q_length: int, kv_length: int, *, attention_mask: Tensor | None = None, **kwargs: Any
) -> Tensor | None:
    """Return None without an attention mask and cached keys, else transformers' mask."""
    if attention_mask is None and q_length == kv_length:
        return None
    build = cast("Callable[..., Tensor | None]", masking_utils.sdpa_mask)
    return build(batch_size, q_length, kv_length, attention_mask=attention_mask, **kwargs)


@lru_cache(maxsize=16)
def _band(length: int, window: int, device: torch.device) -> Tensor:
    positions = torch.arange(length, device=device)
    distance = positions[:, None] - positions[None, :]
    return (distance >= 0) & (distance < window)


def _flash_dtype(query: Tensor, value: Tensor, dropout: float) -> torch.dtype | None:
    """The 16-bit type for flash attention, or None. Rotary embeddings leave queries in fp32 under autocast."""
    if not query.is_cuda or dropout or query.shape[-1] != value.shape[-1] or query.shape[-1] > _MAX_HEAD_WIDTH:
        return None
    dtype = torch.get_autocast_dtype("cuda") if torch.is_autocast_enabled("cuda") else query.dtype
    return dtype if dtype in {torch.bfloat16, torch.float16} and _varlen_attn() is not None else None


@lru_cache(maxsize=1)
def _varlen_attn() -> Callable[..., Tensor] | None:
    try:
        from torch.nn.attention.varlen import varlen_attn
    except ImportError:
        return None
    takes_options = {"window_size", "scale"} <= set(inspect.signature(varlen_attn).parameters)
    return cast("Callable[..., Tensor]", varlen_attn) if takes_options else None


def _varlen(
    heads: tuple[Tensor, Tensor, Tensor],
    bounds: Tensor,
    max_length: int,
    dtype: torch.dtype,
    *,
    scaling: float | None,
    sliding_window: int | None,
) -> Tensor:
    attend = cast("Callable[..., Tensor]", _varlen_attn())  # `_flash_dtype` has found it
    q, k, v = (part[0].transpose(0, 1).to(dtype) for part in heads)
    # (W, 0) covers W earlier tokens and the token itself; the model's window includes the token itself.
    window = (-1, 0) if sliding_window is None else (sliding_window - 1, 0)
    options: dict[str, Any] = {"scale": scaling, "window_size": window}
    groups = q.shape[1] // k.shape[1]
    if "enable_gqa" in inspect.signature(attend).parameters:
        options["enable_gqa"] = groups > 1
    elif groups > 1:  # torch before 2.12
        k, v = (part.repeat_interleave(groups, dim=1) for part in (k, v))
    return attend(q, k, v, bounds, bounds, max_length, max_length, **options)[None]
