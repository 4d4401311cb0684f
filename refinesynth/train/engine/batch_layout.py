"""Layout of conversations in a forward pass: attention implementation, several conversations or one.

A rule chooses the implementation, and a trial on the model checks it: a short sequence must have the same logits after
another sequence in a pack as alone, and a backward pass must work. If the trial fails, the model's own implementation
is tried; if that fails too, packing is refused. Reasons for failure: state-space layers without their kernels carry
state across sequences, models without position ids number tokens continuously, and some attention ignores boundaries.
"""

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from typing import Any, Final, cast

import numpy as np
import torch
from torch import Tensor, nn

from refinesynth.errors import InputError
from refinesynth.train.engine.adapters import freeze, without_gradient
from refinesynth.train.engine.attention import SEGMENTS, UnsupportedAttention, register
from refinesynth.train.engine.lm_head import Batch, base_model, output_head, pack_batch, takes, vocabulary
from refinesynth.train.plan import describe_unused
from refinesynth.train.tokens import Label, Rendered

_FIRST_LENGTH, _SECOND_LENGTH = 13, 21
"""Lengths of the trial's sequences, in tokens."""
_EXTRA_SEQUENCES: Final = 3
_TOLERANCE: Final = {torch.float64: 1e-6, torch.float32: 1e-4}
"""Largest relative difference of packed logits; none for 16 bits, where rounding depends on the shape."""
_MAX_NOISE_RATIO: Final = 3
"""Largest ratio of the effect of text before a sequence on its logits to the effect of text after it."""
_BOUNDARY_INPUTS: Final = ("cu_seq_lens_q", "cu_seq_lens_k", "max_length_q", "max_length_k")
_MAX_MESSAGE: Final = 300
"""Shown characters of a library's message."""
_MODEL_ERRORS: Final = (UnsupportedAttention, TypeError, ValueError, NotImplementedError, ImportError, RuntimeError)
"""Errors that models and their kernels raise for inputs they do not support."""


@dataclass(frozen=True, slots=True)
class Layout:
    """Arrangement of conversations in a forward pass."""

    packed: bool
    """True: several conversations per row. False: one, without position ids."""
    attention: str
    """Attention implementation, as set on the model."""
    takes_boundaries: bool
    """The model takes boundaries (`cu_seq_lens_*`) in addition to position ids."""
    takes_indices: bool
    """The model has stateful layers, whose kernels take the number of each token's conversation (`seq_idx`)."""
    plain_head: bool
    """The logits are the unscaled output of the head, which may then be evaluated in chunks."""
    note: str | None = None
    """Note for the user."""

    def inputs(self, batch: Batch) -> dict[str, Tensor | int]:
        """The inputs of `batch` that the model takes."""
        omitted = {*(() if self.takes_boundaries else _BOUNDARY_INPUTS), *(() if self.takes_indices else ("seq_idx",))}
        omitted |= set() if self.packed else {"position_ids"}
        return {name: value for name, value in batch.inputs.items() if name not in omitted}


def choose_layout(
    model: nn.Module,
    *,
    wrapped: nn.Module | None = None,
    attention: str = "auto",
    packing: bool = True,
    backward: bool = True,
    autocast: Callable[[], AbstractContextManager[Any]] = nullcontext,
) -> Layout:
    """Choose the layout for training, and set its attention implementation on `model`.

    `wrapped` is a wrapper to call instead of the model. `backward` also tries a backward pass; it must be False for
    DeepSpeed, whose engine counts backward passes. Without a wrapper, parameters that get no gradient are frozen.
    Random states are restored.

    Raises:
        InputError: The model cannot use the implementation `attention`, or the trial of every implementation fails.
    """
    register()
    base = cast("Any", base_model(model))
    stock, is_auto = _attention(base), attention == "auto"
    stateful = layers_with_state(base)
    trial = _Trial(model, wrapped, autocast, backward=backward)
    failed: dict[str, str] = {}
    training = model.training
    model.eval()
    try:
        layout = Layout(packing, stock, packing and takes(base, "**"), packing and bool(stateful), trial.head_is_last())
        preferred = SEGMENTS if packing and takes(base, "**") and _needs_no_mask(base) else stock
        for name in dict.fromkeys((preferred, stock)) if is_auto else [attention]:
            if (reason := _set_attention(base, name, strict=not (is_auto and packing))) is None:
                layout = replace(layout, attention=_attention(base))
                reason = trial.failure(layout)
                if reason is None or not packing:
                    return replace(layout, note=f"{describe_unused(trial.unused)}." if trial.unused else None)
            failed[name] = reason
    finally:
        model.train(training)
    grouped = {reason: ", ".join(name for name in failed if failed[name] == reason) for reason in failed.values()}
    reasons = "; ".join(f"{names}: {reason.rstrip('.')}" for reason, names in grouped.items())
    state = f" {', '.join(stateful)} carries a state on from token to token." if stateful else ""
    raise InputError(
        f"{type(base).__name__} does not keep packed conversations apart ({reasons}).{state} Give --set packing=false: it is then "
        "trained with one conversation a pass, which takes longer"
    )


