"""Resume of a run, step by step.

1. `_take`: lock the folder for this process; with `fresh`, move the old run aside.
2. `_refuse_changes`: refuse settings that would change the data.
3. `_repair`: cut lines that the journal does not count; remove episodes with missing lines from the journal.
4. `EarlierEpisodes`: compare and skip the personas of committed and waiting episodes.
5. `EpisodeMemory`: answer the requests of an outstanding episode from the journal, as far as they were paid for.

A *committed* episode has its lines in the files, and the journal counts them. A *waiting* one has finished before an
earlier episode, or beyond `n`, and has its lines in the journal. An *outstanding* one has paid completions and is not
finished. A *doubtful* one has failed, possibly because of a wrong setting: it is in memory alone until another episode
shows that the settings are right; for the next process it is outstanding.
"""

import logging
import shutil
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from refinesynth.errors import RunFolderError, StorageError
from refinesynth.files.atomic_write import is_temporary
from refinesynth.files.output_folder import LOCK_FILE, FolderLock, move_aside
from refinesynth.journal import Committed, EpisodeRecord, Journal, JournalReader, PaidCompletion
from refinesynth.run.completed_episode import EpisodeLine, fingerprint
from refinesynth.run.jsonl import cut, ends_line, last_line_end, size_of
from refinesynth.run.run_config import RunConfig, differences
from refinesynth.run.run_folder import (
    CARRIED,
    CONFIG,
    JOURNAL,
    RunFolder,
    folder_errors,
    holds_run,
    refuse_irregular_files,
)
from refinesynth.run.stats import RunStats
from refinesynth.trajectory import Persona

_LOG = logging.getLogger("refinesynth.run")


def claim(path: Path, config: RunConfig, *, fresh: bool, stack: ExitStack) -> tuple[Journal, Path | None, range]:
    """Continue the run in `path`, or begin one, until `stack` is closed.

    Returns its journal, the new path of a run that was moved aside, and the indices of episodes with missing lines, which
    are outstanding now. Raises the errors of `RunWriter.claim`.
    """
    if holds_run(path) and not fresh:
        # Before the lock, whose file names this process as the last holder; repeated under the lock.
        _refuse_changes(path, config)
    moved_to = _take(path, fresh=fresh, stack=stack)
    if holds_run(path):
        _refuse_changes(path, config)
    else:
        config.save(path / CONFIG)
    folder = RunFolder(path, config)
    journal = stack.enter_context(closing(Journal(folder.journal_file)))
    counted = journal.committed.count
    missing = _repair(folder, journal)
    if config != RunConfig.load(folder.config_file):
        config.save(folder.config_file)
    return journal, moved_to, range(counted if missing is None else missing, counted)


def _take(path: Path, *, fresh: bool, stack: ExitStack) -> Path | None:
    """Lock the folder at `path` until `stack` is closed; return the new path of a run that was moved aside."""
    _refuse_other_files(path)
    refuse_irregular_files(path, follow=False)
    with folder_errors("make the folder", path):
        path.mkdir(parents=True, exist_ok=True)
    stack.enter_context(FolderLock(path))
    _refuse_other_files(path)
    if not (fresh and holds_run(path)):
        return None
    # With a link at `path`, the target is moved and created again, and the link stays valid.
    target = path.resolve()
    with folder_errors("move aside", target):
        moved_to = move_aside(target)
    with folder_errors("make the folder", target):
        target.mkdir()
    # The lock of the old folder stays held as well, against a process that has opened its lock file meanwhile.
    stack.enter_context(FolderLock(path))
    return moved_to


def _refuse_other_files(path: Path) -> None:
    with folder_errors("use", path):
        names = {entry.name for entry in path.iterdir()} if path.exists() else set[str]()
    # Files that a process may leave if it dies before the run begins.
    leftovers = {name for name in names if name in {LOCK_FILE, "config.json.new"} or is_temporary(name, CONFIG)}
    if not holds_run(path) and names != leftovers:
        raise RunFolderError(
            f"{str(path)!r} is not empty, and no run is in it (no config.json of one); give a new folder"
        )


