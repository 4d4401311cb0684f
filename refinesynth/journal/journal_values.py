"""Values of a journal (paid completions, ended episodes, sums over the run), and their conversion to and from rows.

Rows are validated when they are written and read; a ValueError describes an invalid one.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, fields, replace
from typing import Annotated, Any, TypeAlias, TypeVar

import zstandard
from pydantic import Field, TypeAdapter, ValidationError

from refinesynth.text.formatting import scrub

ESTIMATED = " (tokens estimated)"
"""Suffix of a model's name if the tokens of its completion are estimated."""


def model_of(name: str) -> str:
    """Return the model's name without the journal's suffix."""
    return name.removesuffix(ESTIMATED)


DIGEST_SIZE = 16
"""Bytes of a digest."""

MAX_NUMBER = 2**62
"""Largest number in a journal."""

MAX_BYTES = 256 * 1024 * 1024
"""Longest answer, line or records in a journal, in bytes."""

# Values of a journal. `PaidCompletion` and `Entry` do not validate themselves; the conversion to rows does.
Count: TypeAlias = Annotated[int, Field(strict=True, ge=0, le=MAX_NUMBER)]
Text: TypeAlias = Annotated[str, Field(strict=True)]
Blob: TypeAlias = Annotated[bytes, Field(strict=True, max_length=MAX_BYTES)]
Usd: TypeAlias = Annotated[float, Field(strict=True, allow_inf_nan=False)]


@dataclass(frozen=True, slots=True)
class Committed:
    count: int
    """Number of episodes whose records are in the files; their indices are below this."""
    trajectories_end: int
    """Committed bytes of trajectories.jsonl."""
    rejected_end: int
    """Committed bytes of rejected.jsonl."""


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
    """US dollars of the requests with a known price."""
    unpriced: Count
    """Requests without a known price."""

    def __add__(self, other: "SpentRow") -> "SpentRow":
        names = [column.name for column in fields(self) if column.name not in {"role", "model"}]
        return replace(self, **{name: getattr(self, name) + getattr(other, name) for name in names})


@dataclass(frozen=True, slots=True, kw_only=True)
class Outstanding:
    """Episode that has begun and not ended: in flight in a running run, else to be continued."""

    index: Count
    episode: Text
    requests: Count
    attempt: Count
    """Scripts and drafts begun at the last completion, which role and step also describe."""
    role: Text
    step: Count
    cost_usd: Usd = 0.0
    """US dollars of the completions with a known price."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """Ended episode: held until every earlier episode has ended, and committed when its records are in the files."""

    index: Count
    """The persona's position in the run's source, from 0."""
    id: Text
    persona: Text
    """Fingerprint of the persona."""
    accepted: bool
    """True if the episode produced a trajectory."""
    line: Blob
    """Counts of the episode, as JSON."""
    held: Blob | None = None
    """Records that are not in the files yet; None if they are, or if they were not read from the journal."""
    trajectories_end: Count | None = None
    """Size of trajectories.jsonl after this episode, in bytes; None while the episode is held."""
    rejected_end: Count | None = None
    """Size of rejected.jsonl after this episode, in bytes; None while the episode is held."""

    @property
    def is_held(self) -> bool:
        """True if the records are not in the run's files yet."""
        return self.trajectories_end is None


@dataclass(frozen=True, slots=True, kw_only=True)
class PaidCompletion:
    """Paid completion with its answer and cost."""

    episode: Text
    index: Count
    """The persona's position in the run's source, from 0."""
    attempt: Count
    """Scripts and drafts begun so far in the episode."""
    role: Text
    step: Count
    """Number of earlier completions of this role in this episode."""
    digest: Annotated[bytes, Field(strict=True, min_length=DIGEST_SIZE, max_length=DIGEST_SIZE)]
    """Digest of the request, 16 bytes."""
    model: Text
    """Model string of the backend, with `ESTIMATED` if the tokens are estimated."""
    answer: Blob
    input_tokens: Count
    cached_tokens: Count
    cache_write_tokens: Count
    output_tokens: Count
    cost_usd: Usd | None
    """US dollars; None if the price is unknown."""


