"""Output of a run: a folder, or a work folder whose content goes up to a store while the run goes on."""

import logging
import os
import secrets
import socket
import time
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple

import anyio
from anyio.to_thread import run_sync

from refinesynth.errors import InputError, RunFolderError, StorageError
from refinesynth.files.output_folder import FolderLock, Holder, is_url, move_aside
from refinesynth.journal import JournalReader
from refinesynth.run import RunConfig
from refinesynth.run.run_folder import JOURNAL, holds_run
from refinesynth.stores.run_fetching import Stored, folder_in, make, take_in
from refinesynth.stores.segment import Part, Segment, next_part
from refinesynth.stores.store import AlreadyThere, Listed, RunStore, place_of

EVERY = 30.0
"""Seconds between two segments, and so the most work that is lost with a machine. Without news an empty segment goes
up as a sign of life."""
BEHIND = 600.0
"""Seconds that the store may lag before no new episode is begun."""
_AGAIN = 2.0
"""Seconds between tries at the end."""

LEASE = 3 * EVERY
"""Seconds without a new segment after which a process that did not say that it ended is taken for dead."""
AT_THE_END = 60.0
"""Seconds that a finished run waits for a failing store."""
_AFTER_A_FAILURE, _AFTER_CTRL_C = 10.0, 1.0
_LOOK_EVERY = 5.0

_LOG = logging.getLogger("refinesynth.stores")


class TakenOver(RunFolderError):
    """Another process continues the run."""


class Uploads:
    """Uploads of one process; what cannot go up stays in the folder and is tried again.

    Every method raises `TakenOver` if another process continues the run, and `StorageError` if the store or the folder
    cannot be used.
    """

    def __init__(self, store: RunStore, place: Path, stored: Stored) -> None:
        self.stored = stored
        self._store = store
        self._place = place
        self._path = folder_in(place)
        self._holder = Holder(pid=os.getpid(), host=socket.gethostname(), since=datetime.now(UTC))
        self._all_up = time.monotonic()
        self._failing = False

    def has_room(self) -> bool:
        """Return True while the store keeps up."""
        return time.monotonic() - self._all_up < BEHIND

    async def seal(self, *, ended: bool = False) -> None:
        """Upload what is new, or an empty segment; with `ended`, this process adds no more."""
        began = time.monotonic()
        more = True
        while more:
            part = await run_sync(next_part, self._path, self.stored.ends)
            added = await self._add(part, ended=ended and not part.full)
            more = part.full or not added
        self._all_up = began

    async def keep_up(self, wake: Callable[[], None]) -> None:
        """Seal regularly until cancelled, also while the store is down; call `wake` when there is room again."""
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
        """Upload all that is new, trying again for so many seconds."""
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
        """Return a sentence about what is in the folder alone."""
        part = next_part(self._path, self.stored.ends)
        more = ", or more," if part.full else ""
        return (
            f"{len(part.entries):,} episodes and {len(part.paid):,} completions{more} are not in {self._store.url!r} yet: they "
            f"are in {str(self._path)!r}, and the same command on this machine adds them"
        )

    async def _add(self, part: Part, *, ended: bool) -> bool:
        """Add the next segment; False if an earlier, unanswered try of this folder has added one there."""
        number = self.stored.number + 1
        try:
            await self._store.add(number, await run_sync(self._sealed, part, number, ended))
        except AlreadyThere as error:
            there = await self._store.read(number)
            if there.writer != self.stored.writer:
                raise TakenOver(
                    f"another process goes on with the run at {self._store.url!r}: {there.holder}. This one has stopped, and has "
                    f"lost nothing: what is not in the store, and no longer part of the run, is in {str(self._path)!r}"
                ) from error
            self._know(number, there, ended=there.ended)
            return False
        self._know(number, part, ended=ended)
        return True

    def _know(self, number: int, added: Part | Segment, *, ended: bool) -> None:
        self.stored = self.stored.model_copy(update={"number": number, "ends": added.ends, "ended": ended})
        self.stored.save(self._place)

    def _sealed(self, part: Part, number: int, ended: bool) -> bytes:
        with JournalReader.read(self._path / JOURNAL) as journal:
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
    """Log what becomes of a store, for events.jsonl and above the board."""
    _LOG.warning("%s", text, extra={"facts": {"event": "store"}})


class Output(NamedTuple):
    """Output of a run."""

    path: Path | None
    """Folder; None for the next free one."""
    begin: Callable[[Callable[[], None]], Awaitable[None]]
    """Call it once the run exists, with a function that wakes it when there is room again."""
    has_room: Callable[[], bool]
    """Returns True if more may be begun."""


