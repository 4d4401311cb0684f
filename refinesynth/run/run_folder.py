"""Reader of a run folder.

config.json          settings (`RunConfig`)
journal.sqlite       paid completions and finished episodes, with the valid sizes of the JSONL files
blocks/              journals of blocks that workers are playing, or that were killed
trajectories.jsonl   accepted trajectories, one `Trajectory` per line, in the order of the personas
rejected.jsonl       refused scripts and drafts with their violations, one `Refused` per line
events.jsonl         events with their times
run.lock             lock, with the process that writes
"""

import errno
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from os import PathLike
from pathlib import Path
from typing import Any, TypeAlias, TypeVar, cast

import orjson
from pydantic import BaseModel, TypeAdapter, ValidationError

from refinesynth.errors import InputError, RunFolderError, StorageError
from refinesynth.files.atomic_write import irregular_kind
from refinesynth.files.output_folder import is_file_of_run, is_run_file
from refinesynth.journal import Committed, JournalReader, Outstanding, SpentRow
from refinesynth.outcome import Refused
from refinesynth.personas import Personas, PersonaSource, open_personas
from refinesynth.run.completed_episode import EpisodeLine
from refinesynth.run.jsonl import operation_error, read_lines, size_of
from refinesynth.run.run_config import RunConfig, is_run_config
from refinesynth.run.stats import RunStats
from refinesynth.text.formatting import counted
from refinesynth.trajectory import Persona, ScriptedPersona, Trajectory, explain

JOURNAL = "journal.sqlite"
CONFIG = "config.json"

CARRIED = "carried"
"""Name of the journal's note with the costs of merged runs."""
_ROWS = TypeAdapter(list[SpentRow])


def refuse_irregular_files(folder: Path, *, follow: bool) -> None:
    """Raise RunFolderError if a file of a run is a FIFO, a device or a socket, or without `follow` a link."""
    for entry in sorted(folder.iterdir()) if folder.is_dir() else ():
        if is_run_file(entry.name) and (kind := irregular_kind(entry, follow=follow)):
            raise RunFolderError(
                f"{str(entry)!r} is {kind}, and a run reads and writes regular files alone; remove it or put the file "
                f"itself there"
            )


_Value = TypeVar("_Value", bound=BaseModel)


def _raise_error(error: RunFolderError) -> None:
    raise error


