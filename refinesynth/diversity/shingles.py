"""64-bit hashes of all runs of `n` words in a text."""

import re
from collections.abc import Iterator
from functools import lru_cache
from hashlib import blake2b
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

_WORD = re.compile(r"\w+")

_FACTOR = 0x9E3779B97F4A7C15


def words(text: str) -> list[str]:
    """Runs of letters, digits and underscores."""
    return _WORD.findall(text)


def runs(found: list[str], longest: int) -> "Iterator[tuple[int, NDArray[np.uint64]]]":
    """Yield (length, hashes of all runs of that length) for lengths 1 to `longest`; case does not count.

    The i-th hash is that of the run that begins at the i-th word. Two runs collide with a probability of 2**-64.
    """
    import numpy as np

    hashes = np.fromiter(map(_hash, found), dtype=np.uint64, count=len(found))
    current = hashes
    for length in range(1, min(longest, len(hashes)) + 1):
        if length > 1:
            # Wraps around, which is meant.
            current = current[:-1] * np.uint64(_FACTOR) + hashes[length - 1 :]
        yield length, _mixed(current, length)


def _mixed(values: "NDArray[np.uint64]", length: int) -> "NDArray[np.uint64]":
    """Spread small differences over all bits; runs of different lengths differ."""
    import numpy as np

    mixed = values ^ np.uint64(length * 0xD6E8FEB86659FD93 & (1 << 64) - 1)
    mixed = (mixed ^ (mixed >> np.uint64(32))) * np.uint64(0xD6E8FEB86659FD93)
    return mixed ^ (mixed >> np.uint64(32))


@lru_cache(maxsize=1 << 16)
def _hash(word: str) -> int:
    return int.from_bytes(blake2b(word.casefold().encode("utf-8", "surrogatepass"), digest_size=8).digest(), "little")
