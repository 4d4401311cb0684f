"""A bound on a search's work that does not depend on how fast the machine is."""

from dataclasses import dataclass

MOST_WORK = 20_000_000_000
"""Work of one search unless told otherwise: some tens of seconds, which only rulebooks made to be slow ever need."""

BASE = 1_000
"""What asking or changing anything costs, however small: the same unit as that of a condition's cost, bytes of state touched."""


class Cost(Exception):
    """All of the work that was allowed is done. Caught where the meter was set up."""


@dataclass
class Meter:
    """Counts work, estimated from above and the same each time."""

    left: int = MOST_WORK
    size: int = 0
    """Bytes of the state that is being looked at."""

    def charge(self, work: int) -> None:
        """Count this work.

        Raises:
            Cost: Nothing is left.
        """
        self.left -= work
        if self.left < 0:
            raise Cost
