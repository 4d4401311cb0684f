"""One episode that has ended."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """How an episode ended.

    It is held until every earlier episode has ended, and committed once its records are in the run's files.
    """

    index: int
    """The persona's position in the run's source, from 0."""
    id: str
    """Id of the episode."""
    persona: str
    """Fingerprint of the persona."""
    accepted: bool
    """Whether it gave a trajectory."""
    line: bytes
    """Its counts, as JSON."""
    held: bytes | None = None
    """Its records, as long as they are in no file. None once they are, and where they were not asked for."""
    trajectories_end: int | None = None
    """Size of trajectories.jsonl after this episode, in bytes; None while it is held."""
    rejected_end: int | None = None
    """Size of rejected.jsonl after this episode, in bytes; None while it is held."""

    @property
    def is_held(self) -> bool:
        """Whether its records are still to be written to the run's files."""
        return self.trajectories_end is None
