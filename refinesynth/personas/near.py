"""Near-duplicates by MinHash, as Persona Hub's authors removed them: 1-grams, 128 permutations, Jaccard similarity 0.9.

Section 7 of the method. Candidates come from MinHash (datasketch) and are then compared exactly, by the sets of their
grams, so that no persona is taken for a near-duplicate that is none.
"""

from array import array
from dataclasses import dataclass
from functools import cached_property
from importlib import import_module
from typing import Any

from refinesynth.errors import InputError
from refinesynth.extras import check_installed
from refinesynth.personas.bands import BandIndex, choose_bands
from refinesynth.personas.grams import fingerprint, grams, words

_MOST_COMPARED = 128
"""Rows in one chain of one band that a row is compared with; bounds the time that hostile or monotonous data can
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

    Memory for each admitted persona: 4 bytes for each distinct gram, 16, and for each band (12 by default) 12 to 16.
    """

    def __init__(self, similar: Similar | None = None) -> None:
        """An empty index.

        Raises:
            ConfigurationError: datasketch or numpy is not installed.
        """
        check_installed("diversity", "datasketch", "numpy")
        self.similar = similar or Similar()
        bands, rows = choose_bands(self.similar.permutations, self.similar.threshold)
        self._index = BandIndex(bands, rows, most=_MOST_COMPARED)
        self._grams = array("I")
        self._ends = array("Q", [0])
        self._fingerprints = array("Q")

    def __len__(self) -> int:
        """How many were admitted."""
        return len(self._index)

    @property
    def bytes_held(self) -> int:
        """Bytes that the index takes."""
        held = sum(part.itemsize * len(part) for part in (self._grams, self._ends, self._fingerprints))
        return held + self._index.bytes_held

    def admit(self, text: str) -> Twin | None:
        """Admit a persona and return None, or return which one it repeats."""
        found = words(text)
        wanted = grams(found, self.similar.size)
        keys = self._index.keys(self._signature(wanted))
        best: Twin | None = None
        for number in self._index.candidates(keys):
            similarity = self._similarity(wanted, number)
            if similarity >= self.similar.threshold and (best is None or similarity > best.similarity):
                best = Twin(number, similarity, exact=False)
        if best is not None:
            exact = best.similarity == 1 and self._fingerprints[best.of] == fingerprint(found)
            return Twin(best.of, best.similarity, exact)
        self._index.add(keys)
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

    def _signature(self, wanted: set[int]) -> Any:
        sketch = self._sketch
        sketch.clear()
        # Sorted: sets of equal numbers may come in another order.
        sketch.update_batch(sorted(wanted))
        return sketch.hashvalues

    @cached_property
    def _sketch(self) -> Any:
        # Typed as Any: datasketch is optional, and has no types.
        sketches: Any = import_module("datasketch")
        return sketches.MinHash(num_perm=self.similar.permutations, hashfunc=int, scheme="affine32")
