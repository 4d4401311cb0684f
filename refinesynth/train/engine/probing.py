"""How a model's conversations may be laid out: whether packing leaves them apart is measured on the model, not read off
its name.

Short sequences go through the model, together in a pack and alone. Where the logits of one differ, or
follow what stands before it, the pack joins them: state-space layers carry their state across, models without position
ids number the tokens through, and some attention pays no heed to the boundaries. Such a model is trained one
conversation a row.
"""

# torch and transformers are typed in part: pyright may not know all of a member that is used here.
# pyright: reportUnknownMemberType=false

import math
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Final, NamedTuple, cast

import numpy as np
import torch
from torch import Tensor, nn
from transformers.modeling_flash_attention_utils import FLASH_ATTN_KERNEL_FALLBACK
from transformers.utils.import_utils import (
    is_flash_attn_2_available,
    is_flash_attn_3_available,
    is_kernels_available,
)

from refinesynth.errors import InputError
from refinesynth.train.engine.attention import SEGMENTS, UnsupportedAttention, register
from refinesynth.train.engine.batch import Batch, pack_batch, pad_batch
from refinesynth.train.engine.head import base_model, output_head, takes, vocabulary
from refinesynth.train.engine.unused import freeze, without_gradient
from refinesynth.train.memory import describe_unused
from refinesynth.train.tokens import Label, Rendered

_LENGTHS: Final = (13, 21)
_OTHERS: Final = 3
"""Sequences that take the first one's place."""
_BEHIND: Final = (13, 5)
"""Tokens behind a sequence that is padded in a row of its own."""
_TOLERANCE: Final = {torch.float64: 1e-6, torch.float32: 1e-4}
_HALF_TOLERANCE: Final = 0.1
"""Of 16-bit logits, relative; kernels for other shapes round elsewhere."""
_NOISE: Final = 3
"""Times what padding alone does that a pack may do."""

REFUSALS: Final = (UnsupportedAttention, TypeError, ValueError, NotImplementedError, ImportError, RuntimeError)
"""What models and their kernels raise where they cannot do what is asked of them."""


class Moved(NamedTuple):
    """How far one sequence's logits are from what they should be, relative to the size of these."""

    whole: float
    """Root mean square over the tokens."""
    median: float
    """Of the tokens: a few that a router sends elsewhere do not show in it, and a state that is carried on does."""

    @classmethod
    def between(cls, got: Tensor, wanted: Tensor) -> "Moved":
        """Both of shape (T, vocabulary)."""
        size = wanted.square().sum(1).mean().sqrt() + 1e-30
        tokens = (got - wanted).square().sum(1).sqrt() / size
        whole, median = float(tokens.square().mean().sqrt()), float(tokens.median())
        return cls(math.inf, math.inf) if math.isnan(whole) else cls(whole, median)

    @classmethod
    def of(cls, every: Iterable["Moved"]) -> "Moved":
        """The largest of each."""
        found = list(every)
        return cls(max(each.whole for each in found), max(each.median for each in found))


