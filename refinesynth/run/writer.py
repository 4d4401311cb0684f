"""A run folder that is being written: what was paid for and what has ended is committed before it counts."""

import logging
from collections.abc import Iterable, Sequence
from contextlib import ExitStack, closing
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

from refinesynth.errors import RunFolderError, StorageError
from refinesynth.journal import BATCHES, Entry, Journal, JournalReader, Paid, SpentRow
from refinesynth.run import resume
from refinesynth.run.blocks import blocks_of, collect
from refinesynth.run.config import RunConfig
from refinesynth.run.episodes import Finished
from refinesynth.run.folder import CARRIED, RunFolder, worker_journals
from refinesynth.run.lines import LineWriter
from refinesynth.run.logs import logged, open_events
from refinesynth.run.resume import EarlierEpisodes, EpisodeMemory
from refinesynth.run.stats import RunStats
from refinesynth.text.jsontext import write_json

if TYPE_CHECKING:
    from refinesynth.client.batch.record import BatchRecord
    from refinesynth.client.lacks import Lacks


class RunWriter(RunFolder):
    """Writes a run, alone. Episodes go to the files in the order of the personas, each whole or not at all.

    Lines are appended first, and then the journal says that they count; a process that is killed in between leaves
    lines that `claim` cuts. Writing lines blocks: it costs a copy into the system's page cache.
    """

    def __init__(
        self, path: Path, config: RunConfig, *, journal: Journal, until: ExitStack, log_level: int = logging.INFO
    ) -> None:
        """`claim` is the way to make one; what is in `until` is closed by `close` from now on."""
        super().__init__(path, config)
        self._records = journal
        self._elsewhere = [until.enter_context(JournalReader.read(one)) for one in worker_journals(path)]
        self._begun = max(known.started() for known in (journal, *self._elsewhere))
        self._trajectories = until.enter_context(closing(LineWriter(self.trajectories_file)))
        self._rejected = until.enter_context(closing(LineWriter(self.rejected_file)))
        self.committed = RunStats() if journal.totals is None else RunStats.from_json(journal.totals)
        """Sums over everything that was appended; `committed.episodes` is the index of the next episode to append."""
        self.waiting = set(journal.held())
        """Indices of finished episodes that are in no file yet."""
        events = until.enter_context(closing(LineWriter(self.events_file)))
        self.milestones = open_events(events)
        """Where a process says that it has begun and ended, at any level: `RunStatus` reads it."""
        self.log = open_events(events, level=log_level)
        until.enter_context(logged(self.log, log_level))
        """structlog logger of events.jsonl; what the package logs elsewhere goes there too."""
        self._until = until.pop_all()

    @classmethod
    def claim(
        cls,
        path: str | Path,
        config: RunConfig,
        *,
        fresh: bool = False,
        log_level: int = logging.INFO,
    ) -> "RunWriter":
        """Continue the run in `path`, or begin one if none is there; with `fresh`, after moving it aside.

        Lines that no episode counts are cut. Episodes whose lines are not all there, because they were deleted or the
        power has failed, are forgotten, to be made again from what was paid for. As long as no episode has ended, the
        settings that a backend may need to answer at all may be others.

        Raises:
            RunFolderError: Something else is in the folder, a live process writes it, or the run was asked with other
                settings that would change the data; the message names each difference.
            StorageError: The folder cannot be written, or its journal cannot be read.
        """
        path = Path(path)
        with ExitStack() as until:
            claimed = resume.claim(path, config, fresh=fresh, until=until)
            run = cls(path, config, journal=claimed.journal, until=until, log_level=log_level)
        if claimed.aside is not None:
            run.log.info("moved_aside", to=str(claimed.aside))
        if lost := claimed.forgotten:
            run.log.warning("lines_missing", first_episode=lost.start, episodes=len(lost))
        return run

    def memory(self, episode: str, index: int, *, again: bool = False) -> EpisodeMemory:
        """The memory of an episode's completions, by its id and the persona's position; with `again`, this process
        has begun it before.
        """
        return EpisodeMemory(self._records, episode, begun=again or index < self._begun, elsewhere=self._elsewhere)

    async def keep(self, paid: Sequence[Paid]) -> None:
        """Commit what was paid for in other processes of the run. Returns when it is committed.

        Raises:
            StorageError: It cannot be written.
        """
        await self._records.keep(*paid)

    async def collect_blocks(self) -> None:
        """Take over what was paid for in blocks that were killed. Returns when it is committed.

        Raises:
            RunFolderError: Their folder is a link.
            StorageError: It cannot be written.
        """
        blocks = blocks_of(self.path)
        if blocks.is_symlink():
            raise RunFolderError(
                f"{str(blocks)!r} is a link, and a run reads and writes its own folder alone; remove it"
            )
        await collect(blocks, self.keep, at_start=True)
        self._begun = max(self._begun, self._records.started())

    def unknown(self, paid: Sequence[Paid]) -> list[Paid]:
        """Those of these completions that are not committed.

        Raises:
            StorageError: The journal cannot be read.
        """
        known = {episode: self._records.recorded(episode) for episode in {one.episode for one in paid}}
        return [one for one in paid if known[one.episode].get(one.role, one.step, one.digest) is None]

    def open_lacks(self, lacks: "Lacks") -> None:
        """Let what is known of servers be known here, and kept.

        Raises:
            StorageError: The journal cannot be read.
        """
        lacks.open(self._records, self._elsewhere)

    def open_batches(self, record: "BatchRecord | None") -> None:
        """Let it be known here which batches were sent, and kept; None for a run that sends none.

        Raises:
            RunFolderError: The run has sent some, whose answers would be paid for again.
            StorageError: The journal cannot be read.
        """
        if record is not None:
            record.open(self._records)
        elif self._records.note(BATCHES) is not None:
            raise RunFolderError(
                f"the run in {str(self.path)!r} has sent batches, which may hold answers that are paid for: go on with batch"
            )

    def earlier(self) -> EarlierEpisodes:
        """Episodes that earlier processes have finished, to be compared with the personas that are read now."""
        return EarlierEpisodes(self, committed=self.committed.episodes, fingerprints=self._records.personas())

    async def append(self, *episodes: Finished) -> None:
        """Write finished episodes to the files; the next in the order of the personas. Returns when they are committed.

        The files, `committed` and `waiting` have changed before the first await, so calls may overlap; they come true
        in their order.

        Raises:
            StorageError: They cannot be written.
            ValueError: It is not the next episode.
        """
        written: list[Entry] = []
        try:
            for finished in episodes:
                written.append(self._write(finished))  # noqa: PERF401 - those before one that fails count
        finally:
            if written:
                await self._records.enter(written, totals=self.committed.to_json())

    async def carry(self, spent: Iterable[SpentRow]) -> None:
        """Count what other runs have paid for, whose completions are not here. Returns when it is committed.

        Raises:
            StorageError: It cannot be written.
        """
        await self._records.keep_note(CARRIED, write_json([asdict(row) for row in spent]))

    async def keep_waiting(self, finished: Finished) -> None:
        """Keep an episode until it is appended. Returns when it is committed.

        Raises:
            StorageError: It cannot be written.
            ValueError: It has finished before.
        """
        if finished.index < self.committed.episodes or finished.index in self.waiting:
            raise ValueError(f"episode {finished.index} has finished twice")
        await self._records.enter([finished.waiting()])
        self.waiting.add(finished.index)

    def read_waiting(self, index: int) -> Finished:
        """An episode in `waiting`.

        Raises:
            StorageError: The journal cannot be read.
        """
        entry = self._records.entry(index)
        if entry is None:
            raise StorageError(f"the journal of {str(self.path)!r} has lost episode {index}, which waited for its turn")
        return Finished.read(entry)

    def close(self) -> None:
        """Commit what is on its way, close all files, and let others have the folder.

        Raises:
            StorageError: Something could not be committed, and that was not reported before.
        """
        self._until.close()

    def _write(self, finished: Finished) -> Entry:
        if finished.index != self.committed.episodes:
            raise ValueError(f"episode {finished.index} was appended where episode {self.committed.episodes} is next")
        self._rejected.write(*finished.rejected)
        self._trajectories.write(*finished.trajectories)
        self.committed.add(finished.line)
        self.waiting.discard(finished.index)
        return finished.written(trajectories_end=self._trajectories.end, rejected_end=self._rejected.end)
