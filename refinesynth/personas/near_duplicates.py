"""Near-duplicates by MinHash with Persona Hub's settings (1-grams, 128 permutations, Jaccard similarity 0.9).

MinHash (datasketch) gives candidates, and an exact comparison excludes false positives. Source: section 7 of the method.
"""

import hashlib
from array import array
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from operator import itemgetter
from os import PathLike
from pathlib import Path

from refinesynth.diversity.novelty import WORD, empty_minhash, normalized
from refinesynth.errors import InputError
from refinesynth.files.atomic_write import output_file, refuse_existing
from refinesynth.lazy_imports import check_installed
from refinesynth.personas.source import Records, RecordSource

_CACHED_WORDS = 1 << 16


def words(text: str) -> list[str]:
    """Return the lower-case words of a text, at least one; single characters in scripts without spaces."""
    folded = normalized(text).casefold()
    return WORD.findall(folded) or [folded.strip()]


def grams(text_words: list[str]) -> set[int]:
    """Return the 32-bit hashes of the words."""
    return set(map(_hash_word, text_words))


def fingerprint(text_words: list[str]) -> int:
    """Return a 64-bit hash of the words in order."""
    return int.from_bytes(hashlib.blake2b(" ".join(text_words).encode("utf-8", "replace"), digest_size=8).digest())


@lru_cache(maxsize=_CACHED_WORDS)
def _hash_word(word: str) -> int:
    return int.from_bytes(hashlib.blake2b(word.encode("utf-8", "replace"), digest_size=4).digest())


_MAX_COMPARED = 128
"""Maximum number of rows of one band that a row is compared with; bounds the time for monotonous or hostile data."""


THRESHOLD = 0.9
"""Default of the minimum Jaccard similarity of near-duplicates; Persona Hub's."""
_PERMUTATIONS = 128


@dataclass(frozen=True, slots=True)
class Twin:
    """Earlier persona that another one repeats."""

    index: int
    """Number of the earlier persona among the admitted ones, from 0."""
    similarity: float
    """Jaccard similarity of the grams, from the threshold to 1."""
    exact: bool
    """True if the words and their order are the same."""


class NearDuplicates:
    """Index that admits personas unless they are near-duplicates of an earlier one.

    It is deterministic. It refuses no persona below the threshold; it finds 99 % of the pairs at the threshold, and for
    the default threshold of 0.9, 99.99 % at 0.95. If more than 128 admitted personas share most of their words, it
    compares only the newest of them.

    Memory per admitted persona: 16 bytes, 4 bytes per distinct gram, and about 110 bytes per band (12 bands by default).
    """

    def __init__(self, threshold: float = THRESHOLD) -> None:
        """Make an empty index for this minimum similarity, above 0 and at most 1.

        Raises:
            InputError: `threshold` is out of range.
            ConfigurationError: datasketch or numpy is not installed.
        """
        if not 0 < threshold <= 1:
            raise InputError(f"the threshold of similarity is {threshold!r}; expected more than 0 and at most 1")
        check_installed("diversity", "datasketch", "numpy")
        self.threshold = threshold
        self._bands, self._rows = choose_bands(_PERMUTATIONS, threshold)
        self._newest_by_key: dict[int, int] = {}
        self._previous = array("i")
        """Previous persona with the same key, or -1, for each persona and each of its keys."""
        self._grams = array("I")
        self._ends = array("Q", [0])
        self._fingerprints = array("Q")

    def __len__(self) -> int:
        return len(self._fingerprints)

    def admit(self, text: str) -> Twin | None:
        """Admit a persona and return None, or return the earlier persona that it repeats."""
        persona_words = words(text)
        persona_grams = grams(persona_words)
        keys = self._keys(persona_grams)
        # Sorted, to return the first of equally similar personas.
        compared = ((self._similarity(persona_grams, number), number) for number in sorted(self._candidates(keys)))
        similarity, number = max(compared, key=itemgetter(0), default=(0.0, 0))
        if similarity >= self.threshold:
            exact = similarity == 1 and self._fingerprints[number] == fingerprint(persona_words)
            return Twin(number, similarity, exact)
        for key in keys:
            self._previous.append(self._newest_by_key.get(key, -1))
            self._newest_by_key[key] = len(self)
        self._grams.extend(sorted(persona_grams))
        self._ends.append(len(self._grams))
        self._fingerprints.append(fingerprint(persona_words))
        return None

    def _similarity(self, persona_grams: set[int], number: int) -> float:
        start, end = self._ends[number], self._ends[number + 1]
        smaller, larger = sorted((len(persona_grams), end - start))
        if smaller < self.threshold * larger:
            return 0.0
        shared = len(persona_grams.intersection(self._grams[start:end]))
        return shared / (len(persona_grams) + end - start - shared)

    def _keys(self, persona_grams: set[int]) -> list[int]:
        """Return one number per band of the MinHash signature; a collision costs one comparison."""
        sketch = empty_minhash(_PERMUTATIONS).copy()
        # Sorted: the order of a set is arbitrary.
        sketch.update_batch(sorted(persona_grams))
        bands = sketch.hashvalues[: self._bands * self._rows].reshape(self._bands, self._rows)
        return [hash((number, band.tobytes())) for number, band in enumerate(bands)]

    def _candidates(self, keys: list[int]) -> set[int]:
        candidates = set[int]()
        for band, key in enumerate(keys):
            number = self._newest_by_key.get(key, -1)
            for _ in range(_MAX_COMPARED):
                if number < 0:
                    break
                candidates.add(number)
                number = self._previous[number * self._bands + band]
        return candidates


