"""Writer of a run folder, which commits paid completions and finished episodes."""

import logging
from collections.abc import Iterable, Sequence
from contextlib import ExitStack, closing
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

from refinesynth.errors import RunFolderError, StorageError
from refinesynth.journal import BATCHES, Entry, Journal, PaidCompletion, SpentRow
from refinesynth.journal.sqlite_file import damaged
from refinesynth.run import resume
from refinesynth.run.completed_episode import CompletedEpisode
from refinesynth.run.event_log import logged, open_events
from refinesynth.run.jsonl import LineWriter
from refinesynth.run.resume import EarlierEpisodes, EpisodeMemory, blocks_of, collect
from refinesynth.run.run_config import RunConfig
from refinesynth.run.run_folder import CARRIED, RunFolder
from refinesynth.run.stats import RunStats
from refinesynth.text.json_reader import write_json

if TYPE_CHECKING:
    from refinesynth.client.batch.batching import Batches


class RunWriter(RunFolder):
    """Exclusive writer of a run. It commits episodes atomically, in the order of the personas.

    It appends lines first and then commits their number to the journal; `claim` cuts lines of a process that was killed
    in between. The append of lines blocks for a copy into the page cache. Every method raises `StorageError` if the
    folder cannot be written or a journal cannot be read.
    """

    def __init__(
        self, path: Path, config: RunConfig, *, journal: Journal, stack: ExitStack, log_level: int = logging.INFO
    ) -> None:
        """Take over the exit stack, which `close` closes; use `claim` to open a run."""
        super().__init__(path, config)
        self.journal = journal
        self._first_new_index = journal.next_index()
        self._trajectories = stack.enter_context(closing(LineWriter(self.trajectories_file)))
        self._rejected = stack.enter_context(closing(LineWriter(self.rejected_file)))
        self.committed = RunStats() if journal.totals is None else RunStats.from_json(journal.totals)
        """Sums over all appended episodes; `committed.episodes` is the index of the next episode to append."""
        if self.committed.episodes != journal.committed.count:
            raise damaged(journal.path, f"its sums are those of {self.committed.episodes:,} episodes")
        self.waiting = set(journal.held_indices())
        """Indices of finished episodes that are not in the files yet."""
        events = stack.enter_context(closing(LineWriter(self.events_file)))
        self.milestones = open_events(events)
        """Logger for events that readers of a run need, at any log level, such as a process's begin and end."""
        self.log = open_events(events, level=log_level)
        stack.enter_context(logged(self.log, log_level))
        self._stack = stack.pop_all()

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
        from the journal and played again with their paid completions.

        Raises:
            RunFolderError: Other files are in the folder, a live process holds its lock, or settings that change the data
                differ; the message names each difference.
            StorageError: The folder cannot be written, or its journal cannot be read.
        """
        path = Path(path)
        with ExitStack() as stack:
            journal, moved_to, missing = resume.claim(path, config, fresh=fresh, stack=stack)
            run = cls(path, config, journal=journal, stack=stack, log_level=log_level)
        if moved_to is not None:
            run.log.info("moved_aside", to=str(moved_to))
        if missing:
            run.log.warning("lines_missing", first_episode=missing.start, episodes=len(missing))
        return run

    def memory(self, episode: str, index: int, *, was_begun: bool = False) -> EpisodeMemory:
        """Return the memory of an episode, by id and position; with `was_begun`, this process has begun it before."""
        begun = was_begun or index < self._first_new_index
        return EpisodeMemory(self.journal, episode, begun=begun)

    async def keep(self, paid: Sequence[PaidCompletion]) -> None:
        await self.journal.keep(*paid)

    async def collect_blocks(self) -> None:
        """Take over the paid completions of killed blocks. Raises RunFolderError: the folder of blocks is a link."""
        blocks = blocks_of(self.path)
        if blocks.is_symlink():
            raise RunFolderError(
                f"{str(blocks)!r} is a link, and a run reads and writes its own folder alone; remove it"
            )
        await collect(blocks, self.keep, at_start=True)
        self._first_new_index = max(self._first_new_index, self.journal.next_index())

    def not_committed(self, paid: Sequence[PaidCompletion]) -> list[PaidCompletion]:
        records = {episode: self.journal.record_of(episode) for episode in {item.episode for item in paid}}
        return [item for item in paid if records[item.episode].get(item.role, item.step, item.digest) is None]

    def open_batches(self, batches: "Batches | None") -> None:
        """Read the sent batches from the journal, and record new ones; None for a run without batches.

        Raises RunFolderError: `batches` is None, and the run has sent batches with answers that may be paid for.
        """
        if batches is not None:
            batches.open(self.journal)
        elif self.journal.note(BATCHES) is not None:
            raise RunFolderError(
                f"the run in {str(self.path)!r} has sent batches, which may hold answers that are paid for: go on with batch"
            )

    def earlier(self) -> EarlierEpisodes:
        """Return the finished episodes of earlier processes, for comparison with the personas."""
        return EarlierEpisodes(self, committed=self.committed.episodes, fingerprints=self.journal.personas())

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
                await self.journal.enter(written, totals=self.committed.to_json())

    async def carry(self, spent: Iterable[SpentRow]) -> None:
        """Commit the costs of other runs, without their completions."""
        await self.journal.keep_note(CARRIED, write_json([asdict(row) for row in spent]))

    async def keep_waiting(self, finished: CompletedEpisode) -> None:
        """Commit an episode to the journal alone, until its append."""
        if finished.index < self.committed.episodes or finished.index in self.waiting:
            raise ValueError(f"episode {finished.index} has finished twice")
        await self.journal.enter([finished.waiting_entry()])
        self.waiting.add(finished.index)

    def read_waiting(self, index: int) -> CompletedEpisode:
        entry = self.journal.entry(index)
        if entry is None:
            raise StorageError(f"the journal of {str(self.path)!r} has lost episode {index}, which waited for its turn")
        return CompletedEpisode.read(entry)

    def close(self) -> None:
        """Commit pending data, close all files and release the folder."""
        self._stack.close()

    def _write(self, finished: CompletedEpisode) -> Entry:
        if finished.index != self.committed.episodes:
            raise ValueError(f"episode {finished.index} was appended where episode {self.committed.episodes} is next")
        self._rejected.write(*finished.rejected)
        self._trajectories.write(*finished.trajectories)
        self.committed.add(finished.line)
        self.waiting.discard(finished.index)
        return finished.written_entry(trajectories_end=self._trajectories.end, rejected_end=self._rejected.end)
