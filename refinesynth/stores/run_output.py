"""Output of a run: a folder, or a work folder whose content is uploaded to a store during the run."""

import logging
import os
import secrets
import socket
import time
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from itertools import pairwise
from pathlib import Path
from shutil import rmtree

import anyio
from anyio.abc import TaskGroup
from anyio.to_thread import run_sync
from pydantic import BaseModel, ValidationError

from refinesynth.async_contexts import background_tasks
from refinesynth.errors import InputError, RunFolderError, StorageError
from refinesynth.files.atomic_write import atomic_write, open_to_append
from refinesynth.files.output_folder import FolderLock, Holder, is_url, move_aside
from refinesynth.journal import Journal, JournalReader
from refinesynth.journal.reader import TOTALS
from refinesynth.run import EpisodeLine, RunConfig, RunFolder, RunStats
from refinesynth.run.jsonl import cut
from refinesynth.run.run_folder import CONFIG, JOURNAL, folder_errors, holds_run
from refinesynth.stores.store import (
    FILES,
    Ends,
    Part,
    RunStore,
    Segment,
    SegmentExists,
    SegmentInfo,
    cache_of,
    first_line,
    next_part,
)
from refinesynth.trajectory import explain


class Stored(BaseModel, frozen=True, extra="forbid"):
    """State of a work folder relative to its store, saved in stored.json in the folder's parent."""

    url: str
    number: int = 0
    """Number of the last segment known to be in the store; 0 without one."""
    writer: str | None = None
    """Random name of this folder in its segments; None for a read-only copy."""
    ends: Ends = Ends()
    """Part of the folder that is in the store."""
    ended: bool = False
    """True if segment `number` was the last one of its process."""
    written: datetime | None = None
    """Time of segment `number` in the store; None in a work folder."""

    @classmethod
    def load(cls, cache: Path, url: str) -> "Stored":
        """Read the state of a place; empty for a new place. Raises StorageError: it is damaged, or of another store."""
        path = cache / "stored.json"
        try:
            stored = cls.model_validate_json(path.read_bytes()) if path.exists() else cls(url=url)
        except ValidationError as error:
            raise StorageError(f"{str(path)!r} is damaged ({explain(error)}); move {str(cache)!r} aside") from error
        if stored.url != url:
            raise StorageError(f"{str(cache)!r} belongs to {stored.url!r}; move it aside to work on {url!r}")
        return stored

    def save(self, cache: Path) -> None:
        """Write the state atomically. Raises StorageError: it cannot be written."""
        with folder_errors("write", path := cache / "stored.json"), atomic_write(path) as file:
            file.write(self.model_dump_json().encode())


def run_folder_in(cache: Path) -> Path:
    return cache / "run"


def make_folder(path: Path) -> None:
    with folder_errors("make the folder", path):
        path.mkdir(parents=True, exist_ok=True)


async def fetch(url: str) -> Path:
    """Copy the run at this URL into the cache of this machine, and return the folder; only new segments are read.

    The run's work folder stays unchanged; another process may write the run meanwhile.

    Raises:
        InputError: The URL is no URL of a store, or the store has no run there.
        StorageError: The store cannot be read, or holds content that no run writes.
    """
    store = RunStore(url)
    cache = cache_of(store.url) / "copy"
    make_folder(cache)
    with FolderLock(cache, work="copy of the same run"):
        stored = Stored.load(cache, store.url)
        segments = await store.after(max(0, stored.number - 1))
        first = segments[0] if segments else None
        if stored.number and (first is None or first != (stored.number, stored.written or first.written)):
            # The store holds another run than the copy.
            rmtree(run_folder_in(cache), ignore_errors=True)
            stored, segments = Stored(url=store.url), await store.after(0)
        if not segments:
            raise RunFolderError(f"there is no run at {store.url!r}: it has no segment; see docs/stores.md")
        stored = await add_segments(store, cache, stored, [new for new in segments if new.number > stored.number])
        stored.model_copy(update={"written": segments[-1].written}).save(cache)
    return run_folder_in(cache)


