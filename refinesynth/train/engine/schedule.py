"""Schedule of conversations over optimizer steps, micro-batches and ranks.

A step is `batch_size` conversations over all ranks and micro-batches. Each epoch is a permutation of all conversations,
drawn from the seed and the epoch number. The conversations of a step are packed into few micro-batches of one pack per
rank. Every rank computes the same schedule; resuming needs only the step number.
"""

import heapq
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from refinesynth.train.config import TrainConfig
from refinesynth.train.tokens import Label, TokenStore

Pack = tuple[int, ...]
"""Indices of one pack's conversations; may be empty."""


def pack_best_fit(lengths: Sequence[int], capacity: int) -> list[Pack]:
    """Pack into few packs of at most `capacity` tokens: longest first, each into the fullest pack with room. No pack is
    empty. A conversation longer than `capacity` gets its own pack.
    """
    packs: list[list[int]] = []
    remaining: list[int] = []
    for k in _longest_first(lengths):
        fits = [p for p, tokens_left in enumerate(remaining) if tokens_left >= lengths[k]]
        if fits:
            p = min(fits, key=remaining.__getitem__)
            packs[p].append(k)
            remaining[p] -= lengths[k]
        else:
            packs.append([k])
            remaining.append(capacity - lengths[k])
    return [tuple(pack) for pack in packs]


def balance(lengths: Sequence[int], capacity: int, number: int) -> list[Pack]:
    """Pack into exactly `number` packs of similar size, largest first; some may be empty.

    Each conversation, longest first, goes into the emptiest pack. If a pack then exceeds `capacity`, the packs are
    those of `pack_best_fit`, and `number` must be at least as many.
    """
    heap = [(0, p) for p in range(number)]
    packs: list[list[int]] = [[] for _ in range(number)]
    for k in _longest_first(lengths):
        load, p = heapq.heappop(heap)
        packs[p].append(k)
        heapq.heappush(heap, (load + lengths[k], p))
    limit = max(capacity, max(lengths, default=0))
    if max(load for load, _ in heap) > limit:
        tight = pack_best_fit(lengths, capacity)
        return _largest_first([*tight, *[()] * (number - len(tight))], lengths)
    return _largest_first([tuple(pack) for pack in packs], lengths)


def _longest_first(lengths: Sequence[int]) -> list[int]:
    return sorted(range(len(lengths)), key=lambda k: (-lengths[k], k))


def _largest_first(packs: list[Pack], lengths: Sequence[int]) -> list[Pack]:
    return sorted(packs, key=lambda pack: -sum(lengths[k] for k in pack))


class Step(NamedTuple):
    """One optimizer step."""

    packs: tuple[tuple[Pack, ...], ...]
    """[micro-batch][rank]: store indices of a pack's conversations. Empty packs give all ranks as many passes."""
    trained: int
    """Number of tokens that give loss, over all packs: the divisor of the loss (equation 1 as a mean)."""


@dataclass(frozen=True, slots=True, eq=False)
class Schedule:
    """All steps of a training."""

    lengths: NDArray[np.int64]
    """(conversations,) Number of tokens."""
    trained: NDArray[np.int64]
    """(conversations,) Number of tokens that give loss."""
    batch_size: int
    """Conversations per step; the last step of an epoch may have fewer."""
    ranks: int
    capacity: int
    """Tokens per pack; at least the longest conversation."""
    seed: int
    packed: bool
    steps_per_epoch: int
    steps: int
    """Steps over all epochs; the last epoch may be partial."""

    @classmethod
    def from_config(cls, store: TokenStore, config: TrainConfig, *, ranks: int) -> Self:
        """Schedule a training on `store`. A conversation longer than `pack_tokens` raises the capacity."""
        lengths = store.lengths
        return cls(
            lengths,
            # The first token of a conversation has no context to be predicted from.
            np.asarray([np.count_nonzero(example.labels[1:] == Label.TRAINED) for example in store], dtype=np.int64),
            config.batch_size,
            ranks,
            max(config.pack_tokens, int(lengths.max(initial=1))),
            config.seed,
            config.packing,
            config.steps_per_epoch(len(store)),
            config.steps(len(store)),
        )

    def conversations(self, epoch: int, step: int) -> NDArray[np.int64]:
        """Store indices of the conversations of step `step` of epoch `epoch`; both count from 0."""
        start = step * self.batch_size
        return _order(len(self.lengths), self.seed, epoch)[start : start + self.batch_size]

    def step(self, epoch: int, step: int) -> Step:
        """The packs of step `step` of epoch `epoch`; both count from 0."""
        chosen = self.conversations(epoch, step)
        lengths = [int(self.lengths[k]) for k in chosen]
        # Without packing, each conversation has a pass of its own.
        packs = pack_best_fit(lengths, self.capacity if self.packed else 1)
        number = -(-len(packs) // self.ranks) * self.ranks
        packs = balance(lengths, self.capacity, number) if self.packed else [*packs, *[()] * (number - len(packs))]
        store_packs = [tuple(int(chosen[k]) for k in pack) for pack in packs]
        micro_batches = [tuple(store_packs[start : start + self.ranks]) for start in range(0, number, self.ranks)]
        # Packs are sorted by size: every second micro-batch is reversed, to balance the ranks.
        micro_batches[1::2] = [packs[::-1] for packs in micro_batches[1::2]]
        return Step(tuple(micro_batches), int(self.trained[chosen].sum()))


@lru_cache(maxsize=4)
def _order(conversations: int, seed: int, epoch: int) -> NDArray[np.int64]:
    return np.random.default_rng([seed, epoch]).permutation(conversations).astype(np.int64)
