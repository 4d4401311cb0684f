"""Seals what is new in a work folder, again and again while the run goes on, and says whether the store keeps up."""

import logging
import os
import socket
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import anyio
from anyio.to_thread import run_sync

from refinesynth.errors import RunFolderError, StorageError
from refinesynth.files.output_folder import Holder
from refinesynth.journal import JournalReader
from refinesynth.run import RunConfig
from refinesynth.run.folder import JOURNAL
from refinesynth.stores.fetching import Stored, folder_in
from refinesynth.stores.sealing import next_part
from refinesynth.stores.segment import Part, Segment
from refinesynth.stores.store import AlreadyThere, RunStore

EVERY = 30.0
"""Seconds between two segments: what is lost with a machine was paid for in so many at most. Where nothing is new an
empty one goes up, so that others know that somebody is there."""
BEHIND = 600.0
"""Seconds that the store may lag before nothing new is begun: short outages hold nothing up."""
_AGAIN = 2.0
"""Seconds between tries at the end."""

_LOG = logging.getLogger("refinesynth.stores")


class TakenOver(RunFolderError):
    """Another process goes on with the run."""


class Uploads:
    """Of one process. Nothing in the store is changed; what cannot go up stays in the folder and is tried again."""

    def __init__(self, store: RunStore, place: Path, stored: Stored) -> None:
        """Uploads of the run in `place`, which stands to the store as `stored` says."""
        self.stored = stored
        self._store = store
        self._place = place
        self._path = folder_in(place)
        self._holder = Holder(pid=os.getpid(), host=socket.gethostname(), since=datetime.now(UTC))
        self._all_up = time.monotonic()
        self._failing = False

    def has_room(self) -> bool:
        """Whether the store keeps up, so that more may be begun."""
        return time.monotonic() - self._all_up < BEHIND

    async def seal(self, *, ended: bool = False) -> None:
        """Add what is new, or where nothing is an empty segment; `ended` says that this process adds no more.

        Raises:
            TakenOver: Another process has added the next one.
            StorageError: The store or the folder cannot be used; what is up by then is known to be.
        """
        began = time.monotonic()
        more = True
        while more:
            part = await run_sync(next_part, self._path, self.stored.ends)
            added = await self._add(part, ended=ended and not part.full)
            more = part.full or not added
        self._all_up = began

    async def keep_up(self, wake: Callable[[], None]) -> None:
        """Seal every now and then, until cancelled; `wake` is called when there is room again.

        Raises:
            TakenOver: Another process goes on with the run.
        """
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
        """Add all that is new, trying again for so many seconds.

        Raises:
            TakenOver: Another process goes on with the run.
            StorageError: It is not all there.
        """
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
        """What is in the folder alone, in a sentence."""
        part = next_part(self._path, self.stored.ends)
        what = f"{len(part.entries):,} episodes and {len(part.paid):,} completions" + (
            ", or more," if part.full else ""
        )
        return (
            f"{what} are not in {self._store.url!r} yet: they are in {str(self._path)!r}, and the same command on this "
            f"machine adds them"
        )

    async def _add(self, part: Part, *, ended: bool) -> bool:
        """Add the next segment; False if this folder has added one there already, by a try that came through unanswered."""
        number = self.stored.number + 1
        try:
            await self._store.add(number, await run_sync(self._sealed, part, number, ended))
        except AlreadyThere as error:
            there = await self._store.read(number)
            if there.writer != self.stored.writer:
                raise TakenOver(
                    f"another process goes on with the run at {self._store.url!r}: {there.holder}. This one has stopped, and has "
                    f"lost nothing. {self.left()}".replace(
                        "the same command on this machine adds them", "no longer part of it"
                    )
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
    """Say what becomes of a store, in events.jsonl and above the board."""
    _LOG.warning("%s", text, extra={"facts": {"event": "store"}})
