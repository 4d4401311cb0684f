"""Values survive the way into a journal and back; values that no journal wrote are refused, though SQLite finds them
sound."""

from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from journal_records import change, episode, fill

from refinesynth.errors import StorageError
from refinesynth.journal import Journal, JournalReader
from refinesynth.journal.journal_values import MAX_BYTES, pack, unpack


@given(st.binary(), st.data())
def test_damaged_records_do_not_unpack(records: bytes, data: st.DataObject) -> None:
    packed = pack(records)
    at, byte = data.draw(st.integers(0, len(packed) - 1)), data.draw(st.integers(0, 255))
    changed = packed[:at] + bytes([byte]) + packed[at + 1 :]
    try:
        found = unpack(changed)
    except ValueError:
        return
    # Not every bit of a frame means something; what comes back is right.
    assert found == records


def test_records_that_claim_to_be_nothing_are_not_believed() -> None:
    packed = bytearray(pack(b"x"))
    assert packed[5] == 1  # the size that the frame's header tells
    packed[5] = 0
    with pytest.raises(ValueError, match="claim to have no bytes"):
        unpack(bytes(packed))
    assert unpack(pack(b"")) == b""


def test_records_that_claim_to_be_huge_are_not_believed() -> None:
    import zstandard

    claim = bytearray(zstandard.ZstdCompressor().compress(b"x" * 100_000))
    assert zstandard.frame_content_size(bytes(claim)) == 100_000
    # The size is four bytes after the frame's mark and description.
    claim[5:9] = b"\xff\xff\xff\xff"
    assert zstandard.frame_content_size(bytes(claim)) > MAX_BYTES
    with pytest.raises(ValueError, match="claim"):
        unpack(bytes(claim))


WRONG: list[tuple[str, Callable[[JournalReader], object]]] = [
    ("UPDATE paid SET digest = x'00'", lambda reader: reader.record_of(episode(0))),
    ("UPDATE paid SET answer = 'text'", lambda reader: reader.record_of(episode(0))),
    ("UPDATE paid SET step = 'text'", lambda reader: reader.record_of(episode(0))),
    ("UPDATE paid SET output_tokens = -1", lambda reader: reader.record_of(episode(0))),
    ("UPDATE paid SET cost_usd = 9e999", lambda reader: reader.record_of(episode(0))),
    ("UPDATE paid SET model = CAST(x'ff' AS TEXT)", lambda reader: reader.record_of(episode(0))),
    ("UPDATE paid SET role = x'00'", lambda reader: reader.outstanding()),
    ("UPDATE begun SET idx = 9223372036854775807 WHERE idx = 11", lambda reader: reader.next_index()),
    ("UPDATE begun SET idx = 'text'", lambda reader: reader.next_index()),
    ("UPDATE sums SET requests = 'text'", lambda reader: reader.spent()),
    ("UPDATE sums SET cost_usd = 9e999", lambda reader: reader.spent()),
    ("UPDATE notes SET value = 'text'", lambda reader: reader.totals),
    ("UPDATE entries SET idx = -idx - 1", lambda reader: reader.committed),
    ("UPDATE entries SET idx = 9223372036854775807 WHERE idx = 5", lambda reader: reader.committed),
    ("UPDATE entries SET idx = 9223372036854775807 WHERE idx = 5", lambda reader: list(reader.entries())),
    ("UPDATE entries SET rejected_end = x'00'", lambda reader: reader.committed),
    ("UPDATE entries SET line = 5", lambda reader: reader.entry(0)),
    ("UPDATE held SET records = x'00'", lambda reader: [reader.entry(held) for held in reader.held_indices()]),
    ("UPDATE held SET accepted = 'text'", lambda reader: list(reader.entries())),
    ("UPDATE held SET idx = -idx", lambda reader: reader.held_indices()),
]


@pytest.mark.parametrize(("sql", "question"), WRONG, ids=[sql for sql, _ in WRONG])
async def test_values_that_no_run_wrote_are_refused(
    path: Path, sql: str, question: Callable[[JournalReader], object]
) -> None:
    await fill(path)
    change(path, sql)
    with JournalReader(path) as reader, pytest.raises(StorageError, match="damaged"):
        question(reader)


async def test_a_journal_of_wrong_values_is_not_opened_for_writing(path: Path) -> None:
    await fill(path)
    change(path, "UPDATE entries SET rejected_end = 'text'")
    with pytest.raises(StorageError, match="damaged"):
        Journal(path)
