"""A text as the set of its words, by which near-duplicates are found."""

import hashlib
import re
import unicodedata
from functools import lru_cache

# In these scripts words are not set apart, so that each character stands for one.
_UNSPACED = (
    "\u0e00-\u0eff"  # Thai, Lao
    "\u1000-\u109f"  # Myanmar
    "\u1780-\u17ff"  # Khmer
    "\u3040-\u30ff"  # kana
    "\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003134f"  # Han
)
_WORD = re.compile(rf"[{_UNSPACED}]|(?:(?![{_UNSPACED}])\w)+")
_KEPT_WORDS = 1 << 16
"""Words whose hash is kept at hand."""


def words(text: str) -> list[str]:
    """The words in their order, without case and punctuation; characters where a script sets no words apart.

    A text without any, such as one of emoji, is taken as one word, so that there is always at least one.
    """
    folded = text.lower() if text.isascii() else unicodedata.normalize("NFKC", text).casefold()
    return _WORD.findall(folded) or [folded.strip()]


def grams(found: list[str], size: int = 1) -> set[int]:
    """Hashes of all runs of `size` words, 32 bits each; of a shorter text, the hash of all its words."""
    if size == 1:
        return set(map(_hashed, found))
    runs = range(max(1, len(found) - size + 1))
    return {_hashed(" ".join(found[at : at + size])) for at in runs}


def fingerprint(found: list[str]) -> int:
    """A hash of the words in their order, 64 bits: equal for texts that differ in case and punctuation at most."""
    return int.from_bytes(hashlib.blake2b(" ".join(found).encode("utf-8", "replace"), digest_size=8).digest())


@lru_cache(maxsize=_KEPT_WORDS)
def _hashed(word: str) -> int:
    return int.from_bytes(hashlib.blake2b(word.encode("utf-8", "replace"), digest_size=4).digest())
