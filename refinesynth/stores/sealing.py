"""What a run folder has that is in no segment yet, also while a process writes it."""

from collections.abc import Generator, Iterator
from contextlib import closing
from dataclasses import replace
from itertools import islice
from pathlib import Path

from refinesynth.journal import Committed, JournalReader
from refinesynth.run import RunFolder, worker_journals
from refinesynth.run.lines import last_line_end
from refinesynth.stores.segment import Ends, Part

_ENOUGH = 8 * 1024 * 1024
"""Size at which a segment is full, in bytes; one row or episode more may go in."""
_ROWS = 200
_EPISODES = 64
"""Read at a time."""


def next_part(path: Path, ends: Ends) -> Part:
    """What the run in `path` has beyond `ends`, up to a few megabytes of it; a `full` one has more behind it.

    No finished episode comes in an earlier part than a completion of it.

    Raises:
        StorageError: The folder cannot be read.
    """
    whole = Part(ends=ends)
    with closing(_pieces(path, ends)) as pieces:
        for part in pieces:
            whole = whole + part
            if whole.size >= _ENOUGH:
                return replace(whole, full=True)
    return whole


def _pieces(path: Path, ends: Ends) -> Generator[Part]:
    folder = RunFolder(path, RunFolder.open(path).config)
    with JournalReader.read(folder.journal_file) as journal:
        # Looked at before the completions, of which those of the episodes are there then.
        counted = journal.committed
        for found in (folder.journal_file, *worker_journals(path)):
            for part in _paid(found, ends):
                ends = part.ends
                yield part
        for part in _entries(folder, journal, counted, ends):
            ends = part.ends
            yield part
    yield from _events(folder.events_file, ends)


def _paid(path: Path, ends: Ends) -> Iterator[Part]:
    row = ends.paid.get(path.name, 0)
    with JournalReader.read(path) as journal:
        while found := journal.paid_after(row, most=_ROWS):
            row = found[-1][0]
            ends = ends.model_copy(update={"paid": {**ends.paid, path.name: row}})
            paid = tuple(one for _, one in found)
            yield Part(ends=ends, paid=paid, size=sum(len(one.answer) + _ROWS for one in paid))


def _entries(folder: RunFolder, journal: JournalReader, counted: Committed, ends: Ends) -> Iterator[Part]:
    entries = islice(journal.entries(ends.entries), max(0, counted.count - ends.entries))
    while some := tuple(islice(entries, _EPISODES)):
        accepted, refused = some[-1].trajectories_end or 0, some[-1].rejected_end or 0
        trajectories = _read(folder.trajectories_file, ends.trajectories, accepted)
        rejected = _read(folder.rejected_file, ends.rejected, refused)
        ends = ends.model_copy(update={"entries": some[-1].index + 1, "trajectories": accepted, "rejected": refused})
        size = len(trajectories) + len(rejected) + sum(len(entry.line) for entry in some)
        yield Part(ends=ends, entries=some, trajectories=trajectories, rejected=rejected, size=size)


def _events(path: Path, ends: Ends) -> Iterator[Part]:
    end = last_line_end(path)
    while ends.events < end:
        block = _read(path, ends.events, min(end, ends.events + _ENOUGH))
        # Up to the end of a line; one that is longer than a block goes whole.
        block = block[: block.rfind(b"\n") + 1] or _read(path, ends.events, end)
        ends = ends.model_copy(update={"events": ends.events + len(block)})
        yield Part(ends=ends, events=block, size=len(block))


def _read(path: Path, start: int, end: int) -> bytes:
    if end <= start:
        return b""
    with path.open("rb") as file:
        file.seek(start)
        return file.read(end - start)