async def add_segments(store: RunStore, cache: Path, stored: Stored, segments: Sequence[SegmentInfo]) -> Stored:
    """Add segments to the run folder of a place; return its new state, which the caller saves.

    Idempotent: after an interruption, the same segments can be added again. Raises StorageError: the segments do not
    continue the folder, or hold content that no run writes.
    """
    if not segments:
        return stored
    path, ends, ended, config = run_folder_in(cache), stored.ends, stored.ended, None
    make_folder(path)
    with Journal(path / JOURNAL) as journal:
        async for segment in store.read_all(info.number for info in segments):
            try:
                config = RunConfig.model_validate(segment.config)
                await _add(path, segment, segment.part(), ends, journal)
            except ValueError as error:
                raise StorageError(
                    f"segment {segment.number} in {store.url!r} holds what no run has written: {first_line(error)}"
                ) from error
            ends, ended = segment.ends, segment.ended
        if config is not None:
            totals = RunStats().with_lines(RunFolder(path, config).episodes())
            await journal.keep_note(TOTALS, totals.to_json())
        rows = {JOURNAL: journal.last_row()}
    if config is not None:
        config.save(path / CONFIG)
    ends = ends.model_copy(update={"paid": rows})
    return stored.model_copy(update={"number": segments[-1].number, "ends": ends, "ended": ended})


async def _add(path: Path, segment: Segment, part: Part, previous: Ends, journal: Journal) -> None:
    _check(part, previous)
    for name in FILES:
        file, data, start = path / f"{name}.jsonl", getattr(part, name), getattr(previous, name)
        cut(file, end=start)
        with folder_errors("write", file), open_to_append(file) as opened:
            if opened.seek(0, 2) != start:
                raise StorageError(f"{str(file)!r} was changed by something else; move {str(path)!r} aside")
            opened.write(data)
    if journal.committed.count > previous.entries:
        # Left by an interrupted attempt.
        journal.forget_from(previous.entries, totals=None)
    await journal.keep(*part.paid)
    await journal.enter(part.entries)
    for name, value in segment.notes.items():
        if name != TOTALS and value is not None:
            await journal.keep_note(name, value.encode())


def _check(part: Part, previous: Ends) -> None:
    """Raise ValueError if the part does not continue `previous` up to its own `ends`."""
    ends = [(previous.entries, previous.trajectories, previous.rejected)]
    ends += [(entry.index + 1, entry.trajectories_end or 0, entry.rejected_end or 0) for entry in part.entries]
    lines = [EpisodeLine.model_validate_json(entry.line).index for entry in part.entries]
    after = part.ends
    if (
        [count for count, *_ in ends] != [*range(previous.entries, previous.entries + len(ends))]
        or any(earlier[1] > later[1] or earlier[2] > later[2] for earlier, later in pairwise(ends))
        or lines != [entry.index for entry in part.entries]
        or ends[-1] != (after.entries, after.trajectories, after.rejected)
        or any(getattr(previous, name) + len(getattr(part, name)) != getattr(after, name) for name in FILES)
    ):
        raise ValueError("it does not go on where the one before it ends")


UPLOAD_INTERVAL = 30.0
"""Seconds between two segments: the work at risk while the store is reachable. Without new content, an empty segment
shows that the process lives."""
_RETRY_S = 2.0
"""Seconds between two attempts to upload at the end."""

LEASE = 3 * UPLOAD_INTERVAL
"""Seconds without a new segment after which a process without a final segment counts as dead."""
FINISH_RETRY_S = 60.0
"""Seconds that a finished run retries a failing store."""
_FAILURE_RETRY_S, _CANCEL_TIMEOUT_S = 10.0, 1.0
_POLL_S = 5.0

_LOG = logging.getLogger("refinesynth.stores")


class TakenOver(RunFolderError):
    """Another process continues the run."""


