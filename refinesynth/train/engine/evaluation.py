"""Loss on held-out conversations by kind (correct turns, refinements, mistakes) and by source."""

from collections.abc import Callable, Iterator, Sequence

import torch
import torch.distributed as dist
from torch import Tensor

from refinesynth.train.conversation import TurnLabel
from refinesynth.train.engine.batch import KINDS, TURN_LABELS, Batch, labelled_targets, pack_batch, pad_batch
from refinesynth.train.engine.schedule import best_fit, padded
from refinesynth.train.events import LOSS, LOSS_CORRECT, LOSS_MISTAKE, LOSS_OF_SOURCE, LOSS_REFINEMENT
from refinesynth.train.tokens import TokenStore

_NAMES = {TurnLabel.CORRECT: LOSS_CORRECT, TurnLabel.REFINEMENT: LOSS_REFINEMENT, TurnLabel.MISTAKE: LOSS_MISTAKE}


def held_out_batches(store: TokenStore, *, capacity: int, packed: bool, rank: int, ranks: int) -> Iterator[Batch]:
    """This rank's batches of `store`, as many as every other rank's; some may be empty."""
    lengths = [int(length) for length in store.lengths]
    packs = (best_fit if packed else padded)(lengths, max(capacity, max(lengths, default=1)))
    make = pack_batch if packed else pad_batch
    number = {name: at for at, name in enumerate(store.sources)}
    for start in range(0, len(packs), ranks):
        mine = packs[start + rank] if start + rank < len(packs) else ()
        yield make([store[k] for k in mine], lambda one: labelled_targets(one, number[one.source]))


def held_out_losses(
    batches: Iterator[Batch],
    losses: Callable[[Batch], Tensor],
    device: torch.device,
    sources: Sequence[str] = ("",),
    *,
    each_source: bool = False,
) -> dict[str, float]:
    """Mean loss per token over all ranks, by the names in `train/events.py`; absent kinds have no entry.

    `losses` gives (K,) for a batch; `sources` are those of the store, with an entry for each if `each_source`.
    """
    sums = torch.zeros(2, len(sources) * KINDS, dtype=torch.float64, device=device)
    with torch.no_grad():
        for batch in batches:
            here = batch.to(device)
            got = losses(here).double() * here.weight
            sums[0].index_add_(0, here.kind, got)
            sums[1].index_add_(0, here.kind, torch.full_like(got, here.weight))
    if dist.is_available() and dist.is_initialized():
        dist.all_reduce(sums)
    return _means(sums, sources if each_source else ())


def _means(sums: Tensor, named: Sequence[str]) -> dict[str, float]:
    parts = sums.view(2, -1, len(TURN_LABELS) + 1, 2)  # loss and count; source; turn label; not trained, trained
    by_label, trained = parts.sum(1), parts[..., 1].sum(2)
    means = {LOSS: trained.sum(1)} | {_NAMES[one]: by_label[:, k].sum(1) for k, one in enumerate(TURN_LABELS)}
    means |= {f"{LOSS_OF_SOURCE}{name}": trained[:, at] for at, name in enumerate(named)}
    return {name: float(total / count) for name, (total, count) in means.items() if count > 0}
