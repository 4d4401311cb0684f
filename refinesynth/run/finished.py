"""One episode that has ended, as bytes ready for the files: what waits for its turn holds no values in memory."""

from dataclasses import dataclass

from refinesynth.errors import StorageError
from refinesynth.journal import Entry
from refinesynth.outcome import EpisodeOutcome
from refinesynth.run.episodes import EpisodeLine


@dataclass(frozen=True, slots=True, kw_only=True)
class Finished:
    """An episode's outcome, written down. No line holds a newline."""

    line: EpisodeLine
    """What the counts need."""
    trajectory: bytes | None
    """Its line of trajectories.jsonl; None if nothing was accepted."""
    rejected: tuple[bytes, ...]
    """Its lines of rejected.jsonl."""

    @classmethod
    def of(cls, outcome: EpisodeOutcome) -> "Finished":
        """Write an outcome down."""
        return cls(
            line=EpisodeLine.of(outcome),
            trajectory=None if outcome.trajectory is None else outcome.trajectory.to_json(),
            rejected=tuple(refused.to_json() for refused in outcome.refused),
        )

    @property
    def index(self) -> int:
        """The persona's position in the source, from 0."""
        return self.line.index

    @property
    def id(self) -> str:
        """The episode's id."""
        return self.line.id

    @property
    def persona(self) -> str:
        """`fingerprint` of the persona."""
        return self.line.persona

    def waiting(self) -> Entry:
        """The journal's entry while an earlier episode is missing: it holds the lines as well."""
        return self._entry(held=b"\n".join((self.trajectory or b"", *self.rejected)))

    def written(self, *, trajectories_end: int, rejected_end: int) -> Entry:
        """The journal's entry once the lines are in the files, which have so many bytes then."""
        return self._entry(trajectories_end=trajectories_end, rejected_end=rejected_end)

    @classmethod
    def read(cls, entry: Entry) -> "Finished":
        """An episode back from its `waiting` entry.

        Raises:
            StorageError: This is no such entry.
        """
        line = EpisodeLine.from_json(entry.line)
        if entry.held is None:
            raise StorageError(f"the journal is damaged: it has lost episode {entry.index}, which waited for its turn")
        trajectory, *rejected = entry.held.split(b"\n")
        return cls(line=line, trajectory=trajectory or None, rejected=tuple(rejected))

    def _entry(
        self, *, held: bytes | None = None, trajectories_end: int | None = None, rejected_end: int | None = None
    ) -> Entry:
        return Entry(
            index=self.index,
            id=self.id,
            persona=self.persona,
            accepted=self.line.accepted,
            line=self.line.to_json(),
            held=held,
            trajectories_end=trajectories_end,
            rejected_end=rejected_end,
        )
