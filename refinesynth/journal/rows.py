"""Values of a journal as rows of its tables, and back; what is read back is checked."""

from collections.abc import Callable
from types import GenericAlias
from typing import Annotated, Any, TypeAlias, TypeVar

import zstandard
from pydantic import AfterValidator, Field, TypeAdapter, ValidationError

from refinesynth.journal.values import Committed, Entry, Outstanding, Paid, SpentRow
from refinesynth.text.jsontext import scrub

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

DIGEST_SIZE = 16
"""Bytes of a digest."""

LARGEST = 256 * 1024 * 1024
"""Longest answer, line or records that are kept, in bytes."""

_MOST_TOKENS = 2**32
_MOST = 2**62
_MOST_USD = 1e12


def paid_to_row(paid: Paid) -> Row:
    """The row for a completion. Token counts that no server can mean are cut, and a cost that is no number is unknown.

    Raises:
        ValueError: A position is negative, or the digest has not 16 bytes, or the answer is too long to be kept.
    """
    _check_positions(paid.index, paid.attempt, paid.step)
    if len(paid.digest) != DIGEST_SIZE:
        raise ValueError(f"a digest has {DIGEST_SIZE} bytes, not {len(paid.digest)}")
    _check_size(paid.answer)
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
    """The row for an episode whose records are in the files.

    Raises:
        ValueError: A position or an end is missing or negative, or the line is too long to be kept.
    """
    ends = entry.trajectories_end, entry.rejected_end
    if None in ends:
        raise ValueError(f"episode {entry.index} has one end and not the other: {ends}")
    _check_positions(entry.index, *(end or 0 for end in ends))
    _check_size(entry.line)
    return (entry.index, scrub(entry.id), scrub(entry.persona), int(entry.accepted), *ends, entry.line)


def held_to_row(entry: Entry) -> Row:
    """The row for an episode that is held; its records are not compressed yet.

    Raises:
        ValueError: It has no records, or is too long to be kept.
    """
    if entry.held is None or entry.rejected_end is not None:
        raise ValueError(f"episode {entry.index} is not in the files, and has no records of its own")
    _check_positions(entry.index)
    _check_size(entry.line)
    _check_size(entry.held)
    return (entry.index, scrub(entry.id), scrub(entry.persona), int(entry.accepted), entry.line, entry.held)


def pack(records: bytes) -> bytes:
    """Compress; what is damaged later will not unpack."""
    return zstandard.ZstdCompressor(level=3, write_checksum=True).compress(records)


def unpack(packed: bytes) -> bytes:
    """What `pack` was given.

    Raises:
        ValueError: `packed` is damaged.
    """
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


def _check_positions(*positions: int) -> None:
    for position in positions:
        if not 0 <= position <= _MOST:
            raise ValueError(f"a position is between 0 and {_MOST}, not {position}")


def _check_size(value: bytes) -> None:
    if len(value) > LARGEST:
        raise ValueError(f"{len(value):,} bytes are too many to be kept; {LARGEST:,} are the most")


_T = TypeVar("_T")
_Count = Annotated[int, Field(strict=True, ge=0, le=_MOST)]
_Text = Annotated[str, Field(strict=True)]
_Blob = Annotated[bytes, Field(strict=True)]
_Money = Annotated[float, Field(strict=True, allow_inf_nan=False)]
_Digest = Annotated[bytes, Field(strict=True, min_length=DIGEST_SIZE, max_length=DIGEST_SIZE)]


def _reader(kind: Callable[..., _T], **columns: Any) -> Callable[[Row], _T]:
    """What makes a `kind` of a row with these columns, and raises `ValueError` where no such row was written."""
    names = tuple(columns)
    kinds: Any = GenericAlias(tuple, tuple(columns.values()))
    adapter = TypeAdapter[Row](kinds)

    def read(row: Row) -> _T:
        try:
            values = adapter.validate_python(row)
        except ValidationError as error:
            first = error.errors(include_url=False, include_input=False)[0]
            at = first["loc"][0] if first["loc"] else 0
            name = names[at] if isinstance(at, int) and at < len(names) else at
            raise ValueError(f"{name}: {first['msg']}") from error
        return kind(**dict(zip(names, values, strict=True)))

    return read


def _whole(value: int) -> int:
    return value


def _note(value: bytes | None) -> bytes | None:
    return value


def _persona(index: int, persona: str) -> tuple[int, str]:
    return index, persona


def _end(last: int, trajectories: int, rejected: int) -> Committed:
    return Committed(last + 1, trajectories, rejected)


def _unpacked(records: bytes | None) -> bytes | None:
    return None if records is None else unpack(records)


paid_from_row = _reader(
    Paid,
    index=_Count,
    episode=_Text,
    attempt=_Count,
    role=_Text,
    step=_Count,
    digest=_Digest,
    model=_Text,
    input_tokens=_Count,
    cached_tokens=_Count,
    cache_write_tokens=_Count,
    output_tokens=_Count,
    cost_usd=Annotated[float | None, Field(strict=True, allow_inf_nan=False)],
    answer=_Blob,
)
"""The completion that a row of `paid` holds."""
committed_from_row = _reader(
    Entry,
    index=_Count,
    id=_Text,
    persona=_Text,
    accepted=bool,
    trajectories_end=_Count,
    rejected_end=_Count,
    line=_Blob,
)
"""The entry that a row of `entries` holds."""
held_from_row = _reader(
    Entry,
    index=_Count,
    id=_Text,
    persona=_Text,
    accepted=bool,
    line=_Blob,
    held=Annotated[bytes | None, Field(strict=True), AfterValidator(_unpacked)],
)
"""The entry that a row of `held` holds; its records are None where they were not asked for."""
spent_from_row = _reader(
    SpentRow,
    role=_Text,
    model=_Text,
    requests=_Count,
    input_tokens=_Count,
    cached_tokens=_Count,
    cache_write_tokens=_Count,
    output_tokens=_Count,
    cost_usd=_Money,
    unpriced=_Count,
)
"""The sums that a row holds."""
outstanding_from_row = _reader(
    Outstanding, index=_Count, episode=_Text, requests=_Count, attempt=_Count, role=_Text, step=_Count, cost_usd=_Money
)
"""An episode that has not ended."""
end_from_row = _reader(_end, last=_Count, trajectories=_Count, rejected=_Count)
"""How far the files count, from the last entry's index and ends."""
persona_from_row = _reader(_persona, index=Annotated[int, Field(strict=True)], persona=_Text)
"""A committed episode's index and its persona's fingerprint."""
whole_from_row = _reader(_whole, value=_Count)
"""The number that a row holds."""
note_from_row = _reader(_note, value=Annotated[bytes | None, Field(strict=True)])
"""The value of a note."""