class RunFolder:
    """Reader of a finished, interrupted or running run, without writes and locks.

    Reads lines lazily, and only those that the journal counts. Without a journal, as in a copy of the JSONL files, all
    complete lines count. Every method raises `StorageError` if a journal cannot be read.
    """

    def __init__(self, path: Path, config: RunConfig) -> None:
        self.path = path
        self.config = config
        self.config_file = path / CONFIG
        self.journal_file = path / JOURNAL
        self.trajectories_file = path / "trajectories.jsonl"
        self.rejected_file = path / "rejected.jsonl"
        self.events_file = path / "events.jsonl"

    @classmethod
    def open(cls, path: str | Path) -> "RunFolder":
        """Read a run's configuration.

        Raises:
            RunFolderError: There is no run at `path`, or a file of the run is a FIFO, a device or a socket.
        """
        path = Path(path)
        refuse_irregular_files(path, follow=True)
        return RunFolder(path, RunConfig.load(path / CONFIG))

    def __repr__(self) -> str:
        return f"{type(self).__name__}({str(self.path)!r})"

    def episodes(self) -> Iterator[EpisodeLine]:
        """Yield the finished episodes with lines in the files, in the order of the personas."""
        with self._journal() as journal:
            for entry in journal.entries() if journal else ():
                if entry.is_held:
                    return
                yield EpisodeLine.from_json(entry.line)

    def waiting_lines(self) -> list[EpisodeLine]:
        """Return the finished episodes that are not in the files, by index: an earlier one is missing, or `n` is reached."""
        with self._journal() as journal:
            waiting = journal.entries(journal.committed.count) if journal else ()
            return [EpisodeLine.from_json(entry.line) for entry in waiting if entry.is_held]

    def waiting_accepted(self) -> int:
        """Return the number of accepted trajectories that wait for an earlier episode; 0 if the files hold `n`."""
        waiting = sum(line.trajectories for line in self.waiting_lines())
        return waiting if waiting and self.totals().accepted < self.config.n else 0

    def trajectories(self, *, on_invalid: Callable[[RunFolderError], None] = _raise_error) -> Iterator[Trajectory]:
        """Yield the accepted trajectories in the order of the personas.

        Raises RunFolderError: counted lines are missing, or a line is invalid. If `on_invalid` returns from the error
        of an invalid line, the line is left out.
        """
        part = self.committed_part()
        return _read_values(self.trajectories_file, Trajectory, part and part.trajectories_end, on_invalid)

    def refused(self) -> Iterator[Refused]:
        """Yield the refused scripts and drafts in the order of the personas; raises the errors of `trajectories`."""
        part = self.committed_part()
        return _read_values(self.rejected_file, Refused, part and part.rejected_end, _raise_error)

    def committed_part(self) -> Committed | None:
        """Return the number of committed episodes and the valid sizes of the files; None without a journal."""
        with self._journal() as journal:
            return journal.committed if journal else None

    def is_whole(self) -> bool:
        """Return whether the files have all bytes that the journal counts."""
        part = self.committed_part()
        return part is None or (
            size_of(self.trajectories_file) >= part.trajectories_end
            and size_of(self.rejected_file) >= part.rejected_end
        )

    def totals(self) -> RunStats:
        """Return the sums over the episodes in the files, in constant time; without a journal, count the lines."""
        with self._journal() as journal:
            if journal is not None:
                return RunStats() if journal.totals is None else RunStats.from_json(journal.totals)
        return RunStats.counted(accepted=self.trajectories(), refused=self.refused())

    def spent(self) -> list[SpentRow]:
        """Return usage and cost per role and model, unfinished episodes included; empty without a journal."""
        with self._journal() as journal:
            return summed((*journal.spent(), *_carried(journal))) if journal else []

    def outstanding(self) -> list[Outstanding]:
        """Return the unfinished episodes with paid completions: in flight or interrupted."""
        with self._journal() as journal:
            return journal.outstanding() if journal else []

    def _journal(self) -> AbstractContextManager[JournalReader | None]:
        return JournalReader(self.journal_file) if self.journal_file.exists() else nullcontext()


def event_in(line: bytes) -> dict[str, Any]:
    """Return the event in a line of events.jsonl; empty for a damaged line."""
    with suppress(orjson.JSONDecodeError):
        if isinstance(event := orjson.loads(line), dict):
            return cast("dict[str, Any]", event)
    return {}


def waiting_note(count: int) -> str:
    """Return a sentence about `RunFolder.waiting_accepted`; empty for 0."""
    if not count:
        return ""
    waiting = counted(count, "trajectory", "trajectories")
    return f"Accepted, but not in the files while an earlier episode is unfinished: {waiting}; continue the run to write them."


def _carried(journal: JournalReader) -> list[SpentRow]:
    """Return the sums of the completions of merged runs, which have no journal here."""
    try:
        return _ROWS.validate_json(journal.note(CARRIED) or b"[]")
    except ValueError as error:
        raise StorageError(f"the journal at {str(journal.path)!r} is damaged: its sums of other journals") from error


def summed(rows: Iterable[SpentRow]) -> list[SpentRow]:
    """Return the sums of several journals, per role and model."""
    sums: dict[tuple[str, str], SpentRow] = {}
    for row in rows:
        known = sums.get((row.role, row.model))
        sums[row.role, row.model] = row if known is None else known + row
    return list(sums.values())


def _read_values(
    path: Path,
    kind: type[_Value],
    end: int | None,
    on_invalid: Callable[[RunFolderError], None],
    *,
    unfinished: bool = False,
) -> Iterator[_Value]:
    for number, line in enumerate(read_lines(path, end=end, unfinished=unfinished), start=1):
        try:
            yield kind.model_validate(orjson.loads(line))
            continue
        except orjson.JSONDecodeError as error:
            problem = str(error)
        except ValidationError as error:
            problem = explain(error)
        on_invalid(
            RunFolderError(f"line {number} of {str(path)!r} is not a {kind.__name__} that a run wrote: {problem}")
        )