class Uploads:
    """Uploads of one process; content that cannot be uploaded stays in the folder for a later attempt.

    Methods that upload raise `TakenOver` if another process continues the run, and `StorageError` if the store or the
    folder is unusable.
    """

    def __init__(self, store: RunStore, cache: Path, stored: Stored) -> None:
        self.stored = stored
        self._store = store
        self._cache = cache
        self._path = run_folder_in(cache)
        self._holder = Holder(pid=os.getpid(), host=socket.gethostname(), since=datetime.now(UTC))
        self._is_failing = False
        self._tasks: TaskGroup | None = None
        self._has_begun = False

    async def upload(self, *, ended: bool = False) -> None:
        """Upload all new content, or an empty segment; with `ended`, as the last segment of this process."""
        has_more = True
        while has_more:
            part = await run_sync(next_part, self._path, self.stored.ends)
            added = await self._add(part, ended=ended and not part.full)
            has_more = part.full or not added

    @asynccontextmanager
    async def running(self) -> AsyncGenerator[None, None]:
        """Upload new content regularly within the context, from `begin` on, and the remainder at its end."""
        failure: Exception | None = None
        try:
            try:
                async with background_tasks() as self._tasks:
                    yield
            except Exception as error:  # noqa: BLE001 - raised below, after the last upload
                failure = error
            if failure is None:
                await self.finish(retry_s=FINISH_RETRY_S)
        except anyio.get_cancelled_exc_class():
            if self._has_begun:
                with anyio.move_on_after(_CANCEL_TIMEOUT_S, shield=True) as scope:
                    await self._try_to_finish(warn, retry_s=0)
                if scope.cancelled_caught:
                    warn(self.describe_remainder())
            raise
        if failure is not None:
            if self._has_begun and not isinstance(failure, TakenOver):
                await self._try_to_finish(failure.add_note, retry_s=_FAILURE_RETRY_S)
            raise failure

    async def begin(self) -> None:
        """Start the uploads of an existing run.

        The first segment, before any paid request, proves that the store is writable and claims the run.
        """
        await self.upload()
        self._has_begun = True
        if self._tasks is not None:
            self._tasks.start_soon(self.upload_regularly)

    async def _try_to_finish(self, report: Callable[[str], None], *, retry_s: float) -> None:
        try:
            await self.finish(retry_s=retry_s)
        except (RunFolderError, StorageError) as error:
            report(str(error))

    async def upload_regularly(self) -> None:
        """Upload regularly until cancelled, also while the store is down."""
        while True:
            await anyio.sleep(UPLOAD_INTERVAL)
            try:
                await self.upload()
            except StorageError as error:
                if not self._is_failing:
                    warn(f"{error}; the run goes on, and what is new goes up when that works again")
                self._is_failing = True
            else:
                if self._is_failing:
                    warn(f"{self._store} takes what is new again; all is there")
                self._is_failing = False

    async def finish(self, *, retry_s: float) -> None:
        """Upload all new content; retry for `retry_s` seconds."""
        deadline = time.monotonic() + retry_s
        while True:
            try:
                if self.stored.ended and not (await run_sync(next_part, self._path, self.stored.ends)).size:
                    return None
                return await self.upload(ended=True)
            except StorageError as error:
                if time.monotonic() + _RETRY_S > deadline:
                    raise StorageError(f"{error}. {self.describe_remainder()}") from error
            await anyio.sleep(_RETRY_S)

    def describe_remainder(self) -> str:
        """Return a sentence about the content that is only in the folder."""
        return f"what is not in {self._store.url!r} yet is in {str(self._path)!r}, and the same command on this machine adds it"

    async def _add(self, part: Part, *, ended: bool) -> bool:
        """Add the next segment; return False if an earlier attempt of this folder, without a response, had added it."""
        number, added = self.stored.number + 1, part
        try:
            await self._store.add(number, await run_sync(self._segment_bytes, part, number, ended))
        except SegmentExists as error:
            added = existing = await self._store.read(number)
            ended = existing.ended
            if existing.writer != self.stored.writer:
                raise TakenOver(
                    f"another process goes on with the run at {self._store.url!r}: {existing.holder}. This one has stopped, and has "
                    f"lost nothing: what is not in the store, and no longer part of the run, is in {str(self._path)!r}"
                ) from error
        self.stored = self.stored.model_copy(update={"number": number, "ends": added.ends, "ended": ended})
        self.stored.save(self._cache)
        return added is part

    def _segment_bytes(self, part: Part, number: int, ended: bool) -> bytes:
        with JournalReader(self._path / JOURNAL) as journal:
            notes = {name: None if value is None else value.decode() for name, value in journal.notes().items()}
        return Segment.of(
            part,
            number=number,
            writer=self.stored.writer,
            holder=self._holder,
            ended=ended,
            config=RunConfig.load(self._path / "config.json").model_dump(mode="json"),
            notes=notes,
        ).to_bytes()