def layers_with_state(base: nn.Module) -> list[str]:
    """Class names of stateful layers: linear attention, state spaces, short convolutions."""
    decoder = cast("nn.Module", cast("Any", base).get_decoder())
    return sorted(
        {
            type(module).__name__
            for module in decoder.modules()
            if hasattr(module, "A_log") or any(isinstance(child, nn.Conv1d) for child in module.children())
        }
    )


class _Trial:
    def __init__(
        self,
        model: nn.Module,
        wrapped: nn.Module | None,
        autocast: Callable[[], AbstractContextManager[Any]],
        *,
        backward: bool,
    ) -> None:
        self._model, self._call, self._autocast = model, wrapped or model, autocast
        self._backward, self._can_freeze = backward, wrapped is None
        self.unused: dict[str, int] = {}
        """Parameters without a gradient, which are frozen, by name prefix."""
        base = base_model(model)
        weights = next(base.parameters())
        self._device = weights.device
        with autocast():
            is_mixed = torch.is_autocast_enabled(self._device.type)
        self.tolerance = None if is_mixed else _TOLERANCE.get(weights.dtype)
        """None if the model computes in 16 bits."""
        rng = np.random.default_rng(0)
        self._first, self._second, *self._extras = (
            Rendered(
                "trial",
                rng.integers(0, vocabulary(base), length).astype(np.int32),
                np.full(length, Label.TRAINED, np.int8),
                (),
            )
            for length in (_FIRST_LENGTH, _SECOND_LENGTH, *[_FIRST_LENGTH] * _EXTRA_SEQUENCES)
        )

    def failure(self, layout: Layout) -> str | None:
        """The reason that prevents training in this layout; None if there is none."""
        try:
            if layout.packed and (change := self._excessive_change(layout)) is not None:
                return f"logits of one that is packed and alone differ by {change:.2g}, relative"
            if self._backward:
                examples = [self._first, self._second][not layout.packed :]
                self._try_backward(layout.inputs(pack_batch(examples).to(self._device)))
                if self._can_freeze:
                    self.unused = without_gradient(self._model)
                    freeze(self._model, self.unused)
        except _MODEL_ERRORS as exc:
            if isinstance(exc, torch.OutOfMemoryError):
                raise
            return " ".join(str(exc).split())[:_MAX_MESSAGE] or type(exc).__name__
        finally:
            self._model.zero_grad(set_to_none=True)
        return None

    def _excessive_change(self, layout: Layout) -> float | None:
        """The change of a sequence's logits in a pack if it is too large, else None.

        The change must be below half the change without boundaries and, in fp32 and fp64, below `_TOLERANCE`. The
        effect of text before a sequence must be at most `_MAX_NOISE_RATIO` times the effect of text after it. The latter is
        rounding, which is equal for equal shapes: causal attention never sees that text. The median over tokens ignores
        tokens that a router sends to other experts.
        """

        def packed(*examples: Rendered) -> Tensor:
            return self._logits(**layout.inputs(pack_batch(examples).to(self._device)))

        second, joined = (
            self._logits(input_ids=torch.from_numpy(np.concatenate(ids)).long()[None].to(self._device))
            for ids in ([self._second.input_ids], [self._first.input_ids, self._second.input_ids])
        )
        if not second.isfinite().all():  # Broken weights appear in the loss of the first step.
            return None
        prefixes = [self._first, *self._extras]
        prefixed = [packed(prefix, self._second)[_FIRST_LENGTH:] for prefix in prefixes]
        change = float(_delta(prefixed[0], second).square().mean().sqrt())
        max_change = float(_delta(joined[_FIRST_LENGTH:], second).square().mean().sqrt()) / 2
        if not change < (max_change if self.tolerance is None else min(max_change, self.tolerance)):
            return change
        suffixed = [packed(self._second, suffix)[:_SECOND_LENGTH] for suffix in prefixes]
        effect, noise = (max(float(_delta(row, rows[0]).median()) for row in rows[1:]) for rows in (prefixed, suffixed))
        return effect if effect > _MAX_NOISE_RATIO * noise else None

    def _logits(self, **inputs: Tensor | int) -> Tensor:
        """(T, vocabulary) Logits of the first row."""
        with torch.no_grad(), self._autocast():
            return cast("Tensor", self._call(**inputs, use_cache=False).logits)[0].double()

    def _try_backward(self, inputs: dict[str, Tensor | int]) -> None:
        """Run the forward and backward pass of a training step; gradients remain."""
        devices = [self._device] if self._device.type == "cuda" else []
        training = self._call.training
        with torch.random.fork_rng(devices), torch.enable_grad(), self._autocast():
            self._call.train()
            try:
                self._call(**inputs, use_cache=False).logits.float().logsumexp(-1).mean().backward()
            finally:
                self._call.train(training)

    def head_is_last(self) -> bool:
        """Return True if the logits are the unchanged output of the head."""
        head = output_head(self._model)
        if head is None:
            return False
        seen: list[Tensor] = []

        def record(_module: nn.Module, _inputs: Any, output: Tensor) -> None:
            seen.append(output)

        handle = head.register_forward_hook(cast("Any", record))
        try:
            with torch.no_grad(), self._autocast():
                ids = torch.from_numpy(self._second.input_ids).long()[None].to(self._device)
                logits = cast("Tensor", self._call(input_ids=ids, use_cache=False).logits)
        finally:
            handle.remove()
        return len(seen) == 1 and seen[0].shape == logits.shape and torch.equal(seen[0].to(logits.dtype), logits)


