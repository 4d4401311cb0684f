"""A run folder that is being written: outcomes are appended in the order of the personas, each whole or not at all."""

from collections.abc import Iterable
from pathlib import Path

from refinesynth.errors import RunFolderError
from refinesynth.outcome import EpisodeOutcome
from refinesynth.run.config import RunConfig, differences
from refinesynth.run.episodes import EpisodeLine, Totals
from refinesynth.run.events import open_events
from refinesynth.run.folder import RunFolder
from refinesynth.run.lines import LineWriter, cut_tail


class RunWriter(RunFolder):
    """Writes a run. Writes are small and blocking: what they cost is a copy into the system's page cache.

    A process that is killed may leave half an episode behind; `resume` cuts it off, and the episode is played again.
    """

    def __init__(self, path: Path, config: RunConfig) -> None:
        super().__init__(path, config)
        self.committed = Totals()
        """Sums over everything in episodes.jsonl; `committed.episodes` is the index of the next episode to append."""
        self._waiting: dict[int, EpisodeOutcome] = {}
        self._trajectories = LineWriter(self.trajectories_file)
        self._rejected = LineWriter(self.rejected_file)
        self._episodes = LineWriter(self.episodes_file)
        self._events = LineWriter(self.events_file)
        self.log = open_events(self._events)
        """structlog logger of events.jsonl."""

    @classmethod
    def create(cls, path: str | Path, config: RunConfig) -> "RunWriter":
        """Begin a run in a folder that is new or empty.

        Raises:
            RunFolderError: Something is there already, or it cannot be written.
        """
        path = Path(path)
        if _contents(path):
            raise RunFolderError(
                f"{str(path)!r} is not empty; give a new folder, or resume the run that is in it "
                f"(resume=True, --resume on the command line)"
            )
        try:
            path.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise RunFolderError(f"cannot make the folder {str(path)!r}: {error.strerror or error}") from error
        config.save(path / "config.json")
        return cls(path, config)

    @classmethod
    def resume(cls, path: str | Path, config: RunConfig) -> "RunWriter":
        """Continue the run in `path`, or begin one if nothing is there.

        Half-written lines are cut, and so are records of episodes that are not listed in episodes.jsonl.

        Raises:
            RunFolderError: What is there is not a run, was asked with other settings that would change the data, or was
                changed by something else; the message names each difference.
        """
        path = Path(path)
        if not _contents(path):
            return cls.create(path, config)
        before = RunFolder.open(path)
        if changed := differences(before.config, config):
            raise RunFolderError(
                f"{str(path)!r} was begun with other settings: {'; '.join(changed)}. Give the old settings to resume it, "
                f"or another folder for the new ones"
            )
        if not before.episodes_file.exists() and (_size(before.trajectories_file) or _size(before.rejected_file)):
            raise RunFolderError(
                f"{str(path)!r} has lost {before.episodes_file.name}, which says what of the rest counts; put it back, or "
                f"start in a new folder. What was accepted can still be exported"
            )
        cut_tail(before.episodes_file)
        cut_tail(before.events_file)
        committed, trajectories_end, rejected_end = Totals(), 0, 0
        for line in before.episodes():
            committed.add(line)
            trajectories_end, rejected_end = line.trajectories_end, line.rejected_end
        cut_tail(before.trajectories_file, end=trajectories_end)
        cut_tail(before.rejected_file, end=rejected_end)
        config.save(before.config_file)
        run = cls(path, config)
        run.committed = committed
        run._waiting = run.pending(after=committed.episodes)
        return run

    def take_waiting(self) -> dict[int, EpisodeOutcome]:
        """What pending.jsonl held when the run was resumed, by index; given once. The file stays until it is replaced."""
        waiting, self._waiting = self._waiting, {}
        return waiting

    def append(self, outcome: EpisodeOutcome) -> None:
        """Write one finished episode; the next in the order of the personas.

        Raises:
            RunFolderError: It cannot be written.
            ValueError: It is not the next episode.
        """
        if outcome.index != self.committed.episodes:
            raise ValueError(f"episode {outcome.index} was appended where episode {self.committed.episodes} is next")
        self._rejected.write(*(refused.to_json() for refused in outcome.refused))
        if outcome.trajectory is not None:
            self._trajectories.write(outcome.trajectory.to_json())
        line = EpisodeLine.of(outcome, trajectories_end=self._trajectories.end, rejected_end=self._rejected.end)
        # Last: only now does the episode count.
        self._episodes.write(line.to_json())
        self.committed.add(line)

    def keep_waiting(self, outcomes: Iterable[EpisodeOutcome]) -> None:
        """Replace pending.jsonl by these episodes, in one step; no episodes, no file.

        Raises:
            RunFolderError: It cannot be written.
        """
        fresh = self.pending_file.with_name(self.pending_file.name + ".new")
        try:
            fresh.unlink(missing_ok=True)
            lines = LineWriter(fresh)
            try:
                for outcome in outcomes:
                    lines.write(outcome.to_json())
            finally:
                lines.close()
            if lines.end:
                fresh.replace(self.pending_file)
            else:
                fresh.unlink()
                self.pending_file.unlink(missing_ok=True)
        except OSError as error:
            raise RunFolderError(f"cannot write {str(self.pending_file)!r}: {error.strerror or error}") from error

    def close(self) -> None:
        """Close all files."""
        for file in (self._trajectories, self._rejected, self._episodes, self._events):
            file.close()


def _size(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0


def _contents(path: Path) -> bool:
    """Whether something is in the folder.

    Raises:
        RunFolderError: `path` is not a folder, or cannot be looked into.
    """
    try:
        return path.exists() and any(path.iterdir())
    except OSError as error:
        raise RunFolderError(f"cannot use {str(path)!r} as a run folder: {error.strerror or error}") from error
