"""A run folder that is being written: what was paid for and what has ended is committed before it counts."""

import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, closing
from dataclasses import asdict
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from refinesynth.errors import RunFolderError, StorageError
from refinesynth.journal import BATCHES, Committed, Entry, Journal, JournalReader, Paid, Recorded, SpentRow
from refinesynth.run.blocks import blocks_of, collect
from refinesynth.run.claiming import claim, holds_run
from refinesynth.run.config import TO_BE_ANSWERED, RunConfig, differences
from refinesynth.run.episodes import EpisodeLine, Finished
from refinesynth.run.folder import CARRIED, RunFolder, worker_journals
from refinesynth.run.lines import LineWriter, cut, ends_line, last_line_end, size_of
from refinesynth.run.logs import logged, open_events
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
        if holds_run(path) and not fresh:
            # Before the lock's file says that this process has the folder; and again when it has.
            _refuse_changes(path, config)
        with ExitStack() as until:
            aside = claim(path, fresh=fresh, until=until)
            if holds_run(path):
                _refuse_changes(path, config)
            else:
                config.save(path / "config.json")
            folder = RunFolder(path, config)
            journal = until.enter_context(closing(Journal.open(folder.journal_file)))
            # Before anything is changed: the version that began it can still go on with it.
            _refuse_second_tries(path, journal)
            counted = journal.committed.count
            missing = _repair_files(folder, journal)
            if config != RunConfig.load(folder.config_file):
                config.save(folder.config_file)
            run = cls(path, config, journal=journal, until=until, log_level=log_level)
        if aside is not None:
            run.log.info("moved_aside", to=str(aside))
        if missing is not None:
            run.log.warning("lines_missing", first_episode=missing, episodes=counted - missing)
        return run

    def memory(self, episode: str, index: int, *, again: bool = False) -> "EpisodeMemory":
        """What is known of an episode's completions, by its id and the persona's position; with `again`, this process
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
        await collect(blocks, self.keep)
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

    def personas(self) -> Iterator[str]:
        """Fingerprints of the personas of the episodes in the files, in order, lazily."""
        return self._records.personas()

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


def _refuse_changes(path: Path, config: RunConfig) -> None:
    before = RunFolder.open(path)
    changed = differences(before.config, config)
    if changed and not before.has_ended():
        # A run that came to nothing says what to look at, and goes on when that is corrected.
        changed = differences(before.config, config, of_models=TO_BE_ANSWERED)
    if changed:
        raise RunFolderError(
            f"{str(path)!r} was begun with other settings: {'; '.join(changed)}. Give the old settings to go on with it, "
            f"another folder for the new ones, or start over with --fresh (in Python fresh=True) and keep the old run beside it"
        )
    if not before.journal_file.exists() and (size_of(before.trajectories_file) or size_of(before.rejected_file)):
        raise RunFolderError(
            f"{str(path)!r} has lost {before.journal_file.name}, which says what of the rest counts and what was paid for; put "
            f"it back, or start over with --fresh (in Python fresh=True), which keeps the old folder. What was accepted can still be "
            f"exported"
        )


def _refuse_second_tries(path: Path, journal: Journal) -> None:
    """Refuse to go on with a run in which an earlier version has played failed personas again.

    Raises:
        RunFolderError: It has; the order of its personas is not that of the source.
        StorageError: The journal cannot be read.
    """
    if journal.note("second_tries") is not None:
        raise RunFolderError(
            f"an earlier version has played failed personas of {str(path)!r} again (--retry-failed), and this one goes on "
            f"with no such run. It can still be read, exported and merged: make what is missing in a new run, then "
            f"`refinesynth merge` both"
        )


def _repair_files(folder: RunFolder, journal: Journal) -> int | None:
    """Cut what no episode counts, and forget episodes whose lines are not all there: they are made again for free.

    Returns the index of the first that is forgotten; None if nothing is missing.

    Raises:
        RunFolderError: A file was changed by something else; nothing is cut or forgotten then.
        StorageError: The folder cannot be written, or the journal cannot be read.
    """
    counted = journal.committed
    there = size_of(folder.trajectories_file), size_of(folder.rejected_file)
    missing = None
    if there[0] < counted.trajectories_end or there[1] < counted.rejected_end:
        missing = _first_missing(journal, counted.count, *there)
        counted = _committed_before(journal, missing)
    ends = ((folder.trajectories_file, counted.trajectories_end), (folder.rejected_file, counted.rejected_end))
    for path, end in ends:
        if not ends_line(path, end):
            raise _changed(path, end)
    if missing is not None:
        journal.forget_from(missing, totals=_totals_before(journal, missing).to_json())
    for path, end in ends:
        cut(path, end=end)
    cut(folder.events_file, end=last_line_end(folder.events_file))
    return missing


def _first_missing(journal: Journal, count: int, trajectories: int, rejected: int) -> int:
    """The first episode whose lines end beyond these bytes. Ends never fall from one episode to the next."""
    low, high = 0, count - 1
    while low < high:
        middle = (low + high) // 2
        ends = _committed_before(journal, middle + 1)
        if ends.trajectories_end > trajectories or ends.rejected_end > rejected:
            high = middle
        else:
            low = middle + 1
    return low


def _committed_before(journal: Journal, index: int) -> Committed:
    entry = journal.entry(index - 1) if index else None
    return Committed(index, entry.trajectories_end or 0, entry.rejected_end or 0) if entry else Committed(0, 0, 0)


def _totals_before(journal: Journal, index: int) -> RunStats:
    totals = RunStats()
    for entry in journal.entries():
        if entry.index >= index:
            break
        totals.add(EpisodeLine.from_json(entry.line))
    return totals


def _changed(path: Path, end: int) -> RunFolderError:
    return RunFolderError(
        f"{str(path)!r} has {size_of(path):,} bytes, and a line was expected to end at byte {end:,}; it was changed after the "
        f"run wrote it. Put the original back, or start over with --fresh (in Python fresh=True), which keeps the old folder"
    )


_LOG = logging.getLogger("refinesynth.run")


class EpisodeMemory:
    """The completions that one episode has paid for, those of an earlier process among them."""

    def __init__(
        self,
        journal: Journal,
        episode: str,
        *,
        begun: bool,
        elsewhere: Sequence[JournalReader] = (),
        known: Sequence[Paid] = (),
        had_ended: bool = False,
        on_kept: Callable[[Sequence[Paid]], None] | None = None,
    ) -> None:
        """The memory of the episode with this id; `begun` says whether an earlier process may have begun it.

        What is kept goes to `journal`, and then to `on_kept`; the journal and those `elsewhere` are asked what was paid
        for before. `known` and `had_ended` were read by another process.
        """
        self._journal = journal
        self._episode = episode
        self._known = known
        self._had_ended = had_ended
        self._on_kept = on_kept
        self._asked = (journal, *elsewhere) if begun else ()

    @property
    def ended(self) -> bool:
        """Whether the episode had ended, and is made again because its lines are missing.

        Raises:
            StorageError: The journal cannot be read.
        """
        below = max((journal.ended_below for journal in self._asked), default=0)
        return self._had_ended or any(paid.index < below for paid in self._recorded)

    def recall(self, role: str, step: int, digest: bytes) -> Paid | None:
        """What this request was answered with before; None if it was not made.

        Raises:
            StorageError: The journal cannot be read.
        """
        return self._recorded.get(role, step, digest)

    async def keep(self, *paid: Paid) -> None:
        """Returns when the completions are committed, together.

        Raises:
            StorageError: It could not be.
        """
        await self._journal.keep(*paid)
        if self._on_kept is not None:
            self._on_kept(paid)
        if _LOG.isEnabledFor(logging.DEBUG):
            for one in paid:
                _LOG.debug("%s answered in episode %s", one.role, one.episode, extra={"facts": _facts(one)})

    @cached_property
    def _recorded(self) -> Recorded:
        # Read when the first request is made, and only where there can be something to read.
        read = [paid for journal in self._asked for paid in journal.recorded(self._episode)]
        return Recorded([*self._known, *read])

    def everything(self) -> tuple[Paid, ...]:
        """All that was paid for before this process began.

        Raises:
            StorageError: The journal cannot be read.
        """
        return tuple(self._recorded)


def _facts(paid: Paid) -> dict[str, Any]:
    """The completion as an event: everything but its words; `episode`, `role` and `step` find these in the journal."""
    return {
        "event": "completion",
        "episode": paid.episode,
        "attempt": paid.attempt,
        "role": paid.role,
        "step": paid.step,
        "model": paid.model,
        "input_tokens": paid.input_tokens,
        "cached_tokens": paid.cached_tokens,
        "output_tokens": paid.output_tokens,
        "cost_usd": paid.cost_usd,
    }
