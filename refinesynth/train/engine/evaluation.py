"""The loss on held-out conversations, kind by kind: correct turns, refinements, and mistakes, which should not fall."""

# torch and transformers are typed in part: pyright may not know all of a member that is used here.
# pyright: reportUnknownMemberType=false

from collections.abc import Callable, Iterator

import torch
import torch.distributed as dist
from torch import Tensor

from refinesynth.train.conversation import Speech
from refinesynth.train.engine.batch import Batch, pack_batch, pad_batch
from refinesynth.train.engine.packing import best_fit, padded
from refinesynth.train.engine.targets import KINDS, SPEECHES, spoken_targets
from refinesynth.train.events import LOSS, LOSS_CORRECT, LOSS_MISTAKE, LOSS_REFINEMENT
from refinesynth.train.tokens import TokenStore

_NAMES = {Speech.CORRECT: LOSS_CORRECT, Speech.REFINEMENT: LOSS_REFINEMENT, Speech.MISTAKE: LOSS_MISTAKE}


def held_out_batches(store: TokenStore, *, capacity: int, packed: bool, rank: int, ranks: int) -> Iterator[Batch]:
    """This rank's share of `store`, in as many batches as every other rank gets; some may be empty."""
    lengths = [int(length) for length in store.lengths]
    packs = (best_fit if packed else padded)(lengths, max(capacity, max(lengths, default=1)))
    make = pack_batch if packed else pad_batch
    for start in range(0, len(packs), ranks):
        mine = packs[start + rank] if start + rank < len(packs) else ()
        yield make([store[k] for k in mine], spoken_targets)


def losses_by_kind(
    batches: Iterator[Batch], losses: Callable[[Batch], Tensor], device: torch.device
) -> dict[str, float]:
    """Mean loss per token over all ranks, by the names in `train/events.py`; a kind that never comes has no entry.

    `losses` gives (K,) for a batch. A token counts the same wherever its conversation is packed, on any number of ranks.
    """
    sums = torch.zeros(2, KINDS, dtype=torch.float64, device=device)
    with torch.no_grad():
        for batch in batches:
            here = batch.to(device)
            got = losses(here).double() * here.weight
            sums[0].index_add_(0, here.kind, got)
            sums[1].index_add_(0, here.kind, torch.full_like(got, here.weight))
    return _means(_over_ranks(sums))


def _over_ranks(sums: Tensor) -> Tensor:
    if dist.is_available() and dist.is_initialized():
        dist.all_reduce(sums)
    return sums


def _means(sums: Tensor) -> dict[str, float]:
    by_speech = sums.view(2, len(SPEECHES) + 1, 2)  # loss and count; speech; not trained, trained
    means = {LOSS: by_speech[:, :, 1].sum(1)} | {_NAMES[one]: by_speech[:, k].sum(1) for k, one in enumerate(SPEECHES)}
    return {name: float(total / count) for name, (total, count) in means.items() if count > 0}
