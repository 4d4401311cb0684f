"""A script's structure in 256 bytes, of which two scripts have about as many in common as they are similar."""

from collections import Counter
from collections.abc import Iterator
from functools import cache
from typing import TYPE_CHECKING, Any

from refinesynth.diversity.structure import Structure
from refinesynth.trajectory import Script

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

PARTS = {"world": 128, "actions": 80, "goal": 48}
"""How many bytes of a sketch each part of a structure has: its weight."""

SIZE = sum(PARTS.values())
"""Bytes of a sketch."""

_MAX_COUNT = 64
"""A feature that is there more often than this counts as if it were there so often."""


def sketch(script: Script) -> "NDArray[np.uint8]":
    """The sketch of a script, `SIZE` bytes, always the same for the same script.

    MinHash by parts: a byte of a part is equal in two sketches with the probability that is the Jaccard similarity of
    the two parts (of features with their counts), and by chance in one of 256 cases besides. So the share of equal
    bytes is the mean of the parts' similarities, weighted by `PARTS`, with a standard error of 0.03 at most.
    """
    import numpy as np

    structure = Structure.of(script)
    parts: list[Any] = []
    for part, size in PARTS.items():
        minhash = _empty(size).copy()
        if hashes := list(_hashes(getattr(structure, part))):
            minhash.update_batch(hashes)
        parts.append(minhash.hashvalues)
    # The lowest bits are as good as any: the hash is a bijection of well-mixed bits.
    return np.concatenate(parts).astype(np.uint8)


@cache
def _empty(size: int) -> Any:
    from datasketch import MinHash

    return MinHash(num_perm=size, seed=size, hashfunc=_as_it_is, scheme="affine32")


def _as_it_is(hashed: int) -> int:
    return hashed


def _hashes(features: Counter[str]) -> Iterator[int]:
    """32 bits for each feature, and others for each time that it is there again."""
    for feature, count in features.items():
        first = int(feature, 16)
        for again in range(min(count, _MAX_COUNT)):
            yield (first + again * 0x9E3779B1) & 0xFFFFFFFF
