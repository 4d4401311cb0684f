"""Whether a pack leaves conversations apart, measured on a model: how far the logits of one move when another stands
beside it.
"""

# torch and transformers are typed in part: pyright may not know all of a member that is used here.
# pyright: reportUnknownMemberType=false

import math
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager
from functools import cached_property
from typing import Any, Final, NamedTuple, cast

import numpy as np
import torch
from torch import Tensor, nn

from refinesynth.train.engine.attention import UnsupportedAttention
from refinesynth.train.engine.batch import Batch, pack_batch, pad_batch
from refinesynth.train.engine.head import output_head, vocabulary
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