ScriptSource: TypeAlias = str | PathLike[str] | Iterable[Persona]
"""Run folder, file of trajectories, or iterable of `ScriptedPersona`s."""


def open_source(personas: PersonaSource | None, scripts: ScriptSource | None, *, column: str | None = None) -> Personas:
    """Open personas, or scripts with their personas in the order of the trajectories.

    Raises InputError: both are given, `column` is given without rows of personas, or the source cannot be read.
    """
    if column is not None and (personas is None or isinstance(personas, Persona)):
        raise InputError(f"column is {column!r}, and no rows of personas are given that could have it")
    if scripts is None:
        return open_personas(personas, column=column)
    if personas is not None:
        raise InputError("personas and scripts are both given; scripts come with the personas they were written for")
    if not isinstance(scripts, str | PathLike):
        return open_personas(scripts)
    source = open_personas(
        ScriptedPersona(text=trajectory.persona.text, script=trajectory.script)
        for trajectory in first_of_each_script(stored_trajectories(scripts))
    )
    source.description = f"the scripts of {str(Path(scripts))!r}"
    return source


def stored_trajectories(source: str | PathLike[str]) -> Iterator[Trajectory]:
    """Yield the trajectories of a run folder or of a JSONL file. Raises InputError: there is no such folder or file.

    A last line without a newline counts, except in a file of a run, where it is incomplete.
    """
    path = Path(source)
    if not path.exists():
        raise InputError(f"there is no {str(path)!r}; give the folder of a run, or a JSONL file of its trajectories")
    if path.is_dir():
        return RunFolder.open(path).trajectories()
    return _read_values(path, Trajectory, None, _raise_error, unfinished=not is_file_of_run(path))


def first_of_each_script(trajectories: Iterable[Trajectory]) -> Iterator[Trajectory]:
    seen = set[str]()
    for trajectory in trajectories:
        if (digest := trajectory.script.digest) not in seen:
            seen.add(digest)
            yield trajectory


def holds_run(path: Path) -> bool:
    """Return True if the folder's config.json is of a run or unreadable, as after damage."""
    file = path / CONFIG
    with suppress(OSError, orjson.JSONDecodeError):
        return file.is_file() and is_run_config(orjson.loads(file.read_bytes()))
    return True


def free_run_folder(parent: str | Path = "runs") -> Path:
    """Return the next free folder `parent/NNN` without creating it; raises the errors of `folder_errors`."""
    parent = Path(parent)
    numbers: list[int] = []
    with folder_errors("make a folder in", parent), suppress(FileNotFoundError):
        numbers = [int(entry.name) for entry in parent.iterdir() if entry.name.isdecimal()]
    return parent / f"{max(numbers, default=0) + 1:03d}"


def next_run_folder(parent: str | Path = "runs") -> Path:
    """Create and return the next free folder `parent/NNN`; concurrent callers get different folders."""
    parent = Path(parent)
    with folder_errors("make a folder in", parent):
        parent.mkdir(parents=True, exist_ok=True)
        folder = free_run_folder(parent)
        while True:
            with suppress(FileExistsError):
                folder.mkdir()
                return folder
            folder = parent / f"{int(folder.name) + 1:03d}"


_IMPOSSIBLE_PATH = frozenset({errno.ENOTDIR, errno.EEXIST, errno.ENAMETOOLONG, errno.EINVAL, errno.ELOOP, errno.ENOENT})
"""Error numbers for a path where no folder can be."""


@contextmanager
def folder_errors(operation: str, path: Path) -> Generator[None]:
    """Convert an `OSError` about a folder into an error with advice.

    Raises:
        RunFolderError: No folder can be at this path.
        StorageError: The folder cannot be created or used.
    """
    try:
        yield
    except OSError as error:
        if error.errno in _IMPOSSIBLE_PATH:
            raise RunFolderError(
                f"cannot {operation} {str(path)!r}: {error.strerror or error}; give another folder"
            ) from error
        raise operation_error(operation, path, error) from error