def _refuse_changes(path: Path, config: RunConfig) -> None:
    earlier = RunFolder.open(path)
    if changed := differences(earlier.config, config):
        raise RunFolderError(
            f"{str(path)!r} was begun with other settings: {'; '.join(changed)}. Give the old settings to go on with it, "
            f"another folder for the new ones, or start over with --fresh (in Python fresh=True) and keep the old run beside it"
        )
    if not earlier.journal_file.exists() and (size_of(earlier.trajectories_file) or size_of(earlier.rejected_file)):
        raise RunFolderError(
            f"{str(path)!r} has lost {earlier.journal_file.name}, which says what of the rest counts and what was paid for; put "
            f"it back, or start over with --fresh (in Python fresh=True), which keeps the old folder. What was accepted can still be "
            f"exported"
        )


def _repair(folder: RunFolder, journal: Journal) -> int | None:
    """Cut lines that the journal does not count, and remove episodes with missing lines from it.

    Returns the first removed index, or None. Raises RunFolderError, before any change, if a counted part of a file does
    not end with a line.
    """
    counted, totals = journal.committed, None
    sizes = size_of(folder.trajectories_file), size_of(folder.rejected_file)
    if sizes[0] < counted.trajectories_end or sizes[1] < counted.rejected_end:
        if journal.note(CARRIED) is not None:
            raise RunFolderError(
                f"{str(folder.path)!r} has lost lines, and a merged run has no completions to make them again from; put its files "
                f"back, or merge again, into another folder or with --fresh"
            )
        counted, totals = _counted_within(journal, *sizes)
    ends = ((folder.trajectories_file, counted.trajectories_end), (folder.rejected_file, counted.rejected_end))
    for path, end in ends:
        if not ends_line(path, end):
            raise RunFolderError(
                f"{str(path)!r} has {size_of(path):,} bytes, and a line was expected to end at byte {end:,}; it was changed "
                f"after the run wrote it. Put the original back, or start over with --fresh (in Python fresh=True), which "
                f"keeps the old folder"
            )
    if totals is not None:
        journal.forget_from(counted.count, totals=totals.to_json())
    for path, end in ends:
        cut(path, end=end)
    cut(folder.events_file, end=last_line_end(folder.events_file))
    return None if totals is None else counted.count


def _counted_within(journal: Journal, trajectories: int, rejected: int) -> tuple[Committed, RunStats]:
    """Return the first episodes with all lines within these sizes in bytes, and the sums over them."""
    counted, totals = Committed(0, 0, 0), RunStats()
    for entry in journal.entries():
        ends = entry.trajectories_end or 0, entry.rejected_end or 0
        if entry.is_held or ends[0] > trajectories or ends[1] > rejected:
            break
        counted = Committed(entry.index + 1, *ends)
        totals.add(EpisodeLine.from_json(entry.line))
    return counted, totals


class EarlierEpisodes:
    """Committed and waiting episodes of earlier processes, compared with the personas as they are read."""

    def __init__(self, folder: RunFolder, *, committed: int, fingerprints: Iterator[str]) -> None:
        """`fingerprints` are the digests of the personas of the `committed` episodes, in order."""
        self._folder = folder
        self._committed = committed
        self._fingerprints = fingerprints
        self.waiting = {line.index: line for line in folder.waiting_lines()}
        """Waiting episodes by index, without those whose personas were read."""

    def has(self, index: int, persona: Persona) -> bool:
        """Return True if this persona's episode exists; call it for every persona, in order.

        Raises:
            RunFolderError: The run has another persona at that index.
        """
        if index < self._committed:
            expected = next(self._fingerprints)
        elif index in self.waiting:
            expected = self.waiting.pop(index).persona
        else:
            return False
        if fingerprint(persona) != expected:
            raise RunFolderError(
                f"persona {index} is now {persona.text[:80]!r}, which is not the one that {self._folder} was begun with; "
                f"give the same personas, in the same order. More may follow at the end"
            )
        return True

    def check_all_read(self, count: int) -> None:
        """Raise RunFolderError if the number of personas, `count`, is less than in the earlier processes."""
        if count < self._committed or self.waiting:
            raise RunFolderError(
                f"{self._folder} was begun with more than the {count:,} personas that are given now; "
                f"give the same ones, in the same order. More may follow at the end"
            )


