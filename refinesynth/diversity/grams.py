"""Runs of words as numbers: every run of `n` words in a text, hashed to 64 bits."""

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
"""Odd, with bits in no pattern."""


_PART = 100_000
"""Words of a text that are looked at in one go."""


def parts(text: str, *, overlap: int) -> Iterator[tuple[int, list[str]]]:
    """The words of a text (letters, digits and underscores, whatever stands between them), mostly in one part.

    A very long text comes in several, each with the number of its first word; `overlap` words are in two of them.
    """
    offset, words = 0, list[str]()
    for found in _WORD.finditer(text):
        words.append(found[0])
        if len(words) == _PART + overlap:
            yield offset, words
            offset, words = offset + _PART, words[_PART:]
    if len(words) > (overlap if offset else 0):
        yield offset, words


def hashes(words: list[str]) -> "NDArray[np.uint64]":
    """A number for each word, the same for upper and lower case."""
    import numpy as np

    return np.fromiter(map(_hash, words), dtype=np.uint64, count=len(words))


def runs(words: "NDArray[np.uint64]", longest: int) -> "Iterator[tuple[int, NDArray[np.uint64]]]":
    """Length and hashes of all runs of words, from length 1 to `longest`, as far as the text is long enough.

    The i-th hash is that of the run that begins with the i-th word. Different runs have the same hash with a chance of 2**-64.
    """
    import numpy as np

    factor = np.uint64(_FACTOR)
    current = words
    for length in range(1, min(longest, len(words)) + 1):
        if length > 1:
            # Wraps around, which is meant.
            current = current[:-1] * factor + words[length - 1 :]
        yield length, _mixed(current, length)


def _mixed(values: "NDArray[np.uint64]", length: int) -> "NDArray[np.uint64]":
    """Spreads what differs in few bits over all of them; runs of different lengths are told apart."""
    import numpy as np

    mixed = values ^ np.uint64(length * 0xD6E8FEB86659FD93 & (1 << 64) - 1)
    mixed = (mixed ^ (mixed >> np.uint64(32))) * np.uint64(0xD6E8FEB86659FD93)
    return mixed ^ (mixed >> np.uint64(32))


@lru_cache(maxsize=1 << 16)
def _hash(word: str) -> int:
    return int.from_bytes(blake2b(word.casefold().encode("utf-8", "surrogatepass"), digest_size=8).digest(), "little")
