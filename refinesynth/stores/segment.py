"""Segments of a run: the content of an object in the store, and what a folder has that is in none yet."""

import re
from collections.abc import Generator, Iterator
from contextlib import closing
from dataclasses import dataclass, field, replace
from itertools import islice
from pathlib import Path
from typing import Annotated, Any, Literal, Self

import orjson
from pydantic import BaseModel, Field, JsonValue, ValidationError

from refinesynth.errors import StorageError
from refinesynth.files.output_folder import Holder
from refinesynth.journal import Committed, Entry, JournalReader, Paid
from refinesynth.journal.rows import committed_from_row, committed_to_row, pack, paid_from_row, paid_to_row, unpack
from refinesynth.run import RunFolder, worker_journals
from refinesynth.run.jsonl import last_line_end
from refinesynth.trajectory import explain

NAME = re.compile(r"segment-(\d{9})\.json\.zst")
"""Name of a segment's object; other objects are ignored."""

FILES = ("trajectories", "rejected", "events")
"""JSONL files of a run, without their suffix: fields of a part and of ends."""

_Count = Annotated[int, Field(ge=0, le=2**62)]
_DIGEST, _ANSWER, _LINE = 5, 12, 6
"""Columns of bytes: a completion's digest and answer, an episode's line."""


def name_of(number: int) -> str:
    """Return the name of a segment's object; names sort like numbers."""
    return f"segment-{number:09}.json.zst"


class Ends(BaseModel, frozen=True, extra="forbid"):
    """Part of a run that is in the store."""

    paid: dict[str, _Count] = {}
    """Name of a journal, in the folder of the segment, to its last row."""
    entries: _Count = 0
    trajectories: _Count = 0
    """Bytes of trajectories.jsonl; the others likewise."""
    rejected: _Count = 0
    events: _Count = 0


@dataclass(frozen=True, kw_only=True)
class Part:
    """Content of a run between two ends."""

    ends: Ends
    paid: tuple[Paid, ...] = ()
    entries: tuple[Entry, ...] = ()
    trajectories: bytes = b""
    rejected: bytes = b""
    events: bytes = b""
    size: int = field(default=0, compare=False)
    full: bool = field(default=False, compare=False)

    def __add__(self, later: "Part") -> "Part":
        summed = ("paid", "entries", *FILES, "size")
        return replace(later, **{name: getattr(self, name) + getattr(later, name) for name in summed})


class Segment(BaseModel, frozen=True, extra="forbid"):
    """A part of a run, and who sealed it. Everything in it is text: a run writes UTF-8."""

    schema_version: Literal[1] = 1
    number: int = Field(ge=1)
    writer: str = Field(max_length=64)
    """Random name of the work folder."""
    holder: Holder
    """Process that sealed it."""
    ended: bool = False
    """True if that process had ended its work with it."""
    config: dict[str, JsonValue]
    notes: dict[str, str | None]
    paid: list[list[Any]]
    entries: list[list[Any]]
    trajectories: str
    rejected: str
    events: str
    ends: Ends

    @classmethod
    def of(cls, part: Part, **more: Any) -> Self:
        paid, entries = (
            [_texts(row) for row in rows] for rows in (map(paid_to_row, part.paid), map(committed_to_row, part.entries))
        )
        files = {name: getattr(part, name).decode() for name in FILES}
        return cls(paid=paid, entries=entries, **files, ends=part.ends, **more)

    def part(self) -> Part:
        """Return the sealed part. Raises ValueError: it holds what no run has written."""
        paid = tuple(paid_from_row(_bytes(row, _DIGEST, _ANSWER)) for row in self.paid)
        entries = tuple(committed_from_row(_bytes(row, _LINE)) for row in self.entries)
        files = {name: getattr(self, name).encode() for name in FILES}
        return Part(paid=paid, entries=entries, **files, ends=self.ends)

    def to_bytes(self) -> bytes:
        return pack(orjson.dumps(self.model_dump(mode="json")))

    @classmethod
    def from_bytes(cls, data: bytes, name: str) -> Self:
        """Read what `to_bytes` wrote. Raises StorageError: it is something else, or too large."""
        try:
            return cls.model_validate(orjson.loads(unpack(data)))
        except ValidationError as error:
            problem = explain(error)
        except ValueError as error:
            problem = str(error)
        raise StorageError(f"{name} is damaged, no segment of a run, or one of a newer refinesynth: {problem}")


