"""Values of a journal as rows of its tables, and back.

Rows are checked when they are made and when they are read; a ValueError says what is wrong.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Annotated, Any, TypeAlias, TypeVar

import zstandard
from pydantic import Field, TypeAdapter, ValidationError

from refinesynth.journal.journal_values import (
    DIGEST_SIZE,
    LARGEST,
    MOST,
    Blob,
    Committed,
    Count,
    Entry,
    Outstanding,
    Paid,
    SpentRow,
    Text,
)
from refinesynth.text.json_reader import scrub

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


_Value = TypeVar("_Value")
_FIELDS = {"idx": "index", "records": "held"}
"""Columns whose field has another name."""


def _reader(kind: type[_Value], columns: str) -> Callable[[Row], _Value]:
    """Return a function from a row with these columns to a `kind`, which raises `ValueError` for a row that was never
    written.
    """
    names = [_FIELDS.get(column, column) for column in columns.split(", ")]
    adapter = TypeAdapter(kind)

    def read(row: Row) -> _Value:
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
