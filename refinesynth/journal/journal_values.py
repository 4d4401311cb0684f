"""Values of a journal: paid completions, ends of episodes, and sums over the run; the rows of its tables, and back.

Rows are checked when they are made and when they are read; a ValueError says what is wrong.
"""

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, fields, replace
from typing import Annotated, Any, TypeAlias, TypeVar

import zstandard
from pydantic import Field, TypeAdapter, ValidationError

from refinesynth.text.json_reader import scrub

ESTIMATED = " (tokens estimated)"
"""Suffix of a model's name where the server did not report the tokens of a completion."""
_UNUSED = re.compile(r" \((first|second) of two, not used\)$")
"""Suffix of a model's name in journals of versions that could send a request twice: the unused answer."""


def model_of(name: str) -> str:
    """Return the model's name without the journal's suffixes."""
    return _UNUSED.sub("", name).removesuffix(ESTIMATED)


DIGEST_SIZE = 16
"""Bytes of a digest."""

MOST = 2**62
"""Largest number that is kept."""

LARGEST = 256 * 1024 * 1024
"""Longest answer, line or records that are kept, in bytes."""

# What a journal may hold; values that come from elsewhere are checked when their rows are made.
Count: TypeAlias = Annotated[int, Field(strict=True, ge=0, le=MOST)]
Text: TypeAlias = Annotated[str, Field(strict=True)]
Blob: TypeAlias = Annotated[bytes, Field(strict=True, max_length=LARGEST)]
Usd: TypeAlias = Annotated[float, Field(strict=True, allow_inf_nan=False)]


@dataclass(frozen=True, slots=True)
class Committed:
    """Part of the run's files that counts."""

    count: int
    """Episodes whose records are in the files: those with an index below this."""
    trajectories_end: int
    """Bytes of trajectories.jsonl that count."""
    rejected_end: int
    """Bytes of rejected.jsonl that count."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SpentRow:
    """Usage of one model by one role."""

    role: Text
    model: Text
    requests: Count
    input_tokens: Count
    cached_tokens: Count
    cache_write_tokens: Count
    output_tokens: Count
    cost_usd: Usd
    """US dollars, of the requests whose price is known."""
    unpriced: Count
    """Requests whose price is unknown."""

    def __add__(self, other: "SpentRow") -> "SpentRow":
        sums = [one.name for one in fields(self) if one.name not in {"role", "model"}]
        return replace(self, **{name: getattr(self, name) + getattr(other, name) for name in sums})


@dataclass(frozen=True, slots=True, kw_only=True)
class Outstanding:
    """An episode that has begun and not ended: in flight while the run goes on, to be continued afterwards."""

    index: Count
    episode: Text
    requests: Count
    """Paid completions."""
    attempt: Count
    """Scripts and drafts begun, at the last completion; role and step are the last completion's too."""
    role: Text
    step: Count
    cost_usd: Usd = 0.0
    """US dollars, of the completions whose price is known."""

    def __add__(self, other: "Outstanding") -> "Outstanding":
        last = max(self, other, key=lambda one: (one.attempt, one.step))
        return replace(last, requests=self.requests + other.requests, cost_usd=self.cost_usd + other.cost_usd)


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """A finished episode. It is held until every earlier episode has ended, and committed once its records are in the
    files.
    """

    index: Count
    """The persona's position in the run's source, from 0."""
    id: Text
    persona: Text
    """Fingerprint of the persona."""
    accepted: bool
    """True if it gave a trajectory."""
    line: Blob
    """Counts, as JSON."""
    held: Blob | None = None
    """Records, as long as they are in no file; None once they are, or where they were not read."""
    trajectories_end: Count | None = None
    """Size of trajectories.jsonl after this episode, in bytes; None while it is held."""
    rejected_end: Count | None = None
    """Size of rejected.jsonl after this episode, in bytes; None while it is held."""

    @property
    def is_held(self) -> bool:
        """True if its records are still to be written to the run's files."""
        return self.trajectories_end is None


@dataclass(frozen=True, slots=True, kw_only=True)
class Paid:
    """A completion with its answer and cost."""

    episode: Text
    index: Count
    """The persona's position in the run's source, from 0."""
    attempt: Count
    """Scripts and drafts begun so far in the episode."""
    role: Text
    step: Count
    """Completions that this role of this episode had before."""
    digest: Annotated[bytes, Field(strict=True, min_length=DIGEST_SIZE, max_length=DIGEST_SIZE)]
    """Digest of the request, 16 bytes."""
    model: Text
    """Model, as its backend calls it."""
    answer: Blob
    input_tokens: Count
    cached_tokens: Count
    cache_write_tokens: Count
    output_tokens: Count
    cost_usd: Usd | None
    """US dollars; None where the price is unknown."""


class Recorded:
    """Snapshot of the paid completions of one episode, in the order of their commits."""

    def __init__(self, paid: Sequence[Paid] = ()) -> None:
        self._paid = {(one.role, one.step, one.digest): one for one in paid}
        self._unused: dict[bytes, dict[tuple[str, int], Paid]] = {}
        for one in self._paid.values():
            self._unused.setdefault(one.digest, {})[one.role, one.step] = one

    def __iter__(self) -> Iterator[Paid]:
        return iter(self._paid.values())

    def __len__(self) -> int:
        return len(self._paid)

    def get(self, role: str, step: int, digest: bytes) -> Paid | None:
        """Return the answer to this request at this place; None if it was not made."""
        return self._paid.get((role, step, digest))

    def take(self, role: str, step: int, digest: bytes) -> Paid | None:
        """Return the answer to this request at this place, or else the first unused one at any other place.

        Each is handed out once. For playing under other rules, where the same request may come earlier or later.
        """
        left = self._unused.get(digest)
        if not left:
            return None
        place = (role, step)
        return left.pop(place if place in left else next(iter(left)))