def _texts(row: tuple[Any, ...]) -> list[Any]:
    return [
        (value.hex() if at == _DIGEST else value.decode()) if isinstance(value, bytes) else value
        for at, value in enumerate(row)
    ]


def _bytes(row: list[Any], *columns: int) -> tuple[Any, ...]:
    found = list(row)
    for at in columns:
        text = str(found[at]) if at < len(found) else ""
        found[at : at + 1] = [bytes.fromhex(text) if at == _DIGEST else text.encode()]
    return tuple(found)


_ENOUGH = 8 * 1024 * 1024
"""Bytes from which a segment is full; one more row or episode may go in."""
_ROWS = 200
_EPISODES = 64


def next_part(path: Path, ends: Ends) -> Part:
    """Return what the run in `path` has beyond `ends`, up to a few megabytes; a `full` part has more behind it.

    No finished episode comes in an earlier part than a completion of it.
    """
    whole = Part(ends=ends)
    with closing(_pieces(path, ends)) as pieces:
        for part in pieces:
            whole = whole + part
            if whole.size >= _ENOUGH:
                return replace(whole, full=True)
    return whole


def _pieces(path: Path, ends: Ends) -> Generator[Part]:
    folder = RunFolder(path, RunFolder.open(path).config)
    with JournalReader.read(folder.journal_file) as journal:
        # Looked at before the completions, of which those of the episodes are there then.
        counted = journal.committed
        for found in (folder.journal_file, *worker_journals(path)):
            for part in _paid(found, ends):
                ends = part.ends
                yield part
        for part in _entries(folder, journal, counted, ends):
            ends = part.ends
            yield part
    yield from _events(folder.events_file, ends)


def _paid(path: Path, ends: Ends) -> Iterator[Part]:
    row = ends.paid.get(path.name, 0)
    with JournalReader.read(path) as journal:
        while found := journal.paid_after(row, most=_ROWS):
            row = found[-1][0]
            ends = ends.model_copy(update={"paid": {**ends.paid, path.name: row}})
            paid = tuple(one for _, one in found)
            yield Part(ends=ends, paid=paid, size=sum(len(one.answer) + _ROWS for one in paid))


def _entries(folder: RunFolder, journal: JournalReader, counted: Committed, ends: Ends) -> Iterator[Part]:
    entries = islice(journal.entries(ends.entries), max(0, counted.count - ends.entries))
    while some := tuple(islice(entries, _EPISODES)):
        accepted, refused = some[-1].trajectories_end or 0, some[-1].rejected_end or 0
        trajectories = _read(folder.trajectories_file, ends.trajectories, accepted)
        rejected = _read(folder.rejected_file, ends.rejected, refused)
        ends = ends.model_copy(update={"entries": some[-1].index + 1, "trajectories": accepted, "rejected": refused})
        size = len(trajectories) + len(rejected) + sum(len(entry.line) for entry in some)
        yield Part(ends=ends, entries=some, trajectories=trajectories, rejected=rejected, size=size)


def _events(path: Path, ends: Ends) -> Iterator[Part]:
    end = last_line_end(path)
    while ends.events < end:
        block = _read(path, ends.events, min(end, ends.events + _ENOUGH))
        # Up to the end of a line; one that is longer than a block goes whole.
        block = block[: block.rfind(b"\n") + 1] or _read(path, ends.events, end)
        ends = ends.model_copy(update={"events": ends.events + len(block)})
        yield Part(ends=ends, events=block, size=len(block))


def _read(path: Path, start: int, end: int) -> bytes:
    if end <= start:
        return b""
    with path.open("rb") as file:
        file.seek(start)
        return file.read(end - start)
