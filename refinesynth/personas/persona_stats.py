"""Statistics of personas: number, lengths, duplicates."""

from collections import Counter
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

from refinesynth.personas.near_duplicates import NearDuplicates, Similar, fingerprint, words
from refinesynth.personas.source import Records, RecordSource


@dataclass(frozen=True)
class Lengths:
    least: int
    median: int
    mean: float
    longest_tenth: int
    """Length that one in ten texts reaches or exceeds."""
    most: int

    @classmethod
    def of(cls, counts: Counter[int]) -> "Lengths":
        values = sorted(counts.elements())
        number = len(values)
        mean = round(sum(values) / number, 2)
        return cls(values[0], values[number // 2], mean, values[int(number * 0.9)], values[-1])


_MAX_DISTINCT_WORDS = 2_000_000
"""Maximum number of distinct words to count."""


@dataclass(frozen=True)
class PersonaStats:
    personas: int
    bad: int
    problems: tuple[str, ...]
    characters: Lengths
    words: Lengths
    distinct_words: int
    distinct_words_exact: bool
    """False if there are more distinct words than the count."""
    exact_duplicates: int
    """Number of personas with the words of an earlier one in the same order, ignoring case and punctuation."""
    near_duplicates: int | None
    """Number of near-duplicates of an earlier persona, without exact ones; None without a search."""

    def as_json(self) -> dict[str, Any]:
        return asdict(self)


def stats(
    source: RecordSource | None = None,
    *,
    column: str | None = None,
    similar: Similar | None = None,
    near: bool = True,
    on_progress: Callable[[int], None] | None = None,
) -> PersonaStats:
    """Read all personas once and return their statistics.

    Args:
        source: Personas to read; the ones that ship with the package if None.
        column: Column or key of a row's persona; `persona` or `text` if None.
        similar: Definition of a near-duplicate; Persona Hub's settings if None.
        near: Search near-duplicates. This takes most of the time, an index in memory and datasketch.
        on_progress: Called now and then with the number of rows read.

    Raises:
        InputError: A file cannot be read, or there is no persona.
        ConfigurationError: datasketch is not installed.
    """
    records = Records(source, column=column, on_progress=on_progress)
    index = NearDuplicates(similar) if near else None
    characters, lengths = Counter[int](), Counter[int]()
    vocabulary, texts = set[int](), set[int]()
    repeated = 0
    for record in records:
        text = record.persona.text
        text_words = words(text)
        characters[len(text)] += 1
        lengths[len(text_words)] += 1
        if len(vocabulary) < _MAX_DISTINCT_WORDS:
            vocabulary.update(map(hash, text_words))
        if (text_hash := fingerprint(text_words)) not in texts:
            texts.add(text_hash)
            repeated += index is not None and index.admit(text) is not None
    records.check()
    return PersonaStats(
        personas=records.read,
        bad=records.bad,
        problems=records.problems,
        characters=Lengths.of(characters),
        words=Lengths.of(lengths),
        distinct_words=min(len(vocabulary), _MAX_DISTINCT_WORDS),
        distinct_words_exact=len(vocabulary) < _MAX_DISTINCT_WORDS,
        exact_duplicates=records.read - len(texts),
        near_duplicates=None if index is None else repeated,
    )
