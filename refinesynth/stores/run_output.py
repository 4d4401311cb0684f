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

from refinesynth.client.background_tasks import background_tasks
from refinesynth.errors import InputError, RunFolderError, StorageError
from refinesynth.files.atomic_write import atomic_write, open_to_append
from refinesynth.files.output_folder import FolderLock, Holder, is_url, move_aside
from refinesynth.journal import Journal, JournalReader
from refinesynth.journal.reader import TOTALS
from refinesynth.run import EpisodeLine, RunConfig, RunFolder, RunStats
from refinesynth.run.jsonl import cut
from refinesynth.run.run_folder import CONFIG, JOURNAL, holds_run, usable
from refinesynth.stores.store import (
    FILES,
    AlreadyThere,
    Ends,
    Listed,
    Part,
    RunStore,
    Segment,
    first_line,
    next_part,
    place_of,
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

    @classmethod
    def load(cls, place: Path, url: str) -> "Stored":
        """Read the state of a place; empty for a new place. Raises StorageError: it is damaged, or of another store."""
        path = place / "stored.json"
        try:
            found = cls.model_validate_json(path.read_bytes()) if path.exists() else cls(url=url)
        except ValidationError as error:
            raise StorageError(f"{str(path)!r} is damaged ({explain(error)}); move {str(place)!r} aside") from error
        if found.url != url:
            raise StorageError(f"{str(place)!r} belongs to {found.url!r}; move it aside to work on {url!r}")
        return found

    def save(self, place: Path) -> None:
        """Write the state atomically. Raises StorageError: it cannot be written."""
        with usable("write", path := place / "stored.json"), atomic_write(path) as file:
            file.write(self.model_dump_json().encode())


def folder_in(place: Path) -> Path:
    return place / "run"


def make(place: Path) -> None:
    with usable("make the folder", place):
        place.mkdir(parents=True, exist_ok=True)


async def fetch(url: str) -> Path:
    """Copy the run at this URL into the cache of this machine, and return the folder; only new segments are read.

    The run's work folder stays unchanged; another process may write the run meanwhile.

    Raises:
        InputError: The URL is no URL of a store, or the store has no run there.
        StorageError: The store cannot be read, or holds content that no run writes.
    """
    store = RunStore(url)
    place = place_of(store.url) / "copy"
    make(place)
    with FolderLock(place, work="copy of the same run"):
        stored = Stored.load(place, store.url)
        listed = await store.after(max(0, stored.number - 1))
        if stored.number and (not listed or listed[0].number != stored.number):
            # The store holds another run than the copy.
            rmtree(folder_in(place), ignore_errors=True)
            stored, listed = Stored(url=store.url), await store.after(0)
        if not listed:
            raise RunFolderError(f"there is no run at {store.url!r}: it has no segment; see docs/stores.md")
        stored = await take_in(store, place, stored, [one for one in listed if one.number > stored.number])
        stored.save(place)
    return folder_in(place)


async def take_in(store: RunStore, place: Path, stored: Stored, listed: Sequence[Listed]) -> Stored:
    """Add segments to the run folder of a place; return its new state, which the caller saves.

    Idempotent: after an interruption, the same segments can be added again. Raises StorageError: the segments do not
    continue the folder, or hold content that no run writes.
    """
    if not listed:
        return stored
    path, ends, ended, config = folder_in(place), stored.ends, stored.ended, None
    make(path)
    with Journal(path / JOURNAL) as journal:
        async for segment in store.read_all(one.number for one in listed):
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
    return stored.model_copy(update={"number": listed[-1].number, "ends": ends, "ended": ended})


async def _add(path: Path, segment: Segment, part: Part, before: Ends, journal: Journal) -> None:
    _check(part, before)
    for name in FILES:
        file, data, start = path / f"{name}.jsonl", getattr(part, name), getattr(before, name)
        cut(file, end=start)
        with usable("write", file), open_to_append(file) as opened:
            if opened.seek(0, 2) != start:
                raise StorageError(f"{str(file)!r} was changed by something else; move {str(path)!r} aside")
            opened.write(data)
    if journal.committed.count > before.entries:
        # Left by an interrupted attempt.
        journal.forget_from(before.entries, totals=None)
    await journal.keep(*part.paid)
    await journal.enter(part.entries)
    for name, value in segment.notes.items():
        if name != TOTALS and value is not None:
            await journal.keep_note(name, value.encode())


def _check(part: Part, before: Ends) -> None:
    """Raise ValueError if the part does not continue `before` up to its own `ends`."""
    ends = [(before.entries, before.trajectories, before.rejected)]
    ends += [(entry.index + 1, entry.trajectories_end or 0, entry.rejected_end or 0) for entry in part.entries]
    lines = [EpisodeLine.model_validate_json(entry.line).index for entry in part.entries]
    after = part.ends
    if (
        [count for count, *_ in ends] != [*range(before.entries, before.entries + len(ends))]
        or any(earlier[1] > later[1] or earlier[2] > later[2] for earlier, later in pairwise(ends))
        or lines != [entry.index for entry in part.entries]
        or ends[-1] != (after.entries, after.trajectories, after.rejected)
        or any(getattr(before, name) + len(getattr(part, name)) != getattr(after, name) for name in FILES)
    ):
        raise ValueError("it does not go on where the one before it ends")


EVERY = 30.0
"""Seconds between two segments: the work at risk while the store is reachable. Without new content, an empty segment
shows that the process lives."""
BEHIND = 600.0
"""Seconds that the store may lag behind before no new episode begins."""
_AGAIN = 2.0
"""Seconds between two attempts to upload at the end."""

LEASE = 3 * EVERY
"""Seconds without a new segment after which a process without a final segment counts as dead."""
AT_THE_END = 60.0
"""Seconds that a finished run retries a failing store."""
_AFTER_A_FAILURE, _AFTER_CTRL_C = 10.0, 1.0
_LOOK_EVERY = 5.0

_LOG = logging.getLogger("refinesynth.stores")


class TakenOver(RunFolderError):
    """Another process continues the run."""


class Uploads:
    """Uploads of one process; content that cannot be uploaded stays in the folder for a later attempt.

    Methods that upload raise `TakenOver` if another process continues the run, and `StorageError` if the store or the
    folder is unusable.
    """

    def __init__(self, store: RunStore, place: Path, stored: Stored) -> None:
        self.stored = stored
        self._store = store
        self._place = place
        self._path = folder_in(place)
        self._holder = Holder(pid=os.getpid(), host=socket.gethostname(), since=datetime.now(UTC))
        self._all_up = time.monotonic()
        self._failing = False
        self._tasks: TaskGroup | None = None
        self._begun = False

    def has_room(self) -> bool:
        """Return True while the store lags less than `BEHIND` seconds."""
        return time.monotonic() - self._all_up < BEHIND

    async def seal(self, *, ended: bool = False) -> None:
        """Upload all new content, or an empty segment; with `ended`, as the last segment of this process."""
        began = time.monotonic()
        more = True
        while more:
            part = await run_sync(next_part, self._path, self.stored.ends)
            added = await self._add(part, ended=ended and not part.full)
            more = part.full or not added
        self._all_up = began

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
                await self.finish(within=AT_THE_END)
        except anyio.get_cancelled_exc_class():
            if self._begun:
                with anyio.move_on_after(_AFTER_CTRL_C, shield=True) as soon:
                    await self._try_to_finish(warn, within=0)
                if soon.cancelled_caught:
                    warn(self.left())
            raise
        if failure is not None:
            if self._begun and not isinstance(failure, TakenOver):
                await self._try_to_finish(failure.add_note, within=_AFTER_A_FAILURE)
            raise failure

    async def begin(self, wake: Callable[[], None]) -> None:
        """Start the uploads of an existing run; call `wake` when the store has caught up.

        The first segment, before any paid request, proves that the store is writable and claims the run.
        """
        await self.seal()
        self._begun = True
        if self._tasks is not None:
            self._tasks.start_soon(self.keep_up, wake)

    async def _try_to_finish(self, tell: Callable[[str], None], *, within: float) -> None:
        try:
            await self.finish(within=within)
        except (RunFolderError, StorageError) as error:
            tell(str(error))

    async def keep_up(self, wake: Callable[[], None]) -> None:
        """Upload regularly until cancelled, also while the store is down; call `wake` when the store has caught up."""
        while True:
            await anyio.sleep(EVERY)
            had_room = self.has_room()
            try:
                await self.seal()
            except StorageError as error:
                if not self._failing:
                    warn(f"{error}; the run goes on, and what is new goes up when that works again")
                self._failing = True
            else:
                if self._failing:
                    warn(f"{self._store} takes what is new again; all is there")
                self._failing = False
            if not had_room and self.has_room():
                wake()

    async def finish(self, *, within: float) -> None:
        """Upload all new content; retry for `within` seconds."""
        until = time.monotonic() + within
        while True:
            try:
                if self.stored.ended and not (await run_sync(next_part, self._path, self.stored.ends)).size:
                    return None
                return await self.seal(ended=True)
            except StorageError as error:
                if time.monotonic() + _AGAIN > until:
                    raise StorageError(f"{error}. {self.left()}") from error
            await anyio.sleep(_AGAIN)

    def left(self) -> str:
        """Return a sentence about the content that is only in the folder."""
        part = next_part(self._path, self.stored.ends)
        more = ", or more," if part.full else ""
        return (
            f"{len(part.entries):,} episodes and {len(part.paid):,} completions{more} are not in {self._store.url!r} yet: they "
            f"are in {str(self._path)!r}, and the same command on this machine adds them"
        )

    async def _add(self, part: Part, *, ended: bool) -> bool:
        """Add the next segment; return False if an earlier attempt of this folder, without a response, had added it."""
        number = self.stored.number + 1
        try:
            await self._store.add(number, await run_sync(self._sealed, part, number, ended))
        except AlreadyThere as error:
            existing = await self._store.read(number)
            if existing.writer != self.stored.writer:
                raise TakenOver(
                    f"another process goes on with the run at {self._store.url!r}: {existing.holder}. This one has stopped, and has "
                    f"lost nothing: what is not in the store, and no longer part of the run, is in {str(self._path)!r}"
                ) from error
            self._know(number, existing, ended=existing.ended)
            return False
        self._know(number, part, ended=ended)
        return True

    def _know(self, number: int, added: Part | Segment, *, ended: bool) -> None:
        self.stored = self.stored.model_copy(update={"number": number, "ends": added.ends, "ended": ended})
        self.stored.save(self._place)

    def _sealed(self, part: Part, number: int, ended: bool) -> bytes:
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
    place = place_of(store.url)
    make(place)
    with FolderLock(place):
        uploads = Uploads(store, place, await _up_to_date(store, place))
        async with uploads.running():
            yield folder_in(place), uploads


def work_folder(url: str) -> Path:
    """Return this machine's work folder of the run at a URL."""
    return folder_in(place_of(url))


async def _up_to_date(store: RunStore, place: Path) -> Stored:
    """Bring the work folder up to date with the store; content that only the folder has stays, or is moved aside."""
    stored = Stored.load(place, store.url)
    listed = await store.after(max(0, stored.number - 1))
    if stored.number and (not listed or listed[0].number != stored.number):
        raise RunFolderError(
            f"{store.url!r} has lost segment {stored.number}, which was written from here; put it back, or give another URL. What "
            f"was written is in {str(folder_in(place))!r}"
        )
    newer = [one for one in listed if one.number > stored.number]
    while newer and stored.writer is not None and (added := await store.read(newer[0].number)).writer == stored.writer:
        # This folder's own segment; the process was killed before it saved the state.
        stored = stored.model_copy(update={"number": newer.pop(0).number, "ends": added.ends, "ended": added.ended})
    if listed:
        await _wait_for(store, listed[-1], ours=stored.writer)
    if not _goes_on(place, stored, newer=bool(newer)):
        if holds_run(folder_in(place)):
            aside = move_aside(folder_in(place))
            warn(f"{store} is not what this machine had of it; that is kept in {str(aside)!r}")
        stored, newer = Stored(url=store.url), await store.after(0)
    stored = await take_in(store, place, stored, newer)
    stored = stored.model_copy(update={"writer": stored.writer or secrets.token_hex(8)})
    stored.save(place)
    return stored


def _goes_on(place: Path, stored: Stored, *, newer: bool) -> bool:
    """Return True if the folder has all its uploads, and, if the store has newer segments, nothing else."""
    path, ends = folder_in(place), stored.ends
    if not holds_run(path) or not (path / JOURNAL).exists():
        return stored.writer is None and stored.number == 0
    with JournalReader(path / JOURNAL) as journal:
        complete = stored.writer is not None and journal.last_row() >= ends.paid.get(JOURNAL, 0)
    return complete and not (newer and next_part(path, ends).size)


async def _wait_for(store: RunStore, last: Listed, *, ours: str | None) -> None:
    """Wait until the writer of the last segment counts as dead. Raises RunFolderError: it is alive."""
    segment = await store.read(last.number)
    if segment.ended or segment.writer == ours:
        return
    remaining = min(LEASE, LEASE - (datetime.now(UTC) - last.written).total_seconds())
    if remaining > 0:
        warn(f"{segment.holder} may be writing {store}; looks for {remaining:.0f} s whether it lives")
    until = time.monotonic() + remaining
    while time.monotonic() < until:
        await anyio.sleep(min(_LOOK_EVERY, max(0.0, until - time.monotonic())))
        if await store.after(last.number):
            raise RunFolderError(
                f"{store.url!r} is being written by another run: {segment.holder}. Wait until it ends, end it, or give another URL"
            )
    warn(
        f"goes on where {segment.holder} was at {last.written:%Y-%m-%d %H:%M:%S} UTC; what it paid for since then never came "
        f"to {store} and may be paid for again",
    )
