"""Statistics of a collection of personas: number, lengths, duplicates, domains."""

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass
from typing import Any

from refinesynth.personas.domains import NO_DOMAIN, domain_of, has_domain_field, leading_noun
from refinesynth.personas.near import NearDuplicates, Similar, fingerprint, words
from refinesynth.personas.records import Records, RecordSource
from refinesynth.personas.rows import Record


class Frequent:
    """The most frequent of any number of names; exact as long as there are no more different ones than it holds.

    Beyond that the rarer half is forgotten, so that counts may be too low.
    """

    def __init__(self, hold: int = 200_000) -> None:
        self._counts: Counter[str] = Counter()
        self._hold = hold

    def __len__(self) -> int:
        """How many names are held."""
        return len(self._counts)

    def __contains__(self, name: str) -> bool:
        return name in self._counts

    def add(self, name: str) -> None:
        """Count one."""
        self._counts[name] += 1
        if len(self._counts) > self._hold:
            self._counts = Counter(dict(self._counts.most_common(self._hold // 2)))

    def top(self, most: int) -> dict[str, int]:
        """The most frequent names and their counts; equal counts in the order of the alphabet."""
        ranked = sorted(self._counts.items(), key=lambda item: (-item[1], item[0]))
        return dict(ranked[:most])


@dataclass(frozen=True)
class Lengths:
    """How lengths are spread."""

    least: int
    median: int
    mean: float
    longest_tenth: int
    """Length that one in ten reaches or exceeds."""
    most: int

    @classmethod
    def of(cls, counts: Counter[int]) -> "Lengths":
        """From how often each length comes; at least one does."""
        total = counts.total()
        ordered = sorted(counts.items())
        return cls(
            least=ordered[0][0],
            median=_at(ordered, total / 2),
            mean=round(sum(length * count for length, count in ordered) / total, 2),
            longest_tenth=_at(ordered, total * 0.9),
            most=ordered[-1][0],
        )


def _at(ordered: Iterable[tuple[int, int]], wanted: float) -> int:
    passed = length = 0
    for length, count in ordered:  # noqa: B007 - the last one is the answer too
        passed += count
        if passed > wanted:
            break
    return length


SHOWN = 20
"""How many of the most frequent things are reported."""
_MOST_WORDS = 2_000_000
"""Distinct words that are counted; more are `at least` that many."""


@dataclass(frozen=True)
class PersonaStats:
    """What `stats` found."""

    personas: int
    bad: int
    """Rows that are no personas."""
    problems: tuple[str, ...]
    """The first few of these."""
    characters: Lengths
    words: Lengths
    distinct_words: int
    distinct_words_exact: bool
    """False if there are more than were counted."""
    exact_duplicates: int
    """Personas with the words of an earlier one, in its order; case and punctuation aside."""
    near_duplicates: int | None
    """Further personas that are near-duplicates of an earlier one that is none itself; None if they were not looked
    for."""
    nouns: dict[str, int]
    """What the personas are, by their first words; the most frequent."""
    domains: dict[str, int] | None
    """The most frequent domains, `(none)` for rows that name none; None if no row has a field for it."""
    distinct_domains: int | None
    """How many domains there are, `(none)` not counted."""

    def as_json(self) -> dict[str, Any]:
        """All of it as plain values."""
        return asdict(self)


def stats(
    source: RecordSource | None = None,
    *,
    column: str | None = None,
    similar: Similar | None = None,
    near: bool = True,
    by: str = "domain",
    on_progress: Callable[[int], None] | None = None,
) -> PersonaStats:
    """Read all personas once and describe them.

    Args:
        source: What to read; the personas that ship with the package if None.
        column: Column or key of a row's persona; `persona` or `text` if None.
        similar: What counts as a near-duplicate; Persona Hub's settings if None.
        near: Whether to look for near-duplicates, which takes most of the time, an index in memory and the package
            datasketch.
        by: Field of the domains, as in `sample`.
        on_progress: Called now and then with how many rows were read.

    Raises:
        InputError: A file cannot be read, or there is no persona.
        ConfigurationError: datasketch is not installed.
    """
    records = Records(source, column=column, on_progress=on_progress)
    count = _Count(NearDuplicates(similar) if near else None, by)
    for record in records:
        count.add(record)
    records.check()
    return count.result(records)


class _Count:
    def __init__(self, near: NearDuplicates | None, by: str) -> None:
        self._near_index, self._by = near, by
        self._texts: set[int] = set()
        self._characters: Counter[int] = Counter()
        self._lengths: Counter[int] = Counter()
        self._vocabulary: set[int] = set()
        self._exact = self._near = 0
        self._nouns, self._domains = Frequent(), Frequent()
        self._has_domains = False

    def add(self, record: Record) -> None:
        text = record.persona.text
        found = words(text)
        self._characters[len(text)] += 1
        self._lengths[len(found)] += 1
        if len(self._vocabulary) < _MOST_WORDS:
            self._vocabulary.update(map(hash, found))
        self._nouns.add(leading_noun(text))
        self._add_domain(record)
        self._add_text(text, found)

    def _add_domain(self, record: Record) -> None:
        self._has_domains = self._has_domains or has_domain_field(record.fields, self._by)
        self._domains.add(domain_of(record, self._by) or NO_DOMAIN)

    def _add_text(self, text: str, found: list[str]) -> None:
        print_ = fingerprint(found)
        if print_ in self._texts:
            self._exact += 1
            return
        self._texts.add(print_)
        if self._near_index is not None and self._near_index.admit(text) is not None:
            self._near += 1

    def result(self, records: Records) -> PersonaStats:
        distinct = min(len(self._vocabulary), _MOST_WORDS)
        return PersonaStats(
            personas=records.read,
            bad=records.bad,
            problems=records.problems,
            characters=Lengths.of(self._characters),
            words=Lengths.of(self._lengths),
            distinct_words=distinct,
            distinct_words_exact=distinct < _MOST_WORDS,
            exact_duplicates=self._exact,
            near_duplicates=None if self._near_index is None else self._near,
            nouns=self._nouns.top(SHOWN),
            domains=self._domains.top(SHOWN) if self._has_domains else None,
            distinct_domains=len(self._domains) - (NO_DOMAIN in self._domains) if self._has_domains else None,
        )