class Probe:
    """Two short sequences of random tokens, to go through a model together and alone."""

    def __init__(self, call: nn.Module, base: nn.Module, autocast: Callable[[], AbstractContextManager[Any]]) -> None:
        self._call, self._base, self._autocast = call, base, autocast
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
            for length in (*_LENGTHS, *[_LENGTHS[0]] * _OTHERS)
        ]
        examples = self._examples[: len(_LENGTHS)]
        self.batch: Batch = pack_batch(examples).to(self._device)
        """Both, packed."""
        self.padded: Batch = pad_batch(examples).to(self._device)
        """Both, in a row each."""
        ids = cast("Tensor", self.batch.inputs["input_ids"])
        self._first, self._second = ids[:, : _LENGTHS[0]], ids[:, _LENGTHS[0] :]
        self._dtype = next(base.parameters()).dtype
        with autocast():
            self.half = torch.is_autocast_enabled(self._device.type) or self._dtype not in _TOLERANCE
            """Whether it is computed in 16 bits."""

    @cached_property
    def alone(self) -> Tensor:
        """(T, vocabulary) The second sequence's logits when it is alone."""
        return self._logits(input_ids=self._second)[0]

    @cached_property
    def joined(self) -> Moved:
        """How far they move when the first stands before it and nothing keeps them apart."""
        return Moved.between(
            self._logits(input_ids=cast("Tensor", self.batch.inputs["input_ids"]))[0, _LENGTHS[0] :], self.alone
        )

    def _logits(self, **inputs: Tensor | int) -> Tensor:
        with torch.no_grad(), self._autocast():
            return cast("Tensor", self._call(**inputs, use_cache=False).logits).double()

    def keeps_apart(self, inputs: Callable[[Batch], dict[str, Tensor | int]]) -> Moved | None:
        """None, or how far the logits move in a pack whose `inputs` the model takes. Raises one of `REFUSALS` where it
        takes none.

        They may move by what the precision explains; or, where routers of experts make steps of that, as far as padding
        alone moves them: the tokens that go to other experts far, and the others hardly. And what stands before a
        sequence must not show in its tokens at all, more than what stands behind it does: the shapes are the same, and
        so is the rounding, in any precision.
        """
        moved = Moved.between(self._second_of(inputs(self.batch)), self.alone)
        if moved.whole >= self.joined.whole / 2:
            return moved
        tolerance = _HALF_TOLERANCE if self.half else _TOLERANCE[self._dtype]
        if moved.whole >= tolerance:
            noise = self._padding()
            if moved.whole > _NOISE * noise.whole or moved.median > max(tolerance, _NOISE * noise.median):
                return moved
        first, second, *others = self._examples
        before = [self._second_of(inputs(self._packed(other, second))) for other in (first, *others)]
        behind = [self._logits(**inputs(self._packed(second, other)))[0, : _LENGTHS[1]] for other in (first, *others)]
        shown, noise = (Moved.of(Moved.between(each, rows[0]) for each in rows[1:]) for rows in (before, behind))
        return shown if shown.median > _NOISE * noise.median else None

    def _packed(self, *examples: Rendered) -> Batch:
        return pack_batch(examples).to(self._device)

    def _second_of(self, inputs: dict[str, Tensor | int]) -> Tensor:
        return self._logits(**inputs)[0, _LENGTHS[0] :]

    def _padding(self) -> Moved:
        """The farthest that they move with others behind them in their row, or beside it, which causal attention never
        looks at.
        """
        rows = [self._logits(**self.padded.inputs)[1]]
        behind = [torch.cat([self._second, self._first[:, :length]], 1) for length in _BEHIND]
        rows.extend(self._logits(input_ids=ids)[0, : _LENGTHS[1]] for ids in behind)
        return Moved.of(Moved.between(row, self.alone) for row in rows)

    def backward(self, inputs: dict[str, Tensor | int]) -> None:
        """A training step's passes; leaves gradients. Raises one of `REFUSALS` where there is no way back."""
        devices = [self._device] if self._device.type == "cuda" else []
        training = self._call.training
        with torch.random.fork_rng(devices), torch.enable_grad(), self._autocast():
            self._call.train()
            try:
                self._call(**inputs, use_cache=False).logits.float().logsumexp(-1).mean().backward()
            finally:
                self._call.train(training)

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
            with torch.no_grad(), self._autocast():
                logits = cast("Tensor", self._call(input_ids=self._second, use_cache=False).logits)
        finally:
            handle.remove()
        return len(seen) == 1 and seen[0].shape == logits.shape and torch.equal(seen[0].to(logits.dtype), logits)


_BOUNDARIES: Final = ("cu_seq_lens_q", "cu_seq_lens_k", "max_length_q", "max_length_k")
_HOPPER: Final = 9
_AMPERE: Final = 8
_SAID: Final = 300
"""Characters of a library's message that are handed on."""


@dataclass(frozen=True, slots=True)
class Layout:
    """How conversations go through a model."""

    packed: bool
    """Several conversations in one row; else one a row, padded."""
    attention: str
    """The attention implementation that is set on the model."""
    boundaries: bool
    """The model takes the conversations' boundaries (`cu_seq_lens_*`) beside their position ids."""
    indices: bool
    """It has layers that carry a state on from token to token, whose kernels take each token's conversation
    (`seq_idx`)."""
    plain_head: bool
    """The logits are what the head gives out, unscaled, so that the head may be evaluated in chunks."""
    note: str | None = None
    """What the user should know of the choice."""

    def inputs(self, batch: Batch) -> dict[str, Tensor | int]:
        """The inputs of `batch` that the model takes."""
        left_out = {*(() if self.boundaries else _BOUNDARIES), *(() if self.indices else ("seq_idx",))}
        return {name: value for name, value in batch.inputs.items() if name not in left_out}


def choose_layout(
    model: nn.Module,
    *,
    call: nn.Module | None = None,
    attention: str = "auto",
    packing: bool = True,
    backward: bool = True,
    autocast: Callable[[], AbstractContextManager[Any]] = nullcontext,
) -> Layout:
    """The fastest layout that keeps conversations apart and can be trained on, with its attention implementation set on
    `model`.

    `call` is what is called in the model's stead where something wraps it. With `backward` a training step's backward
    pass is tried too (not for DeepSpeed, whose engine counts them); what it gives no gradient is frozen, unless the
    model is wrapped already. Random states are left as they were, and no gradient stays.

    Raises:
        InputError: `attention` names an implementation that the model cannot use.
    """
    register()
    base = cast("Any", base_model(model))
    own = _attention(base)
    stateful = layers_with_state(base)
    trial = _Trial(model, Probe(call or model, base, autocast), backward=backward, wrapped=call is not None)
    with _evaluating(model):
        layout = Layout(False, own, False, False, trial.probe.head_is_last())
        packed = replace(layout, packed=True, boundaries=takes(base, "**"), indices=bool(stateful))
        failed: dict[str, str] = {}
        for name in _candidates(base, attention, own, half=trial.probe.half) if packing else ():
            if (why := _set(base, name, strict=attention != "auto")) is None:
                packed = replace(packed, attention=_attention(base))
                if (why := trial.failure(packed)) is None:
                    unused = {name: why for name, why in failed.items() if name not in {SEGMENTS, own}}
                    return replace(
                        packed,
                        note=trial.note(
                            *(f"{name} is passed over: {why.rstrip('.')}." for name, why in unused.items())
                        ),
                    )
            failed[name] = why
        _set(base, own if packing or attention == "auto" else attention, strict=not packing)
        layout = replace(layout, attention=_attention(base))
        trial.failure(layout)
    if not packing:
        return replace(layout, note=trial.note())
    state = f" {', '.join(stateful)} carries a state on from token to token." if stateful else ""
    note = (
        f"{type(base).__name__} does not keep packed conversations apart ({_reasons(failed)}); "
        f"it is trained with one conversation a row, padded, which takes longer.{state}"
    )
    return replace(layout, note=trial.note(note))


