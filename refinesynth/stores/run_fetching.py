"""Run folders made from segments, and brought up to date with new ones."""

from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from shutil import rmtree

from pydantic import BaseModel, ValidationError

from refinesynth.errors import RunFolderError, StorageError
from refinesynth.files.atomic_write import atomic_write, open_to_append
from refinesynth.files.output_folder import FolderLock
from refinesynth.journal import JournalReader
from refinesynth.journal.commits import Restore, restoring
from refinesynth.journal.reader import TOTALS
from refinesynth.run import EpisodeLine, RunConfig, RunFolder, RunStats
from refinesynth.run.jsonl import cannot, cut
from refinesynth.run.run_folder import CONFIG, JOURNAL
from refinesynth.stores.segment import FILES, Ends, Part, Segment
from refinesynth.stores.store import Listed, RunStore, first_line, place_of
from refinesynth.trajectory import explain


class Stored(BaseModel, frozen=True, extra="forbid"):
    """State of a work folder relative to its store; kept beside it, in stored.json."""

    url: str
    number: int = 0
    """Last segment that is known to be in the store."""
    writer: str | None = None
    """Name of this folder in its segments; None for a mere copy."""
    ends: Ends = Ends()
    """Part of the folder that is in the store."""
    ended: bool = False
    """True if that segment was the last of its process."""

    @classmethod
    def load(cls, place: Path, url: str) -> "Stored":
        """Read the state of a place; empty for a new one. Raises StorageError: it is damaged, or of another store."""
        path = place / "stored.json"
        try:
            found = cls.model_validate_json(path.read_bytes()) if path.exists() else cls(url=url)
        except ValidationError as error:
            raise StorageError(f"{str(path)!r} is damaged ({explain(error)}); move {str(place)!r} aside") from error
        if found.url != url:
            raise StorageError(f"{str(place)!r} belongs to {found.url!r}; move it aside to work on {url!r}")
        return found

    def save(self, place: Path) -> None:
        """Write this, in one step. Raises StorageError: it cannot be written."""
        path = place / "stored.json"
        try:
            with atomic_write(path) as file:
                file.write(self.model_dump_json().encode())
        except OSError as error:
            raise cannot("write", path, error) from error


def folder_in(place: Path) -> Path:
    return place / "run"


def make(place: Path) -> None:
    try:
        place.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise cannot("make the folder", place, error) from error


async def fetch(url: str) -> Path:
    """Fetch a copy of the run at this URL into the cache of this machine; only new segments are transferred.

    The work folder of the run is not touched; another process may write the run meanwhile.

    Raises:
        InputError: There is no run, or this is no URL of a store.
        StorageError: The store cannot be read, or holds what no run has written.
    """
    store = RunStore(url)
    place = place_of(store.url) / "copy"
    make(place)
    with FolderLock(place, work="copy of the same run"):
        stored = Stored.load(place, store.url)
        listed = await store.after(max(0, stored.number - 1))
        if stored.number and (not listed or listed[0].number != stored.number):
            # Another run is there now than the one that was copied.
            rmtree(folder_in(place), ignore_errors=True)
            stored, listed = Stored(url=store.url), await store.after(0)
        if not listed:
            raise RunFolderError(f"there is no run at {store.url!r}: it has no segment; see docs/stores.md")
        stored = await take_in(store, place, stored, [one for one in listed if one.number > stored.number])
        stored.save(place)
    return folder_in(place)


async def take_in(store: RunStore, place: Path, stored: Stored, listed: Sequence[Listed]) -> Stored:
    """Add segments to the run folder of a place; return its new state, which is to be saved.

    Repeatable after an interruption: adding existing content changes nothing. Raises StorageError: the segments do not
    continue the folder, or hold what no run has written.
    """
    if not listed:
        return stored
    path, ends, ended, config = folder_in(place), stored.ends, stored.ended, None
    make(path)
    with restoring(path / JOURNAL) as restore:
        async for segment in store.read_all(one.number for one in listed):
            try:
                config = RunConfig.model_validate(segment.config)
                _add(path, segment, segment.part(), ends, restore)
            except ValueError as error:
                raise StorageError(
                    f"segment {segment.number} in {store.url!r} holds what no run has written: {first_line(error)}"
                ) from error
            ends, ended = segment.ends, segment.ended
        if config is not None:
            totals = RunStats().with_lines(RunFolder(path, config).episodes())
            restore((), (), {TOTALS: totals.to_json()})
    if config is not None:
        config.save(path / CONFIG)
    with JournalReader.read(path / JOURNAL) as journal:
        rows = {JOURNAL: journal.last_row()}
    ends = ends.model_copy(update={"paid": rows})
    return stored.model_copy(update={"number": listed[-1].number, "ends": ends, "ended": ended})


def _add(path: Path, segment: Segment, part: Part, before: Ends, restore: Restore) -> None:
    _check(part, before)
    for name in FILES:
        file, data, start = path / f"{name}.jsonl", getattr(part, name), getattr(before, name)
        cut(file, end=start)
        try:
            with open_to_append(file) as opened:
                if opened.seek(0, 2) != start:
                    raise StorageError(f"{str(file)!r} was changed by something else; move {str(path)!r} aside")
                opened.write(data)
        except OSError as error:
            raise cannot("write", file, error) from error
    notes = {name: None if value is None else value.encode() for name, value in segment.notes.items() if name != TOTALS}
    restore(part.paid, part.entries, notes)


def _check(part: Part, before: Ends) -> None:
    """Raises: ValueError: The part does not go from there to where it says."""
    ends = [(before.entries, before.trajectories, before.rejected)]
    ends += [(entry.index + 1, entry.trajectories_end or 0, entry.rejected_end or 0) for entry in part.entries]
    lines = [EpisodeLine.model_validate_json(entry.line).index for entry in part.entries]
    after = part.ends
    if (
        [count for count, *_ in ends] != [*range(before.entries, before.entries + len(ends))]
        or any(one[1] > then[1] or one[2] > then[2] for one, then in pairwise(ends))
        or lines != [entry.index for entry in part.entries]
        or ends[-1] != (after.entries, after.trajectories, after.rejected)
        or any(getattr(before, name) + len(getattr(part, name)) != getattr(after, name) for name in FILES)
    ):
        raise ValueError("it does not go on where the one before it ends")
