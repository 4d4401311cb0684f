"""Where a run is written: a folder, or a work folder whose content goes up to a store as the run goes on."""

import secrets
import time
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple

import anyio

from refinesynth.errors import InputError, RunFolderError, StorageError
from refinesynth.files.output_folder import FolderLock, move_aside
from refinesynth.files.urls import is_url
from refinesynth.journal import JournalReader
from refinesynth.run.claiming import holds_run
from refinesynth.run.folder import JOURNAL
from refinesynth.stores.fetching import Stored, folder_in, make, take_in
from refinesynth.stores.sealing import next_part
from refinesynth.stores.segment import Segment
from refinesynth.stores.store import Listed, RunStore, place_of
from refinesynth.stores.uploads import EVERY, TakenOver, Uploads, warn

LEASE = 3 * EVERY
"""Seconds without a new segment after which a process that has not said that it ended is taken for dead."""
AT_THE_END = 60.0
"""Seconds that a run which is over waits for a store that fails."""
_AFTER_A_FAILURE, _AFTER_CTRL_C = 10.0, 1.0
_LOOK_EVERY = 5.0


class Output(NamedTuple):
    """Where a run is written."""

    path: Path | None
    """The folder; None for the next free one."""
    begin: Callable[[Callable[[], None]], Awaitable[None]]
    """To be called once the run is there, with what wakes it when there is room again."""
    has_room: Callable[[], bool]
    """Whether more may be begun."""


@asynccontextmanager
async def opened_output(output: Path | str | None, *, fresh: bool = False) -> AsyncGenerator[Output, None]:
    """The folder to write a run to. For a URL it holds what the store has, and at the end the store has all of it.

    Raises:
        InputError: It is no URL of a store, `fresh` is asked for there, or another process writes the run.
        StorageError: The store cannot be used, or not all is in it at the end; then it is in the work folder.
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
    """The folder in which this machine works on the run at a URL."""
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
    """Bring the work folder to where the store is; what it alone has is kept.

    Raises:
        RunFolderError: Another process writes the run.
        StorageError: The store cannot be read.
    """
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
    """Whether the folder has all that it had when it was told of, and nothing beside if the store has more by now."""
    path, ends = folder_in(place), stored.ends
    if not holds_run(path) or not (path / JOURNAL).exists():
        return stored.writer is None and stored.number == 0
    with JournalReader.read(path / JOURNAL) as journal:
        whole = stored.writer is not None and journal.last_row() >= ends.paid.get(JOURNAL, 0)
    return whole and not (newer and next_part(path, ends).size)


async def _wait_for(store: RunStore, last: Listed, *, ours: str | None) -> None:
    """Wait until the process that wrote the last segment is known to be dead, or to live."""
    segment: Segment = await store.read(last.number)
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
