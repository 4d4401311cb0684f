"""Runs as arguments of commands, and their records, read line by line."""

import random
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, cast

import anyio
import orjson
import typer

from refinesynth.errors import InputError, RefinesynthError, RunFolderError
from refinesynth.files.output_folder import is_url
from refinesynth.journal import JournalReader
from refinesynth.outcome import Refused
from refinesynth.run.jsonl import read_lines
from refinesynth.run.run_folder import JOURNAL
from refinesynth.stores import fetch
from refinesynth.trajectory import Trajectory, explain

ACCEPTED = "trajectories.jsonl"
REFUSED = "rejected.jsonl"


def run_here(place: str) -> Path:
    """The path itself; for a run in an object store, the path of its updated copy in the cache."""
    return anyio.run(fetch, place) if is_url(place) else Path(place)


Run = Annotated[Path, typer.Argument(metavar="RUN", parser=run_here, help="Folder or URL of a run.")]
RunOrFile = Annotated[
    Path,
    typer.Argument(metavar="RUN", parser=run_here, help="Folder or URL of a run, or a JSONL file that a run wrote."),
]


@dataclass(frozen=True)
class Line:
    """One line of a file, not parsed yet."""

    path: Path
    number: int
    data: bytes

    def read(self) -> Trajectory | Refused:
        """Parse the record; its keys determine its type. Raises InputError for other data."""
        try:
            return _record(self.data)
        except ValueError as error:
            raise InputError(f"line {self.number} of {self.path} cannot be read: {explain(error)}") from error


def is_run(source: Path) -> bool:
    """True for a run folder, false for a file; raises RunFolderError for anything else."""
    if not source.exists():
        raise RunFolderError(f"there is no {str(source)!r}; give the folder of a run, or a JSONL file that a run wrote")
    if not source.is_dir():
        return False
    if not any((source / name).is_file() for name in (ACCEPTED, REFUSED, "config.json")):
        raise RunFolderError(f"{str(source)!r} is not the folder of a run: it holds no {ACCEPTED}")
    return True


def file_of(source: Path, *, refused: bool = False) -> Path:
    """The file of accepted or refused records in a run folder, or `source` itself; raises RunFolderError for neither."""
    return source / (REFUSED if refused else ACCEPTED) if is_run(source) else source


def lines(path: Path) -> Iterator[Line]:
    """Yield the lines of a file that are not blank; a missing file has none.

    From files of a run only complete lines are read, and with a journal only those that it counts. The other lines are
    not committed, because a process is writing them or was killed.

    Raises:
        StorageError: The journal cannot be read.
        RunFolderError: Lines that the journal counts are missing.
    """
    of_run = path.name in {ACCEPTED, REFUSED} and any(
        path.with_name(name).is_file() for name in (JOURNAL, "config.json")
    )
    raw = read_lines(path, end=_counted_end(path)) if of_run else _every_line(path)
    for number, data in enumerate(raw, start=1):
        if data.strip():
            yield Line(path, number, data)


def _counted_end(path: Path) -> int | None:
    journal = path.with_name(JOURNAL)
    if not journal.is_file():
        return None
    with JournalReader(journal) as reader:
        counted = reader.committed
    return counted.trajectories_end if path.name == ACCEPTED else counted.rejected_end


def _every_line(path: Path) -> Iterator[bytes]:
    """Yield the lines of a file, also a last one without a newline."""
    with suppress(FileNotFoundError), path.open("rb") as file:
        yield from file


def records(path: Path, on_spoilt: Callable[[RefinesynthError], object]) -> Iterator[Trajectory | Refused]:
    """Yield the records of a file; errors of unreadable lines go to `on_spoilt`."""
    for line in lines(path):
        try:
            record = line.read()
        except InputError as error:
            on_spoilt(error)
        else:
            yield record


def _record(data: bytes) -> Trajectory | Refused:
    value: object = orjson.loads(data)
    if not isinstance(value, dict):
        raise ValueError("this is JSON, but not an object")
    keys = cast("dict[str, object]", value).keys()
    if {"episode", "stage"} <= keys:
        return Refused.model_validate(value)
    if {"script", "turns"} <= keys:
        return Trajectory.model_validate(value)
    raise ValueError(f"an object with the keys {sorted(keys)[:8]} is neither a trajectory nor a refused draft")


_NAMED = 5
_DIGITS = 6


def key(record: Trajectory | Refused) -> str:
    """The id of the record's episode."""
    return record.id if isinstance(record, Trajectory) else record.episode


def by_id(among: Iterable[Line], wanted: str) -> list[Trajectory | Refused]:
    """Records of one episode, by its id, its number, or a prefix of its id; raises InputError for none or several."""
    start = f"{wanted.zfill(_DIGITS)}-" if wanted.isdecimal() else wanted
    # Ids are plain text, which JSON does not escape: a line without the text holds no such id and need not be parsed.
    needles = {text.encode(errors="replace") for text in (f'"{wanted}"', f'"{start}')}
    matches: dict[str, list[Trajectory | Refused]] = {}
    for line in among:
        if not any(needle in line.data for needle in needles):
            continue
        with suppress(InputError):
            record = line.read()
            if key(record) == wanted or key(record).startswith(start):
                matches.setdefault(key(record), []).append(record)
    if wanted in matches:
        return matches[wanted]
    if not matches:
        raise InputError(f"no id is or begins with {wanted!r}; `--list` lists them")
    if len(matches) > 1:
        more = f" and {len(matches) - _NAMED:,} more" if len(matches) > _NAMED else ""
        raise InputError(f"{wanted!r} is the beginning of {len(matches):,} ids: {', '.join([*matches][:_NAMED])}{more}")
    return next(iter(matches.values()))


def drawn(among: Iterable[Line]) -> Line | None:
    """One line drawn uniformly in one pass; None without lines."""
    chosen: Line | None = None
    for seen, line in enumerate(among):
        if random.randrange(seen + 1) == 0:
            chosen = line
    return chosen