Row: TypeAlias = tuple[Any, ...]

PAID_COLUMNS = (
    "idx, episode, attempt, role, step, digest, model, input_tokens, cached_tokens, cache_write_tokens, output_tokens, "
    "cost_usd, answer"
)
ENTRY_COLUMNS = "idx, id, persona, accepted, trajectories_end, rejected_end, line"
HELD_COLUMNS = "idx, id, persona, accepted, line, records"
SUMS_COLUMNS = (
    "role, model, requests, input_tokens, cached_tokens, cache_write_tokens, output_tokens, cost_usd, unpriced"
)

_MOST_TOKENS = 2**32
_MOST_USD = 1e12


def paid_to_row(paid: Paid) -> Row:
    """Return the row of a completion. Impossible token counts are cut, and a cost that is no number is unknown."""
    # Not by reading the row, as below: this is done for every completion.
    places = (paid.index, paid.attempt, paid.step)
    if min(places) < 0 or max(places) > MOST or len(paid.digest) != DIGEST_SIZE or len(paid.answer) > LARGEST:
        raise ValueError(f"a completion at {places}, with a digest of {len(paid.digest)} bytes, cannot be kept")
    cost = paid.cost_usd
    return (
        paid.index,
        scrub(paid.episode),
        paid.attempt,
        scrub(paid.role),
        paid.step,
        paid.digest,
        # A server may call itself anything.
        scrub(paid.model),
        _tokens(paid.input_tokens),
        _tokens(paid.cached_tokens),
        _tokens(paid.cache_write_tokens),
        _tokens(paid.output_tokens),
        # False for what is no number, too.
        cost if cost is not None and abs(cost) < _MOST_USD else None,
        paid.answer,
    )


def committed_to_row(entry: Entry) -> Row:
    """Return the row of an episode whose records are in the files."""
    ends = entry.trajectories_end, entry.rejected_end
    if None in ends:
        raise ValueError(f"episode {entry.index} has one end and not the other: {ends}")
    row = (entry.index, scrub(entry.id), scrub(entry.persona), int(entry.accepted), *ends, entry.line)
    committed_from_row(row)
    return row


def held_to_row(entry: Entry) -> Row:
    """Return the row of a held episode, with its records uncompressed."""
    if entry.held is None or entry.rejected_end is not None:
        raise ValueError(f"episode {entry.index} is not in the files, and has no records of its own")
    row = (entry.index, scrub(entry.id), scrub(entry.persona), int(entry.accepted), entry.line, entry.held)
    _packed_from_row(row)
    return row


def pack(records: bytes) -> bytes:
    """Compress, with a checksum."""
    return zstandard.ZstdCompressor(level=3, write_checksum=True).compress(records)


def unpack(packed: bytes) -> bytes:
    """Return what `pack` was given."""
    try:
        size = zstandard.frame_content_size(packed)
        # A damaged length is not believed.
        if not 0 <= size <= LARGEST:
            raise ValueError(f"records claim to have {size:,} bytes")
        # Of a frame that claims to hold nothing, the library looks at nothing more.
        if size == 0 and packed != pack(b""):
            raise ValueError("records claim to have no bytes, and there are some")
        return zstandard.ZstdDecompressor().decompress(packed)
    except zstandard.ZstdError as error:
        raise ValueError(f"records cannot be decompressed: {error}") from error


def _tokens(count: int) -> int:
    return min(max(count, 0), _MOST_TOKENS)


_Row_Value = TypeVar("_Row_Value")
_FIELDS = {"idx": "index", "records": "held"}
"""Columns whose field has another name."""


def _reader(kind: type[_Row_Value], columns: str) -> Callable[[Row], _Row_Value]:
    """Return a function from a row with these columns to a `kind`, which raises `ValueError` for a row that was never
    written.
    """
    names = [_FIELDS.get(column, column) for column in columns.split(", ")]
    adapter = TypeAdapter(kind)

    def read(row: Row) -> _Row_Value:
        try:
            return adapter.validate_python(dict(zip(names, row, strict=True)))
        except ValidationError as error:
            first = error.errors(include_url=False, include_input=False)[0]
            raise ValueError(f"{'.'.join(map(str, first['loc']))}: {first['msg']}") from error

    return read


paid_from_row = _reader(Paid, PAID_COLUMNS)
committed_from_row = _reader(Entry, ENTRY_COLUMNS)
spent_from_row = _reader(SpentRow, SUMS_COLUMNS)
outstanding_from_row = _reader(Outstanding, "idx, episode, requests, attempt, role, step, cost_usd")
_packed_from_row = _reader(Entry, HELD_COLUMNS)


def held_from_row(row: Row) -> Entry:
    """Return the entry of a row of `held`; its records are None where they were not read."""
    entry = _packed_from_row(row)
    return entry if entry.held is None else replace(entry, held=unpack(entry.held))


_ENDS = TypeAdapter(tuple[Count, Count, Count])


def end_from_row(row: Row) -> Committed:
    """Return how far the files count, from the last entry's index and ends."""
    last, *ends = _ENDS.validate_python(row)
    return Committed(last + 1, *ends)


persona_from_row: Callable[[Row], tuple[int, str]] = TypeAdapter(
    tuple[Annotated[int, Field(strict=True)], Text]
).validate_python
"""Index of a committed episode and fingerprint of its persona."""
whole_from_row: Callable[[Row], tuple[int]] = TypeAdapter(tuple[Count]).validate_python
note_from_row: Callable[[Row], tuple[str, bytes | None]] = TypeAdapter(tuple[Text, Blob | None]).validate_python
