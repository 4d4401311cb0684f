"""Random samples of personas, balanced over domains, in one pass and with memory bounded by the sample's size."""

import hashlib
import heapq
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import islice
from random import Random

from refinesynth.errors import InputError
from refinesynth.personas.persona_files import PersonaRecord
from refinesynth.personas.source import Records, RecordSource

NO_DOMAIN = "(none)"
"""Group of rows without a value of the field."""

_MAX_NAMED_FIELDS = 20


@dataclass(frozen=True)
class Sample:
    records: tuple[PersonaRecord, ...]
    """Drawn rows, interleaved by domain: one of each, then the second of each, and so on."""
    read: int
    bad: int
    problems: tuple[str, ...]
    domains: dict[str, int]
    """Number of personas drawn for each value of the field, in the order of `records`; empty without balancing."""


def sample(
    source: RecordSource | None = None,
    n: int = 1000,
    *,
    column: str | None = None,
    seed: int = 0,
    balance_by: str | None = None,
    on_progress: Callable[[int], None] | None = None,
) -> Sample:
    """Draw `n` personas at random, or all if there are fewer. The same arguments give the same sample.

    `balance_by` represents the values of a field as evenly as their sizes allow; of more than `n` values, it draws `n`. The source is
    read once, and memory holds at most 3 `n` rows.

    Args:
        source: Personas to read; the ones that ship with the package if None.
        n: Size of the sample.
        column: Column or key of a row's persona; `persona` or `text` if None.
        seed: Seed of the sample.
        balance_by: Name of a field; None does not balance.
        on_progress: Called now and then with the number of rows read.

    Raises:
        InputError: `n` is not positive, a file cannot be read, it holds no persona, or no row has the field.
    """
    if n < 1:
        raise InputError(f"a sample has at least one persona, got n={n}")
    records = Records(source, column=column, on_progress=on_progress)
    drawn = _BalancedDraw(n, seed)
    has_field, names = balance_by is None, dict[str, None]()
    for record in records:
        if balance_by is None:
            drawn.offer(record, "")
            continue
        has_field = has_field or balance_by in record.fields
        names.update((name[:80], None) for name in islice(record.fields, _MAX_NAMED_FIELDS - len(names)))
        value = record.fields.get(balance_by)
        drawn.offer(record, NO_DOMAIN if value in (None, "") else str(value))
    records.check()
    if not has_field:
        available = f"the fields are {', '.join(map(repr, names))}" if names else "there are no other fields"
        raise InputError(
            f"no row has a field for balancing by {balance_by!r}; beside the persona {available}. Name one of them"
        )
    chosen = list(drawn)
    domains = {} if balance_by is None else dict(Counter(name for name, _ in chosen))
    return Sample(tuple(record for _, record in chosen), records.read, records.bad, records.problems, domains)


class _BalancedDraw:
    """First `n` rows by rank within their domain and key of the domain; random keys of the rows give the ranks.

    A row behind `n` others can be dropped at any time, which limits memory to 3 `n` rows.
    """

    def __init__(self, n: int, seed: int) -> None:
        self._n, self._seed = n, seed
        self._random = Random(seed)
        self._offered = 0
        self._rows: dict[str, list[tuple[int, int, PersonaRecord]]] = {}
        self.row_count = 0

    def offer(self, record: PersonaRecord, domain: str) -> None:
        self._offered += 1
        self._rows.setdefault(domain, []).append((self._random.getrandbits(64), self._offered, record))
        self.row_count += 1
        if self.row_count >= 3 * self._n:
            first_rows = self._first_rows()
            self._rows = {}
            for _, _, name, row in first_rows:
                self._rows.setdefault(name, []).append(row)
            self.row_count = len(first_rows)

    def __iter__(self) -> Iterator[tuple[str, PersonaRecord]]:
        return ((name, record) for _, _, name, (_, _, record) in self._first_rows())

    def _first_rows(self) -> list[tuple[int, int, str, tuple[int, int, PersonaRecord]]]:
        ranked = (
            (rank, key, name, row)
            for name, rows in self._rows.items()
            for key in (self._key(name),)
            for rank, row in enumerate(sorted(rows, key=lambda row: row[:2]))
        )
        return heapq.nsmallest(self._n, ranked, key=lambda item: item[:3])

    def _key(self, domain: str) -> int:
        digest = hashlib.blake2b(f"{self._seed}\0{domain}".encode("utf-8", "replace"), digest_size=8).digest()
        return int.from_bytes(digest)
