"""A random sample of personas, balanced over their domains, in one pass and in memory that depends on its size
alone.
"""

import hashlib
import heapq
import re
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from itertools import islice
from random import Random

from pydantic import JsonValue

from refinesynth.errors import InputError
from refinesynth.personas.near import NearDuplicates, Similar
from refinesynth.personas.records import Records, RecordSource
from refinesynth.personas.rows import Record

DOMAIN = "domain"
"""Balance by whichever of `DOMAIN_FIELDS` a row has."""

DOMAIN_FIELDS = (
    "general domain (top 1 percent)",
    "general domain (top 0.1 percent)",
    "general domain",
    "domain",
    "category",
)
"""Fields that are taken for a domain; the first that says something counts. Persona Hub's elite files have the first
two."""

NO_DOMAIN = "(none)"
"""The domain of rows whose fields name none; such rows are one group."""

_FIELDS_NAMED = 20
"""Names of fields that a message lists."""

_MISSING = frozenset({"", "none", "null", "nan", "n/a", "na", "unknown", "not specified", "-"})
_LONGEST = 100
_FIELD = re.compile(r"[\W_]+")
_SPACE = re.compile(r"\s+")


def domain_of(record: Record, by: str = DOMAIN) -> str | None:
    """The domain of a row: None if its fields name none.

    Names of fields are compared without regard to case and punctuation, so that a misspelled extra column of the same
    name stands in for a field that is empty. Domains are compared without regard to case, space and quotes around them.

    Args:
        record: The row.
        by: `domain`, or the name of a field.
    """
    wanted = _wanted(by)
    named: dict[str, str] = {}
    for name, value in record.fields.items():
        plain = _plain(name)
        if plain in wanted and plain not in named and (domain := _said(value)) is not None:
            named[plain] = domain
    return next((named[name] for name in wanted if name in named), None)


def _wanted(by: str) -> tuple[str, ...]:
    return tuple(map(_plain, DOMAIN_FIELDS)) if _plain(by) == DOMAIN else (_plain(by),)


@lru_cache(maxsize=4096)
def _plain(name: str) -> str:
    return _FIELD.sub(" ", name.replace(".", "point")).strip().casefold()


def _said(value: JsonValue) -> str | None:
    """The domain that a field names; None for null, for `None` and the like, and for what is no text."""
    if isinstance(value, list) and value:
        value = value[0]
    if not isinstance(value, str):
        return None
    domain = _SPACE.sub(" ", value[: 4 * _LONGEST]).strip(" \"'.,;").casefold()[:_LONGEST]
    return None if domain in _MISSING else domain


@dataclass(frozen=True)
class Sample:
    """What `sample` drew."""

    records: tuple[Record, ...]
    """In an order of which every beginning is balanced: one of each domain, then the second of each, ..."""
    read: int
    """Rows that were personas."""
    bad: int
    """Rows that were none."""
    problems: tuple[str, ...]
    """The first few of these."""
    duplicates: int
    """Near-duplicates that were left out, 0 if they were not looked for."""
    domains: dict[str, int]
    """How many personas of each domain were drawn, in the order of `records`; empty without balancing."""


def sample(
    source: RecordSource | None = None,
    n: int = 1000,
    *,
    column: str | None = None,
    seed: int = 0,
    balance_by: str | None = None,
    similar: Similar | None = None,
    on_progress: Callable[[int], None] | None = None,
) -> Sample:
    """Draw `n` personas at random, or all if there are fewer; the same arguments give the same sample.

    With `balance_by`, as evenly from the domains as they allow: no domain gives two more than another that has more to
    give. If there are more domains than `n`, `n` of them are drawn. The source is read once; at most three times `n`
    rows are held.

    Args:
        source: What to draw from; the personas that ship with the package if None.
        column: Column or key of a row's persona; `persona` or `text` if None.
        n: How many.
        seed: Another one gives another sample.
        balance_by: `domain` (Persona Hub's fields and a few others), or the name of a field; None does not balance.
        similar: Leave near-duplicates out, as `dedup` does; their index needs memory for every row.
        on_progress: Called now and then with how many rows were read.

    Raises:
        InputError: `n` is not positive, a file cannot be read, it holds no persona, or no row has the field.
    """
    if n < 1:
        raise InputError(f"a sample has at least one persona, got n={n}")
    records = Records(source, column=column, on_progress=on_progress)
    seen = NearDuplicates(similar) if similar is not None else None
    drawn = _Balanced(n, seed)
    has_field, names = balance_by is None, dict[str, None]()
    duplicates = 0
    for record in records:
        if seen is not None and seen.admit(record.persona.text) is not None:
            duplicates += 1
            continue
        if balance_by is None:
            drawn.offer(record, "")
            continue
        if not has_field:
            has_field = not set(_wanted(balance_by)).isdisjoint(map(_plain, record.fields))
            names.update((name[:80], None) for name in islice(record.fields, _FIELDS_NAMED - len(names)))
        drawn.offer(record, domain_of(record, balance_by) or NO_DOMAIN)
    records.check()
    if not has_field:
        listed = f"the fields are {', '.join(map(repr, names))}" if names else "there are no other fields"
        raise InputError(
            f"no row has a field for balancing by {balance_by!r}; beside the persona {listed}. Name one of them"
        )
    chosen = list(drawn)
    domains = {} if balance_by is None else dict(Counter(name for name, _ in chosen))
    return Sample(
        tuple(record for _, record in chosen), records.read, records.bad, records.problems, duplicates, domains
    )


class _Balanced:
    """The first `n` rows by their rank within their domain, then by the domain's own key; a row's rank follows from its
    random key.

    Where `n` rows come before a row, as many do when there are more: so rows that are not among the first may be let go
    at any time, and no more than three times `n` are held.
    """

    def __init__(self, n: int, seed: int) -> None:
        self._n, self._seed = n, seed
        self._random = Random(seed)
        self._offered = 0
        self._rows: dict[str, list[tuple[int, int, Record]]] = {}
        """Of each domain: random key, position, row."""
        self.held = 0
        """Rows in memory."""

    def offer(self, record: Record, domain: str) -> None:
        """Keep a row if it may be in the sample."""
        self._offered += 1
        self._rows.setdefault(domain, []).append((self._random.getrandbits(64), self._offered, record))
        self.held += 1
        if self.held >= 3 * self._n:
            kept = self._first()
            self._rows = {}
            for _, _, name, row in kept:
                self._rows.setdefault(name, []).append(row)
            self.held = len(kept)

    def __iter__(self) -> Iterator[tuple[str, Record]]:
        """The sample: domains and rows."""
        return ((name, record) for _, _, name, (_, _, record) in self._first())

    def _first(self) -> list[tuple[int, int, str, tuple[int, int, Record]]]:
        """Rank, the domain's key, its name, and the row."""
        ranked = (
            (rank, key, name, row)
            for name, rows in self._rows.items()
            for key in (self._key(name),)
            for rank, row in enumerate(sorted(rows, key=lambda row: row[:2]))
        )
        return heapq.nsmallest(self._n, ranked, key=lambda each: each[:3])

    def _key(self, domain: str) -> int:
        """Decides which domains are drawn, and the order among those that are."""
        digest = hashlib.blake2b(f"{self._seed}\0{domain}".encode("utf-8", "replace"), digest_size=8).digest()
        return int.from_bytes(digest)