def warn(text: str) -> None:
    """Log a warning about a store, with its event for events.jsonl."""
    _LOG.warning("%s", text, extra={"facts": {"event": "store"}})


@asynccontextmanager
async def opened_output(
    output: Path | str | None, *, fresh: bool = False
) -> AsyncGenerator[tuple[Path | None, Uploads | None], None]:
    """Yield the folder of a run (None for the next free one), and for a URL the uploads to its store.

    For a URL, the folder begins with the content of the store; at the end, the store has all content of the folder.

    Raises:
        InputError: The URL is no URL of a store, `fresh` is given with a URL, or another process writes the run.
        StorageError: The store is unusable, or content could not be uploaded and is only in the work folder.
    """
    if not isinstance(output, str) or not is_url(output):
        yield None if output is None else Path(output), None
        return
    store = RunStore(output)
    if fresh:
        raise InputError(f"nothing in a store is written over, so {store.url!r} cannot begin anew; give another URL")
    cache = cache_of(store.url)
    make_folder(cache)
    with FolderLock(cache):
        uploads = Uploads(store, cache, await _up_to_date(store, cache))
        async with uploads.running():
            yield run_folder_in(cache), uploads


def work_folder(url: str) -> Path:
    """Return this machine's work folder of the run at a URL."""
    return run_folder_in(cache_of(url))


async def _up_to_date(store: RunStore, cache: Path) -> Stored:
    """Bring the work folder up to date with the store; content that only the folder has stays, or is moved aside."""
    stored = Stored.load(cache, store.url)
    segments = await store.after(max(0, stored.number - 1))
    if stored.number and (not segments or segments[0].number != stored.number):
        raise RunFolderError(
            f"{store.url!r} has lost segment {stored.number}, which was written from here; put it back, or give another URL. What "
            f"was written is in {str(run_folder_in(cache))!r}"
        )
    newer = [info for info in segments if info.number > stored.number]
    while newer and stored.writer is not None and (added := await store.read(newer[0].number)).writer == stored.writer:
        # This folder's own segment; the process was killed before it saved the state.
        stored = stored.model_copy(update={"number": newer.pop(0).number, "ends": added.ends, "ended": added.ended})
    if segments:
        await _wait_for_writer(store, segments[-1], own_writer=stored.writer)
    if not _can_continue(cache, stored, newer=bool(newer)):
        if holds_run(run_folder_in(cache)):
            moved_to = move_aside(run_folder_in(cache))
            warn(f"{store} is not what this machine had of it; that is kept in {str(moved_to)!r}")
        stored, newer = Stored(url=store.url), await store.after(0)
    stored = await add_segments(store, cache, stored, newer)
    stored = stored.model_copy(update={"writer": stored.writer or secrets.token_hex(8)})
    stored.save(cache)
    return stored


def _can_continue(cache: Path, stored: Stored, *, newer: bool) -> bool:
    """Return True if the folder has all its uploads, and, if the store has newer segments, nothing else."""
    path, ends = run_folder_in(cache), stored.ends
    if not holds_run(path) or not (path / JOURNAL).exists():
        return stored.writer is None and stored.number == 0
    with JournalReader(path / JOURNAL) as journal:
        is_complete = stored.writer is not None and journal.last_row() >= ends.paid.get(JOURNAL, 0)
    return is_complete and not (newer and next_part(path, ends).size)


async def _wait_for_writer(store: RunStore, last: SegmentInfo, *, own_writer: str | None) -> None:
    """Wait until the writer of the last segment counts as dead. Raises RunFolderError: it is alive."""
    segment = await store.read(last.number)
    if segment.ended or segment.writer == own_writer:
        return
    # The age of the segment would compare the store's clock with ours.
    warn(f"{segment.holder} may be writing {store}; looks for {LEASE:.0f} s whether it lives")
    deadline = time.monotonic() + LEASE
    while time.monotonic() < deadline:
        await anyio.sleep(min(_POLL_S, max(0.0, deadline - time.monotonic())))
        if await store.after(last.number):
            raise RunFolderError(
                f"{store.url!r} is being written by another run: {segment.holder}. Wait until it ends, end it, or give another URL"
            )
    warn(
        f"goes on where {segment.holder} was at {last.written:%Y-%m-%d %H:%M:%S} UTC; what it paid for since then never came "
        f"to {store} and may be paid for again",
    )
