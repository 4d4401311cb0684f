"""How a model's conversations may be laid out: whether packing leaves them apart is measured on the model, not read off its name.

Two short sequences go through the model, together in a pack and the second one alone. Where its logits differ, the pack joins
them: state-space layers carry their state across, models without position ids number the tokens through, and some attention
pays no heed to the boundaries. Such a model is trained one conversation a row.
"""

# torch and transformers are typed in part: pyright may not know all of a member that is used here.
# pyright: reportUnknownMemberType=false

import logging
import math
from collections.abc import Callable, Generator, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any, Final, cast

import numpy as np
import torch
from torch import Tensor, nn
from transformers.utils.import_utils import is_flash_attn_2_available, is_flash_attn_3_available

from refinesynth.errors import InputError
from refinesynth.train.engine.attention import SEGMENTS, UnsupportedAttention, register
from refinesynth.train.engine.batch import Batch, pack_batch
from refinesynth.train.engine.head import base_model, output_head, takes, vocabulary
from refinesynth.train.tokens import Label, Rendered

_LENGTHS: Final = (13, 21)
_TOLERANCE: Final = {torch.float64: 1e-6, torch.float32: 1e-4}
_HALF_TOLERANCE: Final = 0.1
"""Of 16-bit logits, relative; kernels for other shapes round elsewhere."""
_BOUNDARIES: Final = ("cu_seq_lens_q", "cu_seq_lens_k", "max_length_q", "max_length_k")


@dataclass(frozen=True, slots=True)
class Layout:
    """How conversations go through a model."""

    packed: bool
    """Several conversations in one row; else one a row, padded."""
    attention: str
    """The attention implementation that is set on the model."""
    boundaries: bool
    """The model takes the conversations' boundaries (`cu_seq_lens_*`) beside their position ids."""
    plain_head: bool
    """The logits are what the head gives out, unscaled, so that the head may be evaluated in chunks."""
    note: str | None = None
    """What the user should know of the choice."""

    def inputs(self, batch: Batch) -> dict[str, Tensor | int]:
        """The inputs of `batch` that the model takes."""
        return {name: value for name, value in batch.inputs.items() if self.boundaries or name not in _BOUNDARIES}


def choose_layout(
    model: nn.Module,
    *,
    call: nn.Module | None = None,
    attention: str = "auto",
    packing: bool = True,
    autocast: Callable[[], AbstractContextManager[Any]] = nullcontext,
) -> Layout:
    """The fastest layout that keeps conversations apart, with its attention implementation set on `model`.

    `call` is what is called in the model's stead where something wraps it. Random states are left as they were.

    Raises:
        InputError: `attention` names an implementation that the model cannot use.
    """
    register()
    base = cast("Any", base_model(model))
    own = str(base.config._attn_implementation)  # noqa: SLF001 - the library has no public name for it
    probe = _Probe(call or model, base, autocast)
    with _quiet(model):
        plain_head = probe.head_is_last()
        if not packing:
            if attention not in {"auto", own}:
                _set(base, attention)
            return Layout(False, own if attention == "auto" else attention, False, plain_head)
        reference, leaky = probe.references()
        tried: list[str] = []
        for name in _candidates(base, attention, own):
            if not _set(base, name, strict=attention != "auto"):
                continue
            difference = probe.packed(reference)
            tried.append(f"{name}: {difference:.2g}")
            if difference < probe.tolerance and difference < leaky / 2:
                return Layout(True, name, probe.boundaries, plain_head)
        _set(base, own)
    note = (
        f"{type(base).__name__} does not keep packed conversations apart (relative difference of the logits of one that is packed "
        f"and alone: {', '.join(tried)}); it is trained with one conversation a row, padded, which takes longer."
    )
    return Layout(False, own, False, plain_head, note)


