"""Conversations into packs: rows of several conversations without padding, none longer than the capacity.

No torch, and nothing random: the same lengths give the same packs on every rank.
"""

import heapq
from collections.abc import Sequence

Pack = tuple[int, ...]
"""Positions, in the sequence of lengths that was packed, of the conversations of one pack; may be empty."""


def best_fit(lengths: Sequence[int], capacity: int) -> list[Pack]:
    """Few packs of at most `capacity` tokens: longest first, each into the fullest pack that still has room.

    One that is longer than `capacity` gets a pack of its own. No pack is empty.
    """
    packs: list[list[int]] = []
    room: list[int] = []
    for k in _longest_first(lengths):
        fits = [p for p, left in enumerate(room) if left >= lengths[k]]
        if fits:
            p = min(fits, key=room.__getitem__)
            packs[p].append(k)
            room[p] -= lengths[k]
        else:
            packs.append([k])
            room.append(capacity - lengths[k])
    return [tuple(pack) for pack in packs]


def balanced(lengths: Sequence[int], capacity: int, number: int) -> list[Pack]:
    """Exactly `number` packs of about the same size, the largest first; empty ones where there are too few
    conversations.

    `number` is at least as many as `best_fit` needs. Longest first into the emptiest pack balances best, but may need
    more room than `capacity`; then it is best fit, and the packs are less alike.
    """
    heap = [(0, p) for p in range(number)]
    packs: list[list[int]] = [[] for _ in range(number)]
    for k in _longest_first(lengths):
        load, p = heapq.heappop(heap)
        packs[p].append(k)
        heapq.heappush(heap, (load + lengths[k], p))
    limit = max(capacity, max(lengths, default=0))
    if max(load for load, _ in heap) > limit:
        tight = best_fit(lengths, capacity)
        return _largest_first([*tight, *[()] * (number - len(tight))], lengths)
    return _largest_first([tuple(pack) for pack in packs], lengths)


def padded(lengths: Sequence[int], capacity: int) -> list[Pack]:
    """Few batches whose rows, padded to the longest of them, hold at most `capacity` tokens; longest first.

    Each row is one conversation: the reference that packing is compared with.
    """
    batches: list[Pack] = []
    rows: list[int] = []
    for k in _longest_first(lengths):
        if rows and (len(rows) + 1) * lengths[rows[0]] > capacity:
            batches.append(tuple(rows))
            rows = []
        rows.append(k)
    return [*batches, tuple(rows)] if rows else batches


def _longest_first(lengths: Sequence[int]) -> list[int]:
    return sorted(range(len(lengths)), key=lambda k: (-lengths[k], k))


def _largest_first(packs: list[Pack], lengths: Sequence[int]) -> list[Pack]:
    return sorted(packs, key=lambda pack: -sum(lengths[k] for k in pack))