@dataclass(eq=False)
class EpisodeMemory:
    """Paid completions of one episode, from this process and earlier ones; raises `StorageError` like its journal."""

    journal: Journal
    episode: str
    begun: bool
    """True if the episode may have begun before: its earlier completions are read from `journal`."""
    known: Sequence[PaidCompletion] = ()
    """Earlier completions that another process has read."""
    known_finished: bool = False
    """Value of `had_finished` in that process."""
    on_kept: Callable[[Sequence[PaidCompletion]], None] | None = None
    """Called with completions after their commit."""

    @property
    def had_finished(self) -> bool:
        """True if the episode had finished, and is played again because its lines are missing."""
        ended_below = self.journal.ended_below if self.begun else 0
        return self.known_finished or any(paid.index < ended_below for paid in self._recorded)

    def recall(self, role: str, step: int, digest: bytes) -> PaidCompletion | None:
        return self._recorded.get(role, step, digest)

    async def keep(self, *paid: PaidCompletion) -> None:
        await self.journal.keep(*paid)
        if self.on_kept is not None:
            self.on_kept(paid)
        if _LOG.isEnabledFor(logging.DEBUG):
            for completion in paid:
                facts = {"event": "completion", **{name: getattr(completion, name) for name in _FACTS}}
                _LOG.debug("%s answered in episode %s", completion.role, completion.episode, extra={"facts": facts})

    @cached_property
    def _recorded(self) -> EpisodeRecord:
        # Read lazily: most episodes have no earlier completions.
        return EpisodeRecord([*self.known, *(self.journal.record_of(self.episode) if self.begun else ())])

    def all_recorded(self) -> tuple[PaidCompletion, ...]:
        """Return the recorded completions, as of the first read."""
        return tuple(self._recorded)


_FACTS = ("episode", "attempt", "role", "step", "model", "input_tokens", "cached_tokens", "output_tokens", "cost_usd")
"""Fields of a completion in its event; `episode`, `role` and `step` identify its text in the journal."""


_MAX_ROWS = 500
"""Maximum number of completions per read."""


def blocks_of(run: Path) -> Path:
    """Return the parent of the blocks' folders, which exists while blocks play and after blocks were killed."""
    return run / "blocks"


async def collect(
    parent: Path, keep: Callable[[Sequence[PaidCompletion]], Awaitable[None]], *, at_start: bool = False
) -> None:
    """Keep the completions of all ended blocks below `parent`, and remove their folders, except unreadable ones.

    At the start of a run, this includes folders of blocks that died before they began.
    """
    names = ("block-*", "new-*") if at_start else ("block-*",)
    for folder in sorted(path for name in names for path in parent.glob(name)):  # noqa: ASYNC240 - local and short
        with ExitStack() as stack:
            try:
                stack.enter_context(FolderLock(folder))
            except RunFolderError:  # in use by a live block
                continue
            except StorageError:
                if folder.exists():
                    raise
                continue  # removed meanwhile by another call
            if (folder / JOURNAL).exists():
                try:
                    journal = stack.enter_context(JournalReader(folder / JOURNAL))
                except StorageError as error:
                    text = (
                        f"the completions of a block cannot be read, and are requested again: {error}. Put a copy of it back, "
                        f"or remove {str(folder)!r}"
                    )
                    _LOG.warning(
                        "%s", text, extra={"facts": {"event": "block_lost", "path": str(folder), "text": text}}
                    )
                    continue
                row = 0
                while page := journal.paid_after(row, limit=_MAX_ROWS):
                    row = page[-1][0]
                    await keep([paid for _, paid in page])
            shutil.rmtree(folder, ignore_errors=True)
