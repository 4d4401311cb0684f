"""Shares of a run's budget: each block takes one and gives back the remainder."""

from dataclasses import dataclass

import anyio
from pydantic_ai.usage import RequestUsage

from refinesynth.client.budget.budget import Budget
from refinesynth.client.budget.tracker import BudgetTracker, EpisodeTracker
from refinesynth.errors import BudgetSpent

_GENEROUS = 2
"""Share of a block as a multiple of its expected cost; doubled each time that the block could not pay for all episodes."""


class Shares:
    """Gives out the remainder of a budget. When a share is given, all shares and the money spent are within the budget.

    The answer to its last request may exceed a share, as it may exceed the budget of one process.
    """

    def __init__(self, tracker: BudgetTracker) -> None:
        self.tracker = tracker
        self._out = 0
        self._changed = anyio.Event()

    async def take(self, episodes: int, *, tries: int) -> "Share":
        """Return a share for so many episodes that came back unpaid `tries` times; unlimited without a budget.

        Waits for other shares to come back while too little is left. Raises BudgetSpent: nothing is left.
        """
        limits = self.tracker.limits
        while True:
            left = [limit.limit - limit.spent - limit.at_worst for limit in limits]
            expected = [limit.mean * episodes for limit in limits]
            pairs = list(zip(left, expected, strict=True))
            if not self._out and any(amount <= 0 for amount in left):
                raise self.spent()
            if not self._out or all(amount > (need if tries else 0) for amount, need in pairs):
                break
            await self._changed.wait()
        # Without a known cost, as with a self-hosted server, half of what is left.
        unknown = 1 if tries and not self._out else 2
        amounts = [min(amount, _GENEROUS * 2**tries * need) if need else amount / unknown for amount, need in pairs]
        for limit, amount in zip(limits, amounts, strict=True):
            limit.at_worst += amount
        share = Share(
            self, amounts, everything=not self._out and any(a == b for a, b in zip(amounts, left, strict=True))
        )
        self._out += 1
        return share

    def spent(self) -> BudgetSpent:
        """Begin no more episodes, and return the error for one that cannot be paid for."""
        self.tracker.refuse()
        return BudgetSpent(
            f"the budget of {self.tracker.budget} is spent: what is left of it does not pay for a request."
        )

    def returned(self) -> None:
        self._out -= 1
        self._changed.set()
        self._changed = anyio.Event()


@dataclass
class Share:
    """The budget of one block."""

    shares: Shares
    amounts: list[float]
    """Remainder for every limit of the budget."""
    everything: bool
    """True if the share is all that was left of one of the limits."""

    @property
    def budget(self) -> Budget | None:
        """The share as the budget of another process; None without a limit."""
        if not self.amounts:
            return None
        usd, tokens = self.shares.tracker.budget.usd, self.shares.tracker.budget.tokens
        return Budget(usd=None if usd is None else self.amounts[0], tokens=None if tokens is None else self.amounts[-1])

    def count(self, usage: RequestUsage, cost_usd: float | None, *, episode: EpisodeTracker | None) -> None:
        """Count a completion of the block against its share."""
        tracker = self.shares.tracker
        before = [limit.spent for limit in tracker.limits]
        tracker.count(usage, cost_usd, episode=episode)
        for at, (limit, spent) in enumerate(zip(tracker.limits, before, strict=True)):
            self._put_back(at, min(self.amounts[at], limit.spent - spent))

    def give_back(self) -> None:
        for at, amount in enumerate(self.amounts):
            self._put_back(at, amount)
        self.shares.returned()

    def _put_back(self, at: int, amount: float) -> None:
        self.amounts[at] -= amount
        self.shares.tracker.limits[at].at_worst -= amount
