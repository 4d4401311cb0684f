"""The trainer's data: one item is one micro-batch of this rank, and so many of them make an optimizer step.

Items are numbered by the schedule, so that skipping to the middle of an epoch (`accelerate.skip_first_batches`, on a
resume) reads no data.
"""

# torch and transformers are typed in part: pyright may not know all of a member that is used here.
# pyright: reportUnknownMemberType=false

from collections.abc import Iterator
from typing import NamedTuple, TypedDict

from torch.utils.data import DataLoader, Dataset, Sampler

from refinesynth.train.engine.batch import Batch, pack_batch, pad_batch
from refinesynth.train.engine.schedule import Schedule
from refinesynth.train.tokens import TokenStore


class At(NamedTuple):
    """A micro-batch of a training; all numbers from 0."""

    epoch: int
    step: int
    micro: int


class MicroBatch(TypedDict):
    """What the trainer gets for one forward and backward pass."""

    batch: Batch
    trained: int
    """Tokens that give loss in the whole optimizer step, over all ranks and micro-batches."""
    tokens: int
    """Tokens of the whole optimizer step, likewise."""


class MicroBatches(Dataset[MicroBatch]):
    """The micro-batches of one rank."""

    def __init__(self, store: TokenStore, schedule: Schedule, rank: int) -> None:
        self._store, self._schedule, self._rank = store, schedule, rank

    def __len__(self) -> int:
        return len(self._store)

    def __getitem__(self, at: At) -> MicroBatch:
        step = self._schedule.step(at.epoch, at.step)
        examples = [self._store[k] for k in step.packs[at.micro][self._rank]]
        tokens = int(self._schedule.lengths[self._schedule.conversations(at.epoch, at.step)].sum())
        make = pack_batch if self._schedule.packed else pad_batch
        return MicroBatch(batch=make(examples), trained=step.trained, tokens=tokens)


class EpochSampler(Sampler[list[At]]):
    """The places of one epoch, in order."""

    def __init__(self, schedule: Schedule) -> None:
        self._schedule = schedule
        self._epoch = 0

    def set_epoch(self, epoch: int) -> None:
        """Called by the trainer at an epoch's beginning."""
        self._epoch = epoch

    def __len__(self) -> int:
        return self._schedule.steps_per_epoch * self._schedule.accumulation

    def __iter__(self) -> Iterator[list[At]]:
        for step in range(self._schedule.steps_per_epoch):
            for micro in range(self._schedule.accumulation):
                yield [At(self._epoch, step, micro)]


class EpochLoader(DataLoader[MicroBatch]):
    """A DataLoader that hands the epoch on to its sampler.

    It is not given to accelerate: the schedule has dealt the packs to the ranks already.
    """

    def __init__(self, store: TokenStore, schedule: Schedule, rank: int) -> None:
        self._places = EpochSampler(schedule)
        super().__init__(MicroBatches(store, schedule, rank), batch_sampler=self._places, collate_fn=_only)

    def set_epoch(self, epoch: int) -> None:
        """Take the conversations in the order of this epoch."""
        self._places.set_epoch(epoch)


def _only(items: list[MicroBatch]) -> MicroBatch:
    (item,) = items
    return item