class EpisodeRecord:
    """Snapshot of the paid completions of one episode, in the order of their commits."""

    def __init__(self, paid: Sequence[PaidCompletion] = ()) -> None:
        self._paid = {(completion.role, completion.step, completion.digest): completion for completion in paid}

    def __iter__(self) -> Iterator[PaidCompletion]:
        return iter(self._paid.values())

    def __len__(self) -> int:
        return len(self._paid)

    def get(self, role: str, step: int, digest: bytes) -> PaidCompletion | None:
        """Return the completion of this request at this role and step; None if there is none."""
        return self._paid.get((role, step, digest))


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

_MAX_TOKENS = 2**32
_MAX_USD = 1e12


def paid_to_row(paid: PaidCompletion) -> Row:
    """Return the row of a completion. Impossible token counts are clamped, and an impossible cost becomes unknown."""
    # Without the pydantic validation of the functions below, for speed: every completion passes here.
    numbers = (paid.index, paid.attempt, paid.step)
    if min(numbers) < 0 or max(numbers) > MAX_NUMBER or len(paid.digest) != DIGEST_SIZE or len(paid.answer) > MAX_BYTES:
        raise ValueError(f"a completion at {numbers}, with a digest of {len(paid.digest)} bytes, cannot be kept")
    cost = paid.cost_usd
    return (
        paid.index,
        scrub(paid.episode),
        paid.attempt,
        scrub(paid.role),
        paid.step,
        paid.digest,
        # May hold lone surrogates.
        scrub(paid.model),
        _tokens(paid.input_tokens),
        _tokens(paid.cached_tokens),
        _tokens(paid.cache_write_tokens),
        _tokens(paid.output_tokens),
        # The comparison is False for NaN, too.
        cost if cost is not None and abs(cost) < _MAX_USD else None,
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
    """Compress with a checksum."""
    return zstandard.ZstdCompressor(level=3, write_checksum=True).compress(records)


def unpack(packed: bytes) -> bytes:
    """Decompress the output of `pack`. Raises ValueError: the data is damaged or too long."""
    try:
        size = zstandard.frame_content_size(packed)
        # A damaged frame may claim any size.
        if not 0 <= size <= MAX_BYTES:
            raise ValueError(f"records claim to have {size:,} bytes")
        # zstandard does not read the rest of a frame that claims 0 bytes.
        if size == 0 and packed != pack(b""):
            raise ValueError("records claim to have no bytes, and there are some")
        return zstandard.ZstdDecompressor().decompress(packed)
    except zstandard.ZstdError as error:
        raise ValueError(f"records cannot be decompressed: {error}") from error


def _tokens(count: int) -> int:
    return min(max(count, 0), _MAX_TOKENS)


_Row_Value = TypeVar("_Row_Value")
_FIELD_OF_COLUMN = {"idx": "index", "records": "held"}
"""Column to a field of another name."""


def _row_reader(kind: type[_Row_Value], columns: str) -> Callable[[Row], _Row_Value]:
    """Return a function from a row with these columns to a `kind`; it raises `ValueError` for an invalid row."""
    names = [_FIELD_OF_COLUMN.get(column, column) for column in columns.split(", ")]
    adapter = TypeAdapter(kind)

    def read(row: Row) -> _Row_Value:
        try:
            return adapter.validate_python(dict(zip(names, row, strict=True)))
        except ValidationError as error:
            first = error.errors(include_url=False, include_input=False)[0]
            raise ValueError(f"{'.'.join(map(str, first['loc']))}: {first['msg']}") from error

    return read


paid_from_row = _row_reader(PaidCompletion, PAID_COLUMNS)
committed_from_row = _row_reader(Entry, ENTRY_COLUMNS)
spent_from_row = _row_reader(SpentRow, SUMS_COLUMNS)
outstanding_from_row = _row_reader(Outstanding, "idx, episode, requests, attempt, role, step, cost_usd")
_packed_from_row = _row_reader(Entry, HELD_COLUMNS)


def held_from_row(row: Row) -> Entry:
    """Return the entry of a row of `held`; its records are None if the query left them out."""
    entry = _packed_from_row(row)
    return entry if entry.held is None else replace(entry, held=unpack(entry.held))


numbers_from_row: Callable[[Row], tuple[int, ...]] = TypeAdapter(tuple[Count, ...]).validate_python
persona_from_row: Callable[[Row], tuple[int, str]] = TypeAdapter(tuple[Count, Text]).validate_python
"""Converter of a row to the index of a committed episode and the fingerprint of its persona."""
note_from_row: Callable[[Row], tuple[str, bytes | None]] = TypeAdapter(tuple[Text, Blob | None]).validate_python
