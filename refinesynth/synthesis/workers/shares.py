"""Shares of a run's budget, which go out with blocks and come back with what is left of them."""

from dataclasses import dataclass

import anyio
from pydantic_ai.usage import RequestUsage

from refinesynth.client.budget.budget import Budget
from refinesynth.client.budget.tracker import BudgetTracker, EpisodeTracker
from refinesynth.errors import BudgetSpent

_GENEROUS = 2
"""Multiple of what a block is expected to take that it is given, twice as much after each time that it came back with
episodes that it could not pay for."""


class Shares:
    """Gives out what is left of a budget: all shares and what was spent come to no more than it when one is given.

    A share may be passed by the answer to its last request, as a budget in one process may.
    """

    def __init__(self, tracker: BudgetTracker) -> None:
        self.tracker = tracker
        self._out = 0
        self._changed = anyio.Event()

    async def take(self, episodes: int, *, tries: int) -> "Share":
        """A share for so many episodes, which came back unpaid `tries` times; without a budget, one without limit. Waits
        until others come back, if too little is left.

        Raises:
            BudgetSpent: Nothing is left.
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
        amounts = [self._part(amount, need, tries) for amount, need in pairs]
        for limit, amount in zip(limits, amounts, strict=True):
            limit.at_worst += amount
        share = Share(
            self, amounts, everything=not self._out and any(a == b for a, b in zip(amounts, left, strict=True))
        )
        self._out += 1
        return share

    def _part(self, left: float, need: float, tries: int) -> float:
        """The amount of a limit that a block is given, above 0."""
        if need:
            return min(left, _GENEROUS * 2**tries * need)
        # Nothing is known to cost anything, as with a server of one's own.
        return left if tries and not self._out else left / 2

    def spent(self) -> BudgetSpent:
        """The error for an episode that cannot be paid for; no more are begun."""
        self.tracker.refuse()
        return BudgetSpent(
            f"the budget of {self.tracker.budget} is spent: what is left of it does not pay for a request."
        )

    def returned(self) -> None:
        """A share came back: all who wait look again."""
        self._out -= 1
        self._changed.set()
        self._changed = anyio.Event()


@dataclass
class Share:
    """The budget of one block."""

    shares: Shares
    amounts: list[float]
    """Left of it, for every limit of the budget."""
    everything: bool
    """True if nothing was left beside it, of one of the limits."""

    @property
    def budget(self) -> Budget | None:
        """The share, as the budget of another process; None without a limit."""
        if not self.amounts:
            return None
        usd, tokens = self.shares.tracker.budget.usd, self.shares.tracker.budget.tokens
        return Budget(usd=None if usd is None else self.amounts[0], tokens=None if tokens is None else self.amounts[-1])

    def count(self, usage: RequestUsage, cost_usd: float | None, *, episode: EpisodeTracker | None) -> None:
        """Count a completion of the block."""
        tracker = self.shares.tracker
        before = [limit.spent for limit in tracker.limits]
        tracker.count(usage, cost_usd, episode=episode)
        for at, (limit, spent) in enumerate(zip(tracker.limits, before, strict=True)):
            self._put_back(at, min(self.amounts[at], limit.spent - spent))

    def give_back(self) -> None:
        """The block is over."""
        for at, amount in enumerate(self.amounts):
            self._put_back(at, amount)
        self.shares.returned()

    def _put_back(self, at: int, amount: float) -> None:
        self.amounts[at] -= amount
        self.shares.tracker.limits[at].at_worst -= amount