def _delta(actual: Tensor, expected: Tensor) -> Tensor:
    """(T,) Distance of each token's logits (T, vocabulary), relative to the root mean square norm of `expected`."""
    return (actual - expected).norm(dim=1) / (expected.square().sum(1).mean().sqrt() + 1e-30)


def _attention(base: Any) -> str:
    return str(base.config._attn_implementation)  # noqa: SLF001 - the library has no public name for it


def _needs_no_mask(base: Any) -> bool:
    """Return False for attention patterns that need a mask: the trial is shorter than a window or chunk.

    A model that supports flash attention passes its sliding window to the attention function and needs no mask for it.
    """
    config = base.config.get_text_config()
    kinds = set(cast("list[str]", getattr(config, "layer_types", None) or []))
    if getattr(config, "attention_chunk_size", None) is not None or any("chunk" in kind for kind in kinds):
        return False
    has_window = getattr(config, "sliding_window", None) is not None or "sliding_attention" in kinds
    return not has_window or bool(getattr(base, "_supports_flash_attn", False))


def _set_attention(base: Any, name: str, *, strict: bool = False) -> str | None:
    """Set the attention `name`; return the error or None. transformers may replace a missing kernel by a hub kernel."""
    former = _attention(base)
    try:
        base.set_attn_implementation(name)
    except Exception as exc:  # A downloaded kernel may raise anything.
        if strict:
            raise InputError(
                f"attention is {name!r}, which {type(base).__name__} cannot use: {exc}. Leave it out to have one chosen."
            ) from exc
        return " ".join(str(exc).split())[:_MAX_MESSAGE] or type(exc).__name__
    return None if _attention(base) == name or _attention(base) != former else "the model's attention cannot be changed"