def layers_with_state(base: nn.Module) -> list[str]:
    """Names of the classes of layers that carry a state on from token to token: linear attention, state spaces, short
    convolutions.
    """
    text = cast("nn.Module", cast("Any", base).get_decoder())
    return sorted(
        {
            type(module).__name__
            for module in text.modules()
            if hasattr(module, "A_log") or any(isinstance(child, nn.Conv1d) for child in module.children())
        }
    )


def _reasons(failed: Mapping[str, str]) -> str:
    named = {why: ", ".join(name for name in failed if failed[name] == why) for why in failed.values()}
    return "; ".join(f"{names}: {why.rstrip('.')}" for why, names in named.items())


class _Trial:
    """Layouts tried on a model, and what that showed."""

    def __init__(self, model: nn.Module, probe: Probe, *, backward: bool, wrapped: bool) -> None:
        self.probe = probe
        self._model, self._backward, self._wrapped = model, backward, wrapped
        self._unused: dict[str, int] = {}

    def failure(self, layout: Layout) -> str | None:
        """Why the model cannot be trained in this layout, in words; None: it can."""
        inputs = layout.inputs(self.probe.batch if layout.packed else self.probe.padded)
        try:
            if layout.packed and (moved := self.probe.keeps_apart(layout.inputs)) is not None:
                return f"logits of one that is packed and alone differ by {moved.whole:.2g}, relative"
            if self._backward:
                self.probe.backward(inputs)
                self._freeze()
        except REFUSALS as exc:
            if isinstance(exc, torch.OutOfMemoryError):
                raise
            return " ".join(str(exc).split())[:_SAID] or type(exc).__name__
        finally:
            self._model.zero_grad(set_to_none=True)
        return None

    def _freeze(self) -> None:
        if not self._wrapped:
            self._unused = without_gradient(self._model)
            freeze(self._model, self._unused)

    def note(self, *notes: str) -> str | None:
        """All that the user should know, if there is something."""
        frozen = [f"{describe_unused(self._unused)}."] if self._unused else []
        return " ".join([*notes, *frozen]) or None


def _attention(base: Any) -> str:
    return str(base.config._attn_implementation)  # noqa: SLF001 - the library has no public name for it


def _candidates(base: Any, attention: str, own: str, *, half: bool) -> Iterator[str]:
    if attention != "auto":
        yield attention
        return
    if half and next(base.parameters()).is_cuda:
        yield from kernels(torch.cuda.get_device_capability())
    if takes(base, "**") and _whole_or_sliding(base):
        yield SEGMENTS
    yield own


def kernels(capability: tuple[int, int]) -> Iterator[str]:
    """The library's attention for half precision on GPUs of this compute capability, the fastest first; installed
    before fetched.

    What the package `kernels` fetches from the hub is tried where that is installed, which is the user's choice.
    """
    versions = {"flash_attention_3": is_flash_attn_3_available, "flash_attention_2": is_flash_attn_2_available}
    fitting = [name for name in versions if capability[0] == _HOPPER or (name[-1] == "2" and capability[0] >= _AMPERE)]
    yield from (name for name in fitting if versions[name]())
    if is_kernels_available():
        yield from (FLASH_ATTN_KERNEL_FALLBACK[name] for name in fitting if not versions[name]())


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


def _set(base: Any, name: str, *, strict: bool = False) -> str | None:
    """Why `name` cannot be set, in words; None: it is. The library may put a kernel of the hub in the place of one that
    is not installed.
    """
    before = _attention(base)
    try:
        base.set_attn_implementation(name)
    except Exception as exc:  # A kernel that is fetched may fail in any way.
        if strict:
            raise InputError(
                f"attention is {name!r}, which {type(base).__name__} cannot use: {exc}. Leave it out to have one chosen."
            ) from exc
        return " ".join(str(exc).split())[:_SAID] or type(exc).__name__
    return None if _attention(base) == name or _attention(base) != before else "the model's attention cannot be changed"


@contextmanager
def _evaluating(model: nn.Module) -> Generator[None]:
    training = model.training
    model.eval()
    try:
        yield
    finally:
        model.train(training)
