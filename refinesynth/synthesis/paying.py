"""The tracker of a run: made from its budget, its backends' prices and what earlier processes have spent; what a pool
asks of it.
"""

import math
from collections.abc import Iterable, Sequence
from itertools import chain
from typing import TYPE_CHECKING, Protocol

from refinesynth.client.budget.budget import Budget
from refinesynth.cost import Cost
from refinesynth.errors import ConfigurationError
from refinesynth.journal import SpentRow
from refinesynth.run.episodes import EpisodeLine, Totals
from refinesynth.run.spending import spent_of

if TYPE_CHECKING:
    from refinesynth.backends import Backend
    from refinesynth.client.account import Price
    from refinesynth.client.budget.tracker import BudgetTracker


def prices_of(backends: "Iterable[Backend]", budget: Budget | None, *, injected: bool) -> "list[Price]":
    """What the backends cost, as far as the budget asks; with an `injected` completion function, by prices of their own
    only.

    Raises:
        ConfigurationError: The budget is in US dollars, and there is a backend whose price is unknown.
    """
    if budget is None or budget.usd is None:
        return []
    from refinesynth.client.budget.price_table import is_known, price_of

    prices: list[Price] = []
    for backend in chain.from_iterable(mixture.each for mixture in backends):
        price = price_of(backend, listings=not injected)
        if not is_known(price):
            raise ConfigurationError(
                f"a budget of {budget} needs prices, and that of {backend.label} is unknown: give input_price and "
                f"output_price of the backend in US dollars per million tokens (--set input_price=0.3 --set "
                f"output_price=1.2), or a budget in tokens (20Mtok)"
            )
        prices.append(price)
    return prices


def tracker_of(
    budget: Budget | None,
    prices: "Sequence[Price]",
    *,
    spent: Sequence[SpentRow],
    totals: Totals,
    waiting: Iterable[EpisodeLine] = (),
) -> "BudgetTracker":
    """The tracker of a run that has spent this so far; `waiting` are finished episodes that are not in `totals`.

    Raises:
        ConfigurationError: The budget is in US dollars, and what was spent so far had no price.
    """
    from refinesynth.client.budget.tracker import BudgetTracker

    before, ended, episodes = sum(map(spent_of, spent), Cost()), totals.spent, totals.episodes
    for line in waiting:
        ended, episodes = ended + line.spent, episodes + 1
    if budget is not None and budget.usd is not None and before.cost_usd is None:
        raise ConfigurationError(
            f"a budget of {budget} cannot be kept: the run has made {before.usage.requests:,} requests, and the price of some "
            f"was unknown; give a budget in tokens instead, it has used {before.tokens:,} so far"
        )
    return BudgetTracker(budget, spent=before, ended=ended, episodes=episodes, prices=prices)


def what_it_takes(budget: Budget, spent: Cost, *, accepted: int, n: int) -> str:
    """In a clause, which budget would do for `n`, at what the accepted ones have cost so far."""
    if not accepted:
        return f"the budget of {budget} is spent before the first was accepted"
    missing = n - accepted
    needs: list[str] = []
    if budget.usd is not None and spent.cost_usd is not None:
        each = spent.cost_usd / accepted
        more = _generous(spent.cost_usd + missing * each)
        needs.append(f"{each:.2g} USD for each so far, about {max(more, budget.usd):,.6g} USD in all")
    if budget.tokens is not None:
        each = spent.tokens / accepted
        more = _generous(spent.tokens + missing * each)
        needs.append(f"{each:,.0f} tokens for each so far, about {max(more, budget.tokens):,.0f} tokens in all")
    return f"the budget of {budget} is spent, and the missing {missing:,} need a higher one ({'; '.join(needs)})"


def _generous(amount: float) -> float:
    """Somewhat more, in two digits."""
    amount *= 1.1
    unit = 10.0 ** (math.floor(math.log10(amount)) - 1) if amount > 0 else 1.0
    return math.ceil(amount / unit) * unit


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
