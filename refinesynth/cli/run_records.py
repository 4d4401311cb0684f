"""Runs as arguments of commands; their records, read line by line; texts about their cost and continuation."""

import random
import shlex
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, cast

import anyio
import orjson
import typer

from refinesynth.cli.terminal import note
from refinesynth.errors import InputError, RefinesynthError, RunFolderError
from refinesynth.files.output_folder import is_url
from refinesynth.journal import JournalReader
from refinesynth.outcome import Cost, Refused
from refinesynth.run.jsonl import read_lines
from refinesynth.run.run_folder import JOURNAL, RunFolder, waiting_note
from refinesynth.run.stats import Spending
from refinesynth.stores import fetch
from refinesynth.text.formatting import compact, counted, dollars, one_line
from refinesynth.trajectory import Trajectory, explain

ACCEPTED = "trajectories.jsonl"
REFUSED = "rejected.jsonl"


def local_path(location: str) -> Path:
    """The path itself; for a run in an object store, the path of its updated copy in the cache."""
    return anyio.run(fetch, location) if is_url(location) else Path(location)


Run = Annotated[Path, typer.Argument(metavar="RUN", parser=local_path, help="Folder or URL of a run.")]
RunOrFile = Annotated[
    Path,
    typer.Argument(
        metavar="RUN",
        parser=local_path,
        help="Folder or URL of a run, or a JSONL file that a run wrote, also .gz.",
    ),
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


def note_waiting(source: Path) -> None:
    """Print a note if accepted trajectories of a run are not in its files yet."""
    if (source / JOURNAL).is_file() and (waiting := RunFolder.open(source).waiting_accepted()):
        note(waiting_note(waiting))


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
    is_of_run = path.name in {ACCEPTED, REFUSED} and any(
        path.with_name(name).is_file() for name in (JOURNAL, "config.json")
    )
    end, journal = None, path.with_name(JOURNAL)
    if is_of_run and journal.is_file():
        with JournalReader(journal) as reader:
            end = reader.committed.trajectories_end if path.name == ACCEPTED else reader.committed.rejected_end
    for number, data in enumerate(read_lines(path, end=end, unfinished=not is_of_run), start=1):
        if data.strip():
            yield Line(path, number, data)


def records(path: Path, on_unreadable: Callable[[RefinesynthError], object]) -> Iterator[Trajectory | Refused]:
    """Yield the records of a file; errors of unreadable lines go to `on_unreadable`."""
    for line in lines(path):
        try:
            record = line.read()
        except InputError as error:
            on_unreadable(error)
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


_LIMIT = 5
_NUMBER_DIGITS = 6


def episode_id(record: Trajectory | Refused) -> str:
    """The id of the record's episode."""
    return record.id if isinstance(record, Trajectory) else record.episode


def by_id(candidates: Iterable[Line], query: str) -> list[Trajectory | Refused]:
    """Records of one episode, by its id, its number, or a prefix of its id; raises InputError for none or several."""
    prefix = f"{query.zfill(_NUMBER_DIGITS)}-" if query.isdecimal() else query
    # Ids are plain text, which JSON does not escape: a line without the text holds no such id and need not be parsed.
    needles = {text.encode(errors="replace") for text in (f'"{query}"', f'"{prefix}')}
    matches: dict[str, list[Trajectory | Refused]] = {}
    for line in candidates:
        if not any(needle in line.data for needle in needles):
            continue
        with suppress(InputError):
            record = line.read()
            if episode_id(record) == query or episode_id(record).startswith(prefix):
                matches.setdefault(episode_id(record), []).append(record)
    if query in matches:
        return matches[query]
    if not matches:
        raise InputError(f"no id is or begins with {query!r}; `--list` lists them")
    if len(matches) > 1:
        rest = f" and {len(matches) - _LIMIT:,} more" if len(matches) > _LIMIT else ""
        raise InputError(f"{query!r} is the beginning of {len(matches):,} ids: {', '.join([*matches][:_LIMIT])}{rest}")
    return next(iter(matches.values()))


def random_line(candidates: Iterable[Line]) -> Line | None:
    """One line drawn uniformly in one pass; None without lines."""
    chosen: Line | None = None
    for index, line in enumerate(candidates):
        if random.randrange(index + 1) == 0:
            chosen = line
    return chosen


def continue_command(arguments: Sequence[str], path: Path) -> str:
    """The same command with the run's folder and without `--fresh`."""
    repeated = [argument for argument in arguments if argument != "--fresh"]
    has_output = any(
        argument in {"-o", "--output"} or argument.startswith(("-o", "--output=")) for argument in repeated
    )
    return shlex.join(["refinesynth", *repeated, *([] if has_output else ["-o", str(path)])])


_MIN_SHARE = 0.005
"""Smallest share that is shown."""


def amount(spent: Cost, *, whole: Cost) -> str:
    """`0.0242 USD`, or `12.3k tokens` if the whole has no price."""
    if whole.cost_usd:
        return dollars(spent.cost_usd or 0.0)
    return f"{compact(spent.tokens)} tokens"


def by_outcome(spending: Spending) -> str:
    """`93% on accepted trajectories, 5% on what rules refused, 2% on what was not needed or not finished`."""
    return _shares(
        {
            "on accepted trajectories": spending.kept,
            "on what rules refused": sum(spending.wasted.values(), Cost()),
            "on episodes that gave none": spending.fruitless,
            "on what was not needed or not finished": spending.unneeded,
        },
        whole=spending.total,
    )


def estimated(spending: Spending) -> str:
    """`tokens of 12 of 80 requests are estimated: no usage was reported`; empty without any."""
    count, total = spending.estimated.usage.requests, spending.total.usage.requests
    return f"tokens of {count:,} of {counted(total, 'request')} are estimated: no usage was reported" if count else ""


def _shares(parts: Mapping[str, Cost], *, whole: Cost) -> str:
    """`52% player, 40% dungeon master, 8% script writer`; empty for fewer than two parts."""
    total = whole.cost_usd or whole.tokens
    if not total:
        return ""
    shares = {
        name: (spent.cost_usd or 0.0 if whole.cost_usd else spent.tokens) / total for name, spent in parts.items()
    }
    shown = [name for name in sorted(shares, key=lambda name: -shares[name]) if shares[name] >= _MIN_SHARE]
    return ", ".join(f"{shares[name]:.0%} {one_line(name, size=40)}" for name in shown) if len(shown) > 1 else ""
