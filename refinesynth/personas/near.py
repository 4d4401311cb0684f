"""Near-duplicates by MinHash, as Persona Hub's authors removed them: 1-grams, 128 permutations, Jaccard similarity 0.9.

Section 7 of the method. Candidates come from MinHash (datasketch) and are then compared exactly, by the sets of their
grams, so that no persona is taken for a near-duplicate that is none.
"""

import hashlib
import re
import unicodedata
from array import array
from dataclasses import dataclass
from functools import cached_property, lru_cache
from importlib import import_module
from sys import getsizeof
from typing import Any

from refinesynth.errors import InputError
from refinesynth.extras import check_installed

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


_NUMBER_BYTES = 32
_MOST_COMPARED = 128
"""Rows that share one band that a row is compared with; bounds the time that hostile or monotonous data can
take."""


@dataclass(frozen=True)
class Similar:
    """What counts as a near-duplicate; the defaults are Persona Hub's."""

    threshold: float = 0.9
    """Jaccard similarity of the sets of grams from which on two personas are near-duplicates, above 0 and at most 1."""
    size: int = 1
    """Words of one gram; characters in scripts that set no words apart."""
    permutations: int = 128
    """Hash values of a MinHash signature."""

    def __post_init__(self) -> None:
        if not 0 < self.threshold <= 1:
            raise InputError(f"a threshold is above 0 and at most 1, got {self.threshold!r}; Persona Hub's is 0.9")
        if not 1 <= self.size <= 16:  # noqa: PLR2004
            raise InputError(f"a gram has 1 to 16 words, got {self.size!r}; Persona Hub's has 1")
        if not 8 <= self.permutations <= 4096:  # noqa: PLR2004
            raise InputError(
                f"a signature has 8 to 4096 permutations, got {self.permutations!r}; Persona Hub's has 128"
            )


@dataclass(frozen=True, slots=True)
class Twin:
    """The earlier persona that another one repeats."""

    of: int
    """Its number among those that were kept, from 0."""
    similarity: float
    """Of their grams, from the threshold to 1."""
    exact: bool
    """Whether the words and their order are the same."""


class NearDuplicates:
    """Admits personas that are not near-duplicates of one admitted before.

    Deterministic, and the first of several near-duplicates is the one admitted. Nothing below the threshold is refused.
    At the threshold itself 99 % of the pairs are found, above it more: 99.99 % at 0.95 for the default of 0.9. In data
    where more than a hundred admitted personas share most of their words, only the newest of these are compared.

    Memory for each admitted persona: 4 bytes for each distinct gram, 16, and about 110 for each band (12 by default).
    """

    def __init__(self, similar: Similar | None = None) -> None:
        """An empty index.

        Raises:
            ConfigurationError: datasketch or numpy is not installed.
        """
        check_installed("diversity", "datasketch", "numpy")
        self.similar = similar or Similar()
        self._bands, self._rows = choose_bands(self.similar.permutations, self.similar.threshold)
        self._newest: dict[int, int] = {}
        """Of the personas that have a key, the number of the newest."""
        self._before = array("i")
        """For each persona and each of its keys, the one that was the newest until then; -1: none."""
        self._grams = array("I")
        self._ends = array("Q", [0])
        self._fingerprints = array("Q")

    def __len__(self) -> int:
        """How many were admitted."""
        return len(self._fingerprints)

    @property
    def bytes_held(self) -> int:
        """Bytes that the index takes, estimated: those of the arrays, and two numbers for each entry of the table."""
        arrays = (self._grams, self._ends, self._fingerprints, self._before)
        held = sum(part.itemsize * len(part) for part in arrays)
        return held + getsizeof(self._newest) + 2 * _NUMBER_BYTES * len(self._newest)

    def admit(self, text: str) -> Twin | None:
        """Admit a persona and return None, or return which one it repeats."""
        found = words(text)
        wanted = grams(found, self.similar.size)
        keys = self._keys(wanted)
        best: Twin | None = None
        for number in self._candidates(keys):
            similarity = self._similarity(wanted, number)
            if similarity >= self.similar.threshold and (best is None or similarity > best.similarity):
                best = Twin(number, similarity, exact=False)
        if best is not None:
            exact = best.similarity == 1 and self._fingerprints[best.of] == fingerprint(found)
            return Twin(best.of, best.similarity, exact)
        for key in keys:
            self._before.append(self._newest.get(key, -1))
            self._newest[key] = len(self)
        self._grams.extend(sorted(wanted))
        self._ends.append(len(self._grams))
        self._fingerprints.append(fingerprint(found))
        return None

    def _similarity(self, wanted: set[int], number: int) -> float:
        start, end = self._ends[number], self._ends[number + 1]
        fewer, more = sorted((len(wanted), end - start))
        if fewer < self.similar.threshold * more:
            return 0.0
        shared = len(wanted.intersection(self._grams[start:end]))
        return shared / (len(wanted) + end - start - shared)

    def _keys(self, wanted: set[int]) -> list[int]:
        """A number for each band of the MinHash signature; two that are equal by chance cost a comparison."""
        sketch = self._sketch
        sketch.clear()
        # Sorted: sets of equal numbers may come in another order.
        sketch.update_batch(sorted(wanted))
        bands = sketch.hashvalues[: self._bands * self._rows].reshape(self._bands, self._rows)
        return [hash((number, band.tobytes())) for number, band in enumerate(bands)]

    def _candidates(self, keys: list[int]) -> list[int]:
        """Personas that share a band with these keys, each once, in order; the newest of each band."""
        found: set[int] = set()
        for band, key in enumerate(keys):
            number = self._newest.get(key, -1)
            for _ in range(_MOST_COMPARED):
                if number < 0:
                    break
                found.add(number)
                number = self._before[number * self._bands + band]
        return sorted(found)

    @cached_property
    def _sketch(self) -> Any:
        # Typed as Any: datasketch is optional, and has no types.
        sketches: Any = import_module("datasketch")
        return sketches.MinHash(num_perm=self.similar.permutations, hashfunc=int, scheme="affine32")


def choose_bands(permutations: int, threshold: float, *, found: float = 0.99) -> tuple[int, int]:
    """Number of bands and hash values in each, such that a pair at the threshold shares a band with probability
    `found`.

    A pair of similarity s shares one with 1 - (1 - s^rows)^bands. As many values a band as that allows, since each more
    means fewer pairs that are looked at in vain. With few permutations and a low threshold a band has one value, and
    fewer pairs may be found.
    """
    for rows in range(permutations, 1, -1):
        bands = permutations // rows
        if 1 - (1 - threshold**rows) ** bands >= found:
            return bands, rows
    return permutations, 1
