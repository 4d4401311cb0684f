"""Shares of a run's budget, each for a block of episodes in another process."""

from dataclasses import dataclass

import anyio
from pydantic_ai.usage import RequestUsage

from refinesynth.client.budget.budget import Budget
from refinesynth.client.budget.tracker import BudgetTracker, EpisodeTracker
from refinesynth.errors import BudgetSpent

_SHARE_FACTOR = 2
"""Share of a block as a multiple of its expected cost; doubled each time a share did not pay for all episodes."""


class Shares:
    """Shares of the remaining budget. When a share is given, all shares and the spent amount are within the budget.

    The last completion of a share may exceed the share, as the last one of a process may exceed the budget.
    """

    def __init__(self, tracker: BudgetTracker) -> None:
        self.tracker = tracker
        self._open_shares = 0
        self._changed = anyio.Event()

    async def take(self, episodes: int, *, attempts: int) -> "Share":
        """Return a share for `episodes` that `attempts` earlier shares did not pay for; unlimited without a budget.

        Waits for the return of other shares while too little is left. Raises BudgetSpent: nothing is left.
        """
        limits = self.tracker.limits
        while True:
            remaining = [limit.limit - limit.spent - limit.worst_case for limit in limits]
            expected = [limit.mean * episodes for limit in limits]
            pairs = list(zip(remaining, expected, strict=True))
            if not self._open_shares and any(amount <= 0 for amount in remaining):
                raise self.spent()
            if not self._open_shares or all(amount > (cost if attempts else 0) for amount, cost in pairs):
                break
            await self._changed.wait()
        # Without a known cost, as for a self-hosted server, a share is half of the remainder.
        divisor = 1 if attempts and not self._open_shares else 2
        factor = _SHARE_FACTOR * 2**attempts
        amounts = [min(amount, factor * cost) if cost else amount / divisor for amount, cost in pairs]
        for limit, amount in zip(limits, amounts, strict=True):
            limit.worst_case += amount
        takes_all = not self._open_shares and any(a == b for a, b in zip(amounts, remaining, strict=True))
        share = Share(self, amounts, takes_all=takes_all)
        self._open_shares += 1
        return share

    def spent(self) -> BudgetSpent:
        """Start no more episodes, and return the error for an episode that the budget does not pay for."""
        self.tracker.refuse()
        return BudgetSpent(
            f"the budget of {self.tracker.budget} is spent: what is left of it does not pay for a request."
        )

    def note_return(self) -> None:
        self._open_shares -= 1
        self._changed.set()
        self._changed = anyio.Event()


@dataclass
class Share:
    """Share of the budget for one block of episodes."""

    shares: Shares
    amounts: list[float]
    """Remainder of the share for every limit of the budget."""
    takes_all: bool
    """True if the share took the whole remainder of one of the limits."""

    @property
    def budget(self) -> Budget | None:
        """The share as the budget of another process; None without a limit."""
        names = ("tokens" if limit.is_tokens else "usd" for limit in self.shares.tracker.limits)
        return Budget(**dict(zip(names, self.amounts, strict=True))) if self.amounts else None

    def count(self, usage: RequestUsage, cost_usd: float | None, *, episode: EpisodeTracker | None) -> None:
        """Count a completion of the block against its share."""
        tracker = self.shares.tracker
        spent_before = [limit.spent for limit in tracker.limits]
        tracker.count(usage, cost_usd, episode=episode)
        for index, (limit, spent) in enumerate(zip(tracker.limits, spent_before, strict=True)):
            self._put_back(index, min(self.amounts[index], limit.spent - spent))

    def give_back(self) -> None:
        for index, amount in enumerate(self.amounts):
            self._put_back(index, amount)
        self.shares.note_return()

    def _put_back(self, index: int, amount: float) -> None:
        self.amounts[index] -= amount
        self.shares.tracker.limits[index].worst_case -= amount