class _Probe:
    def __init__(self, call: nn.Module, base: nn.Module, autocast: Callable[[], AbstractContextManager[Any]]) -> None:
        self._call, self._base, self._autocast = call, base, autocast
        self.boundaries = takes(base, "**")
        self._device = next(base.parameters()).device
        random = np.random.default_rng(0)
        tokens = vocabulary(base)
        self._examples = [
            Rendered(
                "probe",
                "probe",
                random.integers(0, tokens, length).astype(np.int32),
                np.full(length, Label.TRAINED, np.int8),
                (),
            )
            for length in _LENGTHS
        ]
        self._batch = pack_batch(self._examples).to(self._device)
        self.tolerance = _HALF_TOLERANCE

    def _logits(self, **inputs: Tensor | int) -> Tensor:
        with torch.no_grad(), self._autocast():
            logits = cast("Tensor", self._call(**inputs, use_cache=False).logits)[0, -_LENGTHS[-1] :]
            half = torch.is_autocast_enabled(self._device.type)
        self.tolerance = _HALF_TOLERANCE if half else _TOLERANCE.get(logits.dtype, _HALF_TOLERANCE)
        return logits.double()

    def references(self) -> tuple[Tensor, float]:
        """The second sequence's logits when it is alone, and how far they move when the first stands before it."""
        ids = cast("Tensor", self._batch.inputs["input_ids"])
        alone = self._logits(input_ids=ids[:, _LENGTHS[0] :])
        return alone, _distance(self._logits(input_ids=ids), alone)

    def packed(self, reference: Tensor) -> float:
        """How far they move in a pack; infinite where the model cannot be called so."""
        inputs = {
            name: value for name, value in self._batch.inputs.items() if self.boundaries or name not in _BOUNDARIES
        }
        try:
            return _distance(self._logits(**inputs), reference)
        except (UnsupportedAttention, TypeError, ValueError, NotImplementedError):
            return float("inf")

    def head_is_last(self) -> bool:
        """Whether the model gives out its head's output as it is."""
        head = output_head(self._base)
        if head is None:
            return False
        seen: list[Tensor] = []

        def note(_module: nn.Module, _inputs: Any, output: Tensor) -> None:
            seen.append(output)

        handle = head.register_forward_hook(cast("Any", note))
        try:
            ids = cast("Tensor", self._batch.inputs["input_ids"])
            with torch.no_grad(), self._autocast():
                logits = cast("Tensor", self._call(input_ids=ids, use_cache=False).logits)
        finally:
            handle.remove()
        return len(seen) == 1 and seen[0].shape == logits.shape and torch.equal(seen[0].to(logits.dtype), logits)


def _distance(got: Tensor, wanted: Tensor) -> float:
    distance = float((got - wanted).square().sum().sqrt() / (wanted.square().sum().sqrt() + 1e-30))
    return float("inf") if math.isnan(distance) else distance


def _candidates(base: Any, attention: str, own: str) -> Iterator[str]:
    if attention != "auto":
        yield attention
        return
    if next(base.parameters()).is_cuda:
        if is_flash_attn_3_available():
            yield "flash_attention_3"
        if is_flash_attn_2_available():
            yield "flash_attention_2"
    if takes(base, "**") and _whole_or_sliding(base):
        yield SEGMENTS
    yield own


def _whole_or_sliding(base: Any) -> bool:
    """No attention pattern that only a mask would express: the probe is too short to meet a window's or a chunk's end.

    A model that supports flash attention hands its sliding window to the attention function, which needs no mask then.
    """
    config = base.config.get_text_config()
    if getattr(config, "attention_chunk_size", None) is not None:
        return False
    kinds = set(cast("list[str]", getattr(config, "layer_types", None) or []))
    if any("chunk" in kind for kind in kinds):
        return False
    slides = getattr(config, "sliding_window", None) is not None or "sliding_attention" in kinds
    return not slides or bool(getattr(base, "_supports_flash_attn", False))


def _set(base: Any, name: str, *, strict: bool = False) -> bool:
    try:
        base.set_attn_implementation(name)
    except (ValueError, ImportError) as exc:
        if strict:
            raise InputError(
                f"attention is {name!r}, which {type(base).__name__} cannot use: {exc}. Leave it out to have one chosen."
            ) from exc
        return False
    return base.config._attn_implementation == name  # noqa: SLF001


@contextmanager
def _quiet(model: nn.Module) -> Generator[None]:
    """In evaluation mode, without the library's remarks on implementations that are only being tried."""
    training = model.training
    log = logging.getLogger("transformers.modeling_utils")
    level = log.level
    log.setLevel(logging.ERROR)
    model.eval()
    try:
        yield
    finally:
        model.train(training)
        log.setLevel(level)
