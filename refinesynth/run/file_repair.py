"""Makes the files of a run end where its journal says, after any end of the process that wrote them."""

from pathlib import Path

from refinesynth.errors import RunFolderError
from refinesynth.journal import Committed, Journal
from refinesynth.run.episodes import EpisodeLine, Totals
from refinesynth.run.folder import RunFolder
from refinesynth.run.lines import cut, ends_line, last_line_end, size_of


def repair_files(folder: RunFolder, journal: Journal) -> int | None:
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


def _totals_before(journal: Journal, index: int) -> Totals:
    totals = Totals()
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