def choose_bands(permutations: int, threshold: float, *, probability: float = 0.99) -> tuple[int, int]:
    """Return the numbers of bands and of hash values per band with which pairs at the threshold share a band with
    probability `probability`.

    A pair of similarity s shares a band with probability 1 - (1 - s^rows)^bands. The result has the highest sufficient
    number of rows, because more rows mean fewer needless comparisons; the minimum is one row.
    """
    for rows in range(permutations, 1, -1):
        bands = permutations // rows
        if 1 - (1 - threshold**rows) ** bands >= probability:
            return bands, rows
    return permutations, 1


@dataclass(frozen=True)
class DedupReport:
    output: Path
    read: int
    """Number of rows with a persona."""
    bad: int
    """Number of rows without a persona, which are not in the output."""
    problems: tuple[str, ...]
    kept: int
    exact: int
    near: int


def dedup(
    source: RecordSource | None,
    output: str | PathLike[str],
    *,
    column: str | None = None,
    threshold: float = THRESHOLD,
    overwrite: bool = False,
    on_progress: Callable[[int], None] | None = None,
) -> DedupReport:
    """Write the rows of `source` without near-duplicates of earlier rows.

    The output is JSONL and is written atomically. The same input and settings give the same bytes; a second deduplication
    of the output removes nothing. Rows are read once and not held in memory.

    Args:
        source: Personas to read; the ones that ship with the package if None.
        column: Column or key of a row's persona; `persona` or `text` if None.
        output: File to write, compressed if its name ends in `.gz`.
        threshold: Minimum Jaccard similarity of near-duplicates, above 0 and at most 1; by default Persona Hub's.
        overwrite: Replace an existing file.
        on_progress: Called now and then with the number of rows read.

    Raises:
        InputError: A file cannot be read or written, exists, or holds no persona; a setting is out of range.
        ConfigurationError: datasketch is not installed.
    """
    target = Path(output)
    refuse_existing(target, overwrite=overwrite)
    sources = (
        (Path(source),) if isinstance(source, str | PathLike) else source if isinstance(source, list | tuple) else ()
    )
    for path in (Path(item) for item in sources if isinstance(item, PathLike)):
        if target.exists() and path.exists() and target.samefile(path):
            raise InputError(f"{str(target)!r} is what is read, and would be replaced; name another output")
    records, index, exact = Records(source, column=column, on_progress=on_progress), NearDuplicates(threshold), 0
    with output_file(target, overwrite=overwrite) as kept:
        for record in records:
            if (twin := index.admit(record.persona.text)) is None:
                kept.write(record.as_json() + b"\n")
            else:
                exact += twin.exact
        records.check()
    return DedupReport(
        output=target,
        read=records.read,
        bad=records.bad,
        problems=records.problems,
        kept=len(index),
        exact=exact,
        near=records.read - len(index) - exact,
    )
