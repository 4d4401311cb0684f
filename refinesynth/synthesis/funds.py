"""What a pool asks about money before it starts an episode."""

from typing import Protocol


class Funds(Protocol):
    """What a run can afford; `BudgetTracker` is one."""

    def may_start(self, in_flight: int) -> bool:
        """Whether one more episode is expected to be paid to its end, beside so many that have begun."""
        ...


class Unbounded:
    """Funds without end."""

    def may_start(self, in_flight: int) -> bool:  # noqa: ARG002
        """Always."""
        return True
