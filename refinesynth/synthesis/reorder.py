"""Outcomes come in any order and are handed on in the order of the personas."""

from refinesynth.outcome import EpisodeOutcome


class Reorder:
    """Holds outcomes until every earlier one has come. How many run ahead is the caller's business."""

    def __init__(self, *, first: int = 0) -> None:
        """Expect the outcome with index `first` next."""
        self.next = first
        """Index of the outcome that is in its turn."""
        self._held: dict[int, EpisodeOutcome] = {}

    def add(self, outcome: EpisodeOutcome) -> None:
        """Hold an outcome.

        Raises:
            ValueError: This index was there before.
        """
        if outcome.index < self.next or outcome.index in self._held:
            raise ValueError(f"episode {outcome.index} has finished twice")
        self._held[outcome.index] = outcome

    def peek(self) -> EpisodeOutcome | None:
        """The outcome that is in its turn, if it has come; it stays."""
        return self._held.get(self.next)

    def advance(self) -> None:
        """Let go of the outcome that is in its turn."""
        del self._held[self.next]
        self.next += 1

    def held(self) -> list[EpisodeOutcome]:
        """What was not let go of, by index."""
        return [self._held[index] for index in sorted(self._held)]
