"""Segments of one run in an object store. Only this module imports `obstore`, and only for a URL."""

import re
from collections.abc import AsyncGenerator, Callable, Generator, Iterable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from functools import partial
from hashlib import blake2b
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, NamedTuple, Self, TypeVar, TypeVarTuple, Unpack

import anyio
import orjson
from anyio.to_thread import run_sync
from pydantic import BaseModel, Field, JsonValue, ValidationError

from refinesynth.errors import ConfigurationError, StorageError
from refinesynth.files.output_folder import Holder, cache_folder
from refinesynth.journal import Committed, Entry, JournalReader, PaidCompletion
from refinesynth.journal.journal_values import (
    MAX_BYTES,
    committed_from_row,
    committed_to_row,
    pack,
    paid_from_row,
    paid_to_row,
    unpack,
)
from refinesynth.lazy_imports import require
from refinesynth.run import RunFolder
from refinesynth.run.jsonl import last_line_end
from refinesynth.trajectory import explain

if TYPE_CHECKING:
    from obstore.store import ObjectStore


NAME = re.compile(r"segment-(\d{9})\.json\.zst")
"""Name of a segment's object; objects with other names are ignored."""

FILES = ("trajectories", "rejected", "events")
"""JSONL files of a run without their suffix, which are fields of `Part` and `Ends`."""

_Count = Annotated[int, Field(ge=0, le=2**62)]
_DIGEST_COLUMN, _ANSWER_COLUMN, _LINE_COLUMN = 5, 12, 6
"""Columns with bytes: digest and answer of a completion, line of an episode."""


def name_of(number: int) -> str:
    """Return the name of a segment's object; names sort in the order of the numbers."""
    return f"segment-{number:09}.json.zst"


class Ends(BaseModel, frozen=True, extra="forbid"):
    """Part of a run that is in the store."""

    paid: dict[str, _Count] = {}
    """File name of a journal in the writer's folder to its last row."""
    entries: _Count = 0
    trajectories: _Count = 0
    """Bytes of trajectories.jsonl; `rejected` and `events` likewise."""
    rejected: _Count = 0
    events: _Count = 0


@dataclass(frozen=True, kw_only=True)
class Part:
    """Content of a run between two `Ends`."""

    ends: Ends
    paid: tuple[PaidCompletion, ...] = ()
    entries: tuple[Entry, ...] = ()
    trajectories: bytes = b""
    rejected: bytes = b""
    events: bytes = b""
    size: int = field(default=0, compare=False)
    full: bool = field(default=False, compare=False)

    def __add__(self, later: "Part") -> "Part":
        names = ("paid", "entries", *FILES, "size")
        return replace(later, **{name: getattr(self, name) + getattr(later, name) for name in names})


class Segment(BaseModel, frozen=True, extra="forbid"):
    """Part of a run with the process that sealed it, as text: a run writes UTF-8."""

    schema_version: Literal[1] = 1
    number: int = Field(ge=1)
    writer: str = Field(max_length=64)
    """Random name of the work folder."""
    holder: Holder
    """Process that sealed it."""
    ended: bool = False
    """True for the last segment of that process."""
    config: dict[str, JsonValue]
    notes: dict[str, str | None]
    paid: list[list[Any]]
    entries: list[list[Any]]
    trajectories: str
    rejected: str
    events: str
    ends: Ends

    @classmethod
    def of(cls, part: Part, **fields: Any) -> Self:
        paid, entries = (
            [_dump(row) for row in rows] for rows in (map(paid_to_row, part.paid), map(committed_to_row, part.entries))
        )
        files = {name: getattr(part, name).decode() for name in FILES}
        return cls(paid=paid, entries=entries, **files, ends=part.ends, **fields)

    def part(self) -> Part:
        """Return the sealed part. Raises ValueError: its rows are invalid."""
        paid = tuple(paid_from_row(_load(row, _DIGEST_COLUMN, _ANSWER_COLUMN)) for row in self.paid)
        entries = tuple(committed_from_row(_load(row, _LINE_COLUMN)) for row in self.entries)
        files = {name: getattr(self, name).encode() for name in FILES}
        return Part(paid=paid, entries=entries, **files, ends=self.ends)

    def to_bytes(self) -> bytes:
        return pack(orjson.dumps(self.model_dump(mode="json")))

    @classmethod
    def from_bytes(cls, data: bytes, name: str) -> Self:
        """Parse the output of `to_bytes`. Raises StorageError: it is no segment, or too large."""
        try:
            return cls.model_validate(orjson.loads(unpack(data)))
        except ValidationError as error:
            problem = explain(error)
        except ValueError as error:
            problem = str(error)
        raise StorageError(f"{name} is damaged, no segment of a run, or one of a newer refinesynth: {problem}")


