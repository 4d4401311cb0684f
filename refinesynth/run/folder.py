"""A run folder, to read: what was asked, what came out, what was refused, what was paid.

config.json          what was asked (`RunConfig`)
trajectories.jsonl   accepted, one `Trajectory` a line, in the order of the personas
rejected.jsonl       refused scripts and drafts with their violations, one `Refused` a line
episodes.jsonl       one `EpisodeLine` per finished episode; what is not listed here does not count
events.jsonl         what happened when
pending.jsonl        only if any: episodes that are finished and not yet in their turn, one `EpisodeOutcome` a line
"""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeVar

import orjson
from pydantic import BaseModel, ValidationError

from refinesynth.errors import RunFolderError
from refinesynth.outcome import EpisodeOutcome, Refused
from refinesynth.run.config import RunConfig
from refinesynth.run.episodes import EpisodeLine, Totals
from refinesynth.run.lines import read_lines
from refinesynth.trajectory import Trajectory, explain

RUN_FILES = frozenset(
    {"config.json", "trajectories.jsonl", "rejected.jsonl", "episodes.jsonl", "events.jsonl", "pending.jsonl"}
)
"""Everything that a run writes into its folder."""

_Value = TypeVar("_Value", bound=BaseModel)


class RunFolder:
    """Reads a run that is finished, interrupted or still going on; never writes.

    Everything is read lazily, and only complete lines of episodes that are listed in episodes.jsonl.
    """

    def __init__(self, path: Path, config: RunConfig) -> None:
        self.path = path
        self.config = config
        self.config_file = path / "config.json"
        self.trajectories_file = path / "trajectories.jsonl"
        self.rejected_file = path / "rejected.jsonl"
        self.episodes_file = path / "episodes.jsonl"
        self.events_file = path / "events.jsonl"
        self.pending_file = path / "pending.jsonl"

    @classmethod
    def open(cls, path: str | Path) -> "RunFolder":
        """Read a run's configuration.

        Raises:
            RunFolderError: There is no run at `path`.
        """
        path = Path(path)
        return cls(path, RunConfig.load(path / "config.json"))

    def __repr__(self) -> str:
        return f"{type(self).__name__}({str(self.path)!r})"

    def episodes(self) -> Iterator[EpisodeLine]:
        """Finished episodes, in the order of the personas.

        Raises:
            RunFolderError: A line is not one that a run wrote, or episodes are missing.
        """
        for index, line in enumerate(_read(self.episodes_file, EpisodeLine)):
            if line.index != index:
                raise RunFolderError(
                    f"line {index + 1} of {str(self.episodes_file)!r} is about episode {line.index}, not {index}; "
                    f"the file was changed after the run wrote it. Put the original back"
                )
            yield line

    def trajectories(self) -> Iterator[Trajectory]:
        """What was accepted, in the order of the personas.

        Raises:
            RunFolderError: A line is not a trajectory, or lines of listed episodes are missing.
        """
        return _read(self.trajectories_file, Trajectory, end=self._end(lambda line: line.trajectories_end))

    def refused(self) -> Iterator[Refused]:
        """Scripts and drafts that were refused, in the order of the personas.

        Raises:
            RunFolderError: A line is not one that a run wrote, or lines of listed episodes are missing.
        """
        return _read(self.rejected_file, Refused, end=self._end(lambda line: line.rejected_end))

    def pending(self, *, after: int = 0) -> dict[int, EpisodeOutcome]:
        """Episodes that are finished and wait for an earlier one, by index, from index `after` on.

        Raises:
            RunFolderError: A line is not one that a run wrote.
        """
        waiting = _read(self.pending_file, EpisodeOutcome)
        return {outcome.index: outcome for outcome in waiting if outcome.index >= after}

    def totals(self) -> Totals:
        """Sums over the episodes in episodes.jsonl; reads the whole file."""
        totals = Totals()
        for line in self.episodes():
            totals.add(line)
        return totals

    def _end(self, end_of: Callable[[EpisodeLine], int]) -> int | None:
        """Where the listed episodes end in another file, in bytes; None without episodes.jsonl, when all lines count."""
        if not self.episodes_file.exists():
            return None
        last = None
        for last in read_lines(self.episodes_file):  # noqa: B007
            pass
        return 0 if last is None else end_of(_parse(self.episodes_file, 0, last, EpisodeLine))


def _read(path: Path, kind: type[_Value], *, end: int | None = None) -> Iterator[_Value]:
    for number, line in enumerate(read_lines(path, end=end), start=1):
        yield _parse(path, number, line, kind)


def _parse(path: Path, number: int, line: bytes, kind: type[_Value]) -> _Value:
    try:
        return kind.model_validate(orjson.loads(line))
    except orjson.JSONDecodeError as error:
        problem = str(error)
    except ValidationError as error:
        problem = explain(error)
    raise RunFolderError(f"line {number} of {str(path)!r} is not a {kind.__name__} that a run wrote: {problem}")


def next_run_folder(parent: str | Path = "runs") -> Path:
    """Make and return the next free folder `parent/NNN`; two callers at once get two folders.

    Raises:
        RunFolderError: It cannot be made.
    """
    parent = Path(parent)
    try:
        parent.mkdir(parents=True, exist_ok=True)
        taken = [int(entry.name) for entry in parent.iterdir() if entry.name.isdecimal()]
        number = max(taken, default=0)
        while True:
            number += 1
            try:
                (parent / f"{number:03d}").mkdir()
            except FileExistsError:
                continue
            return parent / f"{number:03d}"
    except OSError as error:
        raise RunFolderError(f"cannot make a folder in {str(parent)!r}: {error.strerror or error}") from error
