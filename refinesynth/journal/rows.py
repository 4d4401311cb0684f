"""Values of a journal as rows of its tables, and back; what is read back is checked."""

import math
from typing import Any, TypeAlias

import zstandard

from refinesynth.journal.entry import Entry
from refinesynth.journal.figures import Committed, Outstanding, SpentRow
from refinesynth.journal.paid import Paid
from refinesynth.jsontext import scrub

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
_PAID = (int, str, int, str, int, bytes, str, int, int, int, int, float | None, bytes)
_ENTRY = (int, str, str, int, int, int, bytes)
_HELD = (int, str, str, int, bytes, bytes | None)
_SPENT = (str, str, int, int, int, int, int, float, int)
_OUTSTANDING = (int, str, int, int, str, int)


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


def paid_from_row(row: Row) -> Paid:
    """The completion that a row holds.

    Raises:
        ValueError: No such row was written.
    """
    _check_row(row, _PAID)
    if len(row[5]) != DIGEST_SIZE:
        raise ValueError(f"a digest has {len(row[5])} bytes")
    return Paid(
        index=row[0],
        episode=row[1],
        attempt=row[2],
        role=row[3],
        step=row[4],
        digest=row[5],
        model=row[6],
        input_tokens=row[7],
        cached_tokens=row[8],
        cache_write_tokens=row[9],
        output_tokens=row[10],
        cost_usd=row[11],
        answer=row[12],
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


def committed_from_row(row: Row) -> Entry:
    """The entry that a row of `entries` holds.

    Raises:
        ValueError: No such row was written.
    """
    _check_row(row, _ENTRY)
    return Entry(
        index=row[0],
        id=row[1],
        persona=row[2],
        accepted=bool(row[3]),
        trajectories_end=row[4],
        rejected_end=row[5],
        line=row[6],
    )


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


def held_from_row(row: Row) -> Entry:
    """The entry that a row of `held` holds; the last column may be None where records were not asked for.

    Raises:
        ValueError: No such row was written.
    """
    _check_row(row, _HELD)
    return Entry(
        index=row[0],
        id=row[1],
        persona=row[2],
        accepted=bool(row[3]),
        line=row[4],
        held=None if row[5] is None else unpack(row[5]),
    )


def spent_from_row(row: Row) -> SpentRow:
    """The sums that a row holds.

    Raises:
        ValueError: No such row was written.
    """
    _check_row(row, _SPENT)
    return SpentRow(
        role=row[0],
        model=row[1],
        requests=row[2],
        input_tokens=row[3],
        cached_tokens=row[4],
        cache_write_tokens=row[5],
        output_tokens=row[6],
        cost_usd=row[7],
        unpriced=row[8],
    )


def outstanding_from_row(row: Row) -> Outstanding:
    """An episode that has not ended.

    Raises:
        ValueError: No such row was written.
    """
    _check_row(row, _OUTSTANDING)
    return Outstanding(index=row[0], episode=row[1], requests=row[2], attempt=row[3], role=row[4], step=row[5])


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


def whole_from_row(row: Row) -> int:
    """The number that a row holds.

    Raises:
        ValueError: It is none, or negative.
    """
    _check_row(row, (int,))
    return row[0]


def end_from_row(row: Row) -> Committed:
    """How far the files count, from the last entry's index and ends.

    Raises:
        ValueError: No such row was written.
    """
    _check_row(row, (int, int, int))
    return Committed(row[0] + 1, row[1], row[2])


def persona_from_row(row: Row) -> tuple[int, str]:
    """A committed episode's index and its persona's fingerprint.

    Raises:
        ValueError: No such row was written.
    """
    index, persona = row
    if type(index) is not int or type(persona) is not str:
        raise ValueError(
            f"a {type(index).__name__} and a {type(persona).__name__} stand where a number and text belong"
        )
    return index, persona


def note_from_row(row: Row) -> bytes | None:
    """The value of a note.

    Raises:
        ValueError: No such row was written.
    """
    _check_row(row, (bytes | None,))
    return row[0]


def _tokens(count: int) -> int:
    return min(max(count, 0), _MOST_TOKENS)


def _check_positions(*positions: int) -> None:
    for position in positions:
        if not 0 <= position <= _MOST:
            raise ValueError(f"a position is between 0 and {_MOST}, not {position}")


def _check_size(value: bytes) -> None:
    if len(value) > LARGEST:
        raise ValueError(f"{len(value):,} bytes are too many to be kept; {LARGEST:,} are the most")


def _check_row(row: Row, kinds: tuple[Any, ...]) -> None:
    for value, kind in zip(row, kinds, strict=True):
        if not isinstance(value, kind):
            raise ValueError(f"a {type(value).__name__} stands where a {kind} belongs")
        if kind is int and not 0 <= value <= _MOST:
            raise ValueError(f"{value} stands where a count belongs")
        if isinstance(value, float) and not math.isfinite(value):
            raise ValueError(f"{value} stands where a sum of money belongs")
