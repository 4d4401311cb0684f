"""A limit of a search's work that is the same on every machine, however fast."""

from dataclasses import dataclass

MAX_WORK = 20_000_000_000
"""Work of one search by default: some tens of seconds, which only rulebooks made to be slow ever need."""

BASE = 1_000
"""What asking or changing anything costs, however small: the same unit as that of a condition's cost, bytes of state
touched."""


class WorkLimitExceeded(Exception):
    """All of the work that was allowed is done. Caught where the limit was set up."""


@dataclass
class WorkLimit:
    """Counts work, estimated from above and the same each time."""

    left: int = MAX_WORK
    size: int = 0
    """Bytes of the state that is being looked at."""

    def charge(self, work: int) -> None:
        """Count this work.

        Raises:
            WorkLimitExceeded: Nothing is left.
        """
        self.left -= work
        if self.left < 0:
            raise WorkLimitExceeded