def _dump(row: tuple[Any, ...]) -> list[Any]:
    return [
        (value.hex() if column == _DIGEST_COLUMN else value.decode()) if isinstance(value, bytes) else value
        for column, value in enumerate(row)
    ]


def _load(row: list[Any], *columns: int) -> tuple[Any, ...]:
    values = list(row)
    for column in columns:
        text = str(values[column]) if column < len(values) else ""
        values[column : column + 1] = [bytes.fromhex(text) if column == _DIGEST_COLUMN else text.encode()]
    return tuple(values)


_FULL_BYTES = 8 * 1024 * 1024
"""Bytes from which a segment is full; its last page of rows, episodes or events may exceed them."""
_PAGE_ROWS = 200
_ROW_BYTES = 200
"""Size of a completion without its answer, about."""
_PAGE_EPISODES = 64


def next_part(path: Path, ends: Ends) -> Part:
    """Return the next content of the run in `path` beyond `ends`; a part is `full` from 8 MiB on, and more may follow.

    An ended episode comes in the same part as its last completion, or in a later one.
    """
    collected = Part(ends=ends)
    with closing(_parts(path, ends)) as parts:
        for part in parts:
            collected = collected + part
            if collected.size >= _FULL_BYTES:
                return replace(collected, full=True)
    return collected


def _parts(path: Path, ends: Ends) -> Generator[Part]:
    folder = RunFolder(path, RunFolder.open(path).config)
    with JournalReader(folder.journal_file) as journal:
        # Read before the completions: those of the committed episodes then exist.
        counted = journal.committed
        for part in _paid_parts(folder.journal_file, ends):
            ends = part.ends
            yield part
        for part in _entry_parts(folder, journal, counted, ends):
            ends = part.ends
            yield part
    yield from _event_parts(folder.events_file, ends)


def _paid_parts(path: Path, ends: Ends) -> Iterator[Part]:
    row = ends.paid.get(path.name, 0)
    with JournalReader(path) as journal:
        while page := journal.paid_after(row, limit=_PAGE_ROWS):
            row = page[-1][0]
            ends = ends.model_copy(update={"paid": {**ends.paid, path.name: row}})
            paid = tuple(completion for _, completion in page)
            yield Part(ends=ends, paid=paid, size=sum(len(completion.answer) + _ROW_BYTES for completion in paid))


def _entry_parts(folder: RunFolder, journal: JournalReader, counted: Committed, ends: Ends) -> Iterator[Part]:
    entries = islice(journal.entries(ends.entries), max(0, counted.count - ends.entries))
    while page := tuple(islice(entries, _PAGE_EPISODES)):
        accepted, refused = page[-1].trajectories_end or 0, page[-1].rejected_end or 0
        trajectories = _read_range(folder.trajectories_file, ends.trajectories, accepted)
        rejected = _read_range(folder.rejected_file, ends.rejected, refused)
        ends = ends.model_copy(update={"entries": page[-1].index + 1, "trajectories": accepted, "rejected": refused})
        size = len(trajectories) + len(rejected) + sum(len(entry.line) for entry in page)
        yield Part(ends=ends, entries=page, trajectories=trajectories, rejected=rejected, size=size)


def _event_parts(path: Path, ends: Ends) -> Iterator[Part]:
    end = last_line_end(path)
    while ends.events < end:
        block = _read_range(path, ends.events, min(end, ends.events + _FULL_BYTES))
        # Up to the end of a line; for a line longer than a block, the whole remainder.
        block = block[: block.rfind(b"\n") + 1] or _read_range(path, ends.events, end)
        ends = ends.model_copy(update={"events": ends.events + len(block)})
        yield Part(ends=ends, events=block, size=len(block))


def _read_range(path: Path, start: int, end: int) -> bytes:
    if end <= start:
        return b""
    with path.open("rb") as file:
        file.seek(start)
        return file.read(end - start)


_Args = TypeVarTuple("_Args")
_Result = TypeVar("_Result")

_MAX_READS = 16


class SegmentInfo(NamedTuple):
    """Number and time of a segment in the store."""

    number: int
    written: datetime


class SegmentExists(StorageError):
    """A segment with this number exists."""


