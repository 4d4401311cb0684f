"""One episode that has ended, as bytes ready for the files: what waits for its turn holds no values in memory."""

from collections.abc import Callable
from dataclasses import dataclass, replace

from refinesynth.errors import StorageError
from refinesynth.journal import Entry
from refinesynth.outcome import EpisodeOutcome, Refused
from refinesynth.run.episodes import EpisodeLine
from refinesynth.trajectory import Trajectory


@dataclass(frozen=True, slots=True, kw_only=True)
class Finished:
    """An episode's outcome, written down. No line holds a newline."""

    line: EpisodeLine
    """What the counts need."""
    trajectories: tuple[bytes, ...]
    """Its lines of trajectories.jsonl; none if nothing was accepted."""
    rejected: tuple[bytes, ...]
    """Its lines of rejected.jsonl."""
    doubtful: bool = False
    """See `EpisodeOutcome.doubtful`; such a one is not written before another episode has shown that settings are
    right."""

    @classmethod
    def of(cls, outcome: EpisodeOutcome) -> "Finished":
        """Write an outcome down."""
        return cls(
            line=EpisodeLine.of(outcome),
            trajectories=tuple(trajectory.to_json() for trajectory in outcome.trajectories),
            rejected=tuple(refused.to_json() for refused in outcome.refused),
            doubtful=outcome.doubtful,
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
        # An empty line stands where there is no trajectory, as it did when there could be no more than one.
        return self._entry(held=b"\n".join((*(self.trajectories or (b"",)), *self.rejected)))

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
        records = entry.held.split(b"\n")
        first = max(1, line.trajectories)
        if len(records) < first or (not line.trajectories and records[0]):
            raise StorageError(
                f"the journal is damaged: episode {entry.index}, which waited for its turn, has not the records that it counts"
            )
        return cls(line=line, trajectories=tuple(records[: line.trajectories]), rejected=tuple(records[first:]))

    def curated(self, curate: Callable[[EpisodeOutcome], EpisodeOutcome]) -> "Finished":
        """This episode after `curate`, which may refuse trajectories of it; itself if it has none, or none was touched.

        Raises:
            StorageError: Its lines are not what a run wrote.
        """
        if not self.trajectories:
            return self
        before = self._outcome()
        after = curate(before)
        if after == before:
            return self
        finished = Finished.of(after)
        # Written down and read again, a persona's text may have lost what no file can hold.
        return replace(finished, line=finished.line.model_copy(update={"persona": self.persona}))

    def _outcome(self) -> EpisodeOutcome:
        """What this was written from; it has a trajectory, which knows its persona."""
        try:
            trajectories = tuple(map(Trajectory.from_json, self.trajectories))
            refused = tuple(map(Refused.from_json, self.rejected))
        except ValueError as error:
            raise StorageError(
                f"the journal is damaged: what it holds of episode {self.index} cannot be read ({error})"
            ) from error
        return EpisodeOutcome(
            index=self.index,
            id=self.id,
            persona=trajectories[0].persona,
            trajectories=trajectories,
            refused=refused,
            usage=self.line.usage,
            cost_usd=self.line.cost_usd,
        )

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
