"""Writer of a run folder, which commits paid completions and finished episodes."""

import logging
from collections.abc import Iterable, Sequence
from contextlib import ExitStack, closing
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

from refinesynth.errors import RunFolderError, StorageError
from refinesynth.journal import BATCHES, Entry, Journal, JournalReader, PaidCompletion, SpentRow
from refinesynth.run import resume
from refinesynth.run.completed_episode import CompletedEpisode
from refinesynth.run.event_log import logged, open_events
from refinesynth.run.jsonl import LineWriter
from refinesynth.run.resume import EarlierEpisodes, EpisodeMemory, blocks_of, collect
from refinesynth.run.run_config import RunConfig
from refinesynth.run.run_folder import CARRIED, RunFolder, worker_journals
from refinesynth.run.stats import RunStats
from refinesynth.text.json_reader import write_json

if TYPE_CHECKING:
    from refinesynth.client.batch.batching import BatchRecord
    from refinesynth.client.unsupported_features import UnsupportedFeatures


class RunWriter(RunFolder):
    """Exclusive writer of a run. It commits episodes atomically, in the order of the personas.

    It appends lines first and then commits their number to the journal; `claim` cuts lines of a process that was killed
    in between. The append of lines blocks for a copy into the page cache. Every method raises `StorageError` if the
    folder cannot be written or a journal cannot be read.
    """

    def __init__(
        self, path: Path, config: RunConfig, *, journal: Journal, until: ExitStack, log_level: int = logging.INFO
    ) -> None:
        """Take over the exit stack `until`, which `close` closes; use `claim` to open a run."""
        super().__init__(path, config)
        self._records = journal
        self._elsewhere = [until.enter_context(JournalReader(one)) for one in worker_journals(path)]
        self._begun = max(known.next_index() for known in (journal, *self._elsewhere))
        self._trajectories = until.enter_context(closing(LineWriter(self.trajectories_file)))
        self._rejected = until.enter_context(closing(LineWriter(self.rejected_file)))
        self.committed = RunStats() if journal.totals is None else RunStats.from_json(journal.totals)
        """Sums over all appended episodes; `committed.episodes` is the index of the next episode to append."""
        self.waiting = set(journal.held_indices())
        """Indices of finished episodes that are not in the files yet."""
        events = until.enter_context(closing(LineWriter(self.events_file)))
        self.milestones = open_events(events)
        """Logger for events that readers of a run need, at any log level, such as a process's begin and end."""
        self.log = open_events(events, level=log_level)
        until.enter_context(logged(self.log, log_level))
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
        """Continue the run in `path`, or begin a run; with `fresh`, after moving an existing run aside.

        Lines that the journal does not count are cut. Episodes with missing lines (a deletion, a power cut) are removed
        from the journal and played again with their paid completions. While no episode has finished, the settings in
        `TO_BE_ANSWERED` may change.

        Raises:
            RunFolderError: Other files are in the folder, a live process holds its lock, or settings that change the data
                differ; the message names each difference.
            StorageError: The folder cannot be written, or its journal cannot be read.
        """
        path = Path(path)
        with ExitStack() as until:
            journal, aside, lost = resume.claim(path, config, fresh=fresh, until=until)
            run = cls(path, config, journal=journal, until=until, log_level=log_level)
        if aside is not None:
            run.log.info("moved_aside", to=str(aside))
        if lost:
            run.log.warning("lines_missing", first_episode=lost.start, episodes=len(lost))
        return run

    def memory(self, episode: str, index: int, *, again: bool = False) -> EpisodeMemory:
        """Return the memory of an episode, by id and the persona's position; `again` if this process has begun it."""
        return EpisodeMemory(self._records, episode, begun=again or index < self._begun, elsewhere=self._elsewhere)

    async def keep(self, paid: Sequence[PaidCompletion]) -> None:
        """Commit completions of other processes of the run."""
        await self._records.keep(*paid)

    async def collect_blocks(self) -> None:
        """Take over the paid completions of killed blocks. Raises RunFolderError: the folder of blocks is a link."""
        blocks = blocks_of(self.path)
        if blocks.is_symlink():
            raise RunFolderError(
                f"{str(blocks)!r} is a link, and a run reads and writes its own folder alone; remove it"
            )
        await collect(blocks, self.keep, at_start=True)
        self._begun = max(self._begun, self._records.next_index())

    def unknown(self, paid: Sequence[PaidCompletion]) -> list[PaidCompletion]:
        """Return the completions that are not committed."""
        known = {episode: self._records.record_of(episode) for episode in {one.episode for one in paid}}
        return [one for one in paid if known[one.episode].get(one.role, one.step, one.digest) is None]

    def open_lacks(self, lacks: "UnsupportedFeatures") -> None:
        """Read the servers' known lacks from the journals, and record new ones."""
        lacks.open(self._records, self._elsewhere)

    def open_batches(self, record: "BatchRecord | None") -> None:
        """Read the sent batches from the journal, and record new ones; None for a run without batches.

        Raises RunFolderError: `record` is None, and the run has sent batches with answers that may be paid for.
        """
        if record is not None:
            record.open(self._records)
        elif self._records.note(BATCHES) is not None:
            raise RunFolderError(
                f"the run in {str(self.path)!r} has sent batches, which may hold answers that are paid for: go on with batch"
            )

    def earlier(self) -> EarlierEpisodes:
        """Return the finished episodes of earlier processes, for comparison with the personas."""
        return EarlierEpisodes(self, committed=self.committed.episodes, fingerprints=self._records.personas())

    async def append(self, *episodes: CompletedEpisode) -> None:
        """Append finished episodes, which must be next in the order of the personas, and commit them.

        Calls may overlap, because files, `committed` and `waiting` change before the first await; they complete in order.
        """
        written: list[Entry] = []
        try:
            for finished in episodes:
                written.append(self._write(finished))  # noqa: PERF401 - those before one that fails count
        finally:
            if written:
                await self._records.enter(written, totals=self.committed.to_json())

    async def carry(self, spent: Iterable[SpentRow]) -> None:
        """Commit the costs of other runs, without their completions."""
        await self._records.keep_note(CARRIED, write_json([asdict(row) for row in spent]))

    async def keep_waiting(self, finished: CompletedEpisode) -> None:
        """Commit an episode to the journal alone, until its append."""
        if finished.index < self.committed.episodes or finished.index in self.waiting:
            raise ValueError(f"episode {finished.index} has finished twice")
        await self._records.enter([finished.waiting()])
        self.waiting.add(finished.index)

    def read_waiting(self, index: int) -> CompletedEpisode:
        """Return a waiting episode."""
        entry = self._records.entry(index)
        if entry is None:
            raise StorageError(f"the journal of {str(self.path)!r} has lost episode {index}, which waited for its turn")
        return CompletedEpisode.read(entry)

    def close(self) -> None:
        """Commit pending data, close all files and release the folder."""
        self._until.close()

    def _write(self, finished: CompletedEpisode) -> Entry:
        if finished.index != self.committed.episodes:
            raise ValueError(f"episode {finished.index} was appended where episode {self.committed.episodes} is next")
        self._rejected.write(*finished.rejected)
        self._trajectories.write(*finished.trajectories)
        self.committed.add(finished.line)
        self.waiting.discard(finished.index)
        return finished.written(trajectories_end=self._trajectories.end, rejected_end=self._rejected.end)