class RunStore:
    """Reader of a run's segments, which also adds new ones; it changes and deletes nothing.

    Every method raises `StorageError` if the store is unreachable or refuses the request.
    """

    def __init__(self, url: str) -> None:
        """Open a store. Raises ConfigurationError: the URL is invalid or holds a key, or obstore is not installed."""
        require("obstore", "stores")
        from obstore.exceptions import BaseError
        from obstore.store import from_url

        self.url = url.rstrip("/")
        if re.search(r"://[^/]*:[^/]*@", url):
            raise ConfigurationError(
                "a URL with a key in it would be written down with it; keys belong in the environment"
            )
        # Few retries: the run retries uploads itself.
        retry = {"max_retries": 2, "retry_timeout": timedelta(seconds=15)}
        local = {"mkdir": True} if url.startswith("file:") else {"retry_config": retry}
        try:
            self._store: ObjectStore = from_url(self.url, **local)  # pyright: ignore[reportCallIssue, reportArgumentType] - one of its overloads
        except (BaseError, ValueError, TypeError) as error:
            raise ConfigurationError(
                f"cannot read {url!r} as the place of a run ({first_line(error)}); expected s3://BUCKET/NAME, gs://BUCKET/NAME or "
                f"az://CONTAINER/NAME, with keys and endpoints in the environment; see docs/stores.md"
            ) from error

    def __str__(self) -> str:
        return self.url

    async def after(self, number: int) -> list[SegmentInfo]:
        """Return the segments after `number`, in order. Raises StorageError: one is missing."""
        import obstore

        with self._storage_errors("read"):
            pages = obstore.list(self._store, offset=name_of(number))  # pyright: ignore[reportUnknownMemberType] - for arrow
            objects = await _in_thread(pages.collect)
        segments = sorted(
            SegmentInfo(int(name[1]), item["last_modified"])
            for item in objects
            if (name := NAME.fullmatch(item["path"]))
        )
        if [info.number for info in segments] != [*range(number + 1, number + 1 + len(segments))]:
            raise StorageError(
                f"of the segments in {self.url!r} behind number {number} some are missing; there are {len(segments)}"
            )
        return segments

    async def read(self, number: int) -> Segment:
        """Read one segment. Raises StorageError: it is missing, too large or damaged."""
        import obstore

        name = f"{self.url}/{name_of(number)}"
        with self._storage_errors("read"):
            result = await _in_thread(obstore.get, self._store, name_of(number))
            if result.meta["size"] > MAX_BYTES:
                raise StorageError(
                    f"{name} has {result.meta['size']:,} bytes, and {MAX_BYTES:,} are the most that is read"
                )
            data = bytes(await _in_thread(result.bytes))
        segment = Segment.from_bytes(data, name)
        if segment.number != number:
            raise StorageError(f"{name} holds segment {segment.number}; put the original back")
        return segment

    async def read_all(self, numbers: Iterable[int]) -> AsyncGenerator[Segment, None]:
        """Yield segments in this order; read 16 at once. Raises StorageError: one is missing, too large or damaged."""
        results: dict[int, Segment | StorageError] = {}

        async def read(number: int) -> None:
            try:
                results[number] = await self.read(number)
            except StorageError as error:
                results[number] = error

        remaining = iter(numbers)
        while numbers_read := tuple(islice(remaining, _MAX_READS)):
            async with anyio.create_task_group() as tasks:
                for number in numbers_read:
                    tasks.start_soon(read, number)
            for number in numbers_read:
                if isinstance(segment := results.pop(number), StorageError):
                    raise segment
                yield segment

    async def add(self, number: int, data: bytes) -> None:
        """Write a segment. Raises SegmentExists: it exists, from another process or an attempt without a response."""
        import obstore

        with self._storage_errors("write"):
            put = partial(obstore.put, mode="create", use_multipart=False)
            await _in_thread(put, self._store, name_of(number), data)

    @contextmanager
    def _storage_errors(self, operation: str) -> Generator[None]:
        from obstore.exceptions import AlreadyExistsError, BaseError

        try:
            yield
        except AlreadyExistsError as error:
            raise SegmentExists(f"cannot {operation} {self.url!r}: {first_line(error)}") from error
        except (BaseError, OSError) as error:
            keys = _KEYS.get(self.url.partition("://")[0])
            check = f". If the bucket is there, check {keys} in the environment" if keys else ""
            raise StorageError(f"cannot {operation} {self.url!r}: {first_line(error)}{check}") from error


async def _in_thread(call: Callable[[Unpack[_Args]], _Result], *arguments: *_Args) -> _Result:
    """Call obstore in a thread: its own asynchronous functions panic if the process exits during a call."""
    return await run_sync(call, *arguments, abandon_on_cancel=True)


_KEYS = {
    "s3": "AWS_REGION, AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY",
    "gs": "GOOGLE_APPLICATION_CREDENTIALS",
    "az": "AZURE_STORAGE_ACCOUNT_NAME and AZURE_STORAGE_ACCOUNT_KEY",
}


def first_line(error: BaseException) -> str:
    """Return the first line of an error's message, at most 400 characters."""
    return str(error).strip().partition("\n")[0][:400]


def cache_of(url: str) -> Path:
    """Return the local cache folder for the run at this URL, the parent of its run folder and its copy."""
    url = url.rstrip("/")
    readable = re.sub(r"[^A-Za-z0-9]+", "-", url)[-60:].strip("-")
    return cache_folder() / "stores" / f"{readable}-{blake2b(url.encode(), digest_size=6).hexdigest()}"