@asynccontextmanager
async def opened_output(output: Path | str | None, *, fresh: bool = False) -> AsyncGenerator[Output, None]:
    """Yield the folder to write a run to; a URL's holds what the store has, and at the end the store has all of it.

    Raises:
        InputError: It is no URL of a store, `fresh` is given with one, or another process writes the run.
        StorageError: The store cannot be used, or lacks something at the end, which is then in the work folder.
    """
    if not isinstance(output, str) or not is_url(output):
        yield Output(None if output is None else Path(output), _nothing, lambda: True)
        return
    store = RunStore(output)
    if fresh:
        raise InputError(f"nothing in a store is written over, so {store.url!r} cannot begin anew; give another URL")
    place = place_of(store.url)
    make(place)
    with FolderLock(place):
        uploads = Uploads(store, place, await _up_to_date(store, place))
        async with _uploading(uploads, folder_in(place)) as opened:
            yield opened


def work_folder(url: str) -> Path:
    """Return the folder in which this machine works on the run at a URL."""
    return folder_in(place_of(url))


async def _nothing(_wake: Callable[[], None]) -> None: ...


@asynccontextmanager
async def _uploading(uploads: Uploads, path: Path) -> AsyncGenerator[Output, None]:
    failure: Exception | None = None
    begun = False
    try:
        async with anyio.create_task_group() as tasks:

            async def keep_up(wake: Callable[[], None]) -> None:
                nonlocal failure
                try:
                    await uploads.keep_up(wake)
                except Exception as error:  # noqa: BLE001 - likewise
                    failure = error
                    tasks.cancel_scope.cancel()

            async def begin(wake: Callable[[], None]) -> None:
                nonlocal begun
                # Before anything is paid for: that this may be written, and that it is ours from now on.
                await uploads.seal()
                begun = True
                tasks.start_soon(keep_up, wake)

            try:
                yield Output(path, begin, uploads.has_room)
            except Exception as error:  # noqa: BLE001 - raised below, so that the task group does not wrap it
                failure = failure or error
            tasks.cancel_scope.cancel()
        if failure is None:
            await uploads.finish(within=AT_THE_END)
    except anyio.get_cancelled_exc_class():
        if begun:
            await _finish_soon(uploads)
        raise
    if failure is not None:
        if begun and not isinstance(failure, TakenOver):
            await _note(uploads, failure)
        raise failure


async def _finish_soon(uploads: Uploads) -> None:
    with anyio.move_on_after(_AFTER_CTRL_C, shield=True):
        try:
            await uploads.finish(within=0)
        except (RunFolderError, StorageError) as error:
            warn(str(error))
        return
    warn(uploads.left())


async def _note(uploads: Uploads, failure: Exception) -> None:
    try:
        await uploads.finish(within=_AFTER_A_FAILURE)
    except (RunFolderError, StorageError) as error:
        failure.add_note(str(error))


async def _up_to_date(store: RunStore, place: Path) -> Stored:
    """Bring the work folder up to date with the store; what it alone has is kept."""
    stored = Stored.load(place, store.url)
    listed = await store.after(max(0, stored.number - 1))
    if stored.number and (not listed or listed[0].number != stored.number):
        raise RunFolderError(
            f"{store.url!r} has lost segment {stored.number}, which was written from here; put it back, or give another URL. What "
            f"was written is in {str(folder_in(place))!r}"
        )
    newer = [one for one in listed if one.number > stored.number]
    while newer and stored.writer is not None and (there := await store.read(newer[0].number)).writer == stored.writer:
        # This folder's own, of a process that was killed before it knew.
        stored = stored.model_copy(update={"number": newer.pop(0).number, "ends": there.ends, "ended": there.ended})
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
    """Return True if the folder has all that it had uploaded, and nothing besides if the store has more by now."""
    path, ends = folder_in(place), stored.ends
    if not holds_run(path) or not (path / JOURNAL).exists():
        return stored.writer is None and stored.number == 0
    with JournalReader.read(path / JOURNAL) as journal:
        whole = stored.writer is not None and journal.last_row() >= ends.paid.get(JOURNAL, 0)
    return whole and not (newer and next_part(path, ends).size)


async def _wait_for(store: RunStore, last: Listed, *, ours: str | None) -> None:
    """Wait until the process that wrote the last segment is known to be dead or alive."""
    segment = await store.read(last.number)
    if segment.ended or segment.writer == ours:
        return
    left = min(LEASE, LEASE - (datetime.now(UTC) - last.written).total_seconds())
    if left > 0:
        warn(f"{segment.holder} may be writing {store}; looks for {left:.0f} s whether it lives")
    until = time.monotonic() + left
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
