"""Shares of a run's cost in words; in tokens if there is no price."""

from collections.abc import Iterable

from refinesynth.cost import Cost
from refinesynth.run.stats import Spending
from refinesynth.text.number_format import compact, counted, dollars
from refinesynth.text.printable import one_line

_LEAST = 0.005
"""Smallest share that is shown."""


def amount(spent: Cost, *, of: Cost) -> str:
    """`0.0242 USD`, or `12.3k tokens` if the whole has no price."""
    if of.cost_usd:
        return dollars(spent.cost_usd or 0.0)
    return f"{compact(spent.tokens)} tokens"


def by_outcome(spending: Spending) -> str:
    """`93% on accepted trajectories, 5% on what rules refused, 2% on what was not needed or not finished`."""
    return _shares(
        {
            "on accepted trajectories": spending.kept,
            "on what rules refused": sum(spending.wasted.values(), Cost()),
            "on episodes that gave none": spending.fruitless,
            "on what was not needed or not finished": spending.unneeded,
        }.items(),
        of=spending.total,
    )


def estimated(spending: Spending) -> str:
    """`tokens of 12 of 80 requests are estimated: their usage was not reported`; empty without any."""
    guessed, every = spending.estimated.usage.requests, spending.total.usage.requests
    return (
        f"tokens of {guessed:,} of {counted(every, 'request')} are estimated: no usage was reported" if guessed else ""
    )


def by_role(spending: Spending) -> str:
    """`52% player, 40% dungeon master, 8% script writer`."""
    roles = [(one_line(role.replace("_", " ")), spent) for role, spent in spending.by_role.items()]
    return _shares(roles, of=spending.total)


def by_model(spending: Spending) -> str:
    """The same for models; empty for a single one."""
    models = [(one_line(model, most=40), spent) for model, spent in spending.by_model.items()]
    return _shares(models, of=spending.total) if len(models) > 1 else ""


def _shares(parts: Iterable[tuple[str, Cost]], *, of: Cost) -> str:
    whole = of.cost_usd or of.tokens
    if not whole:
        return ""
    shares = [((spent.cost_usd or 0.0 if of.cost_usd else spent.tokens) / whole, name) for name, spent in parts]
    shown = [(share, name) for share, name in shares if share >= _LEAST]
    if len(shown) < 2:  # noqa: PLR2004
        return ""
    return ", ".join(f"{share:.0%} {name}" for share, name in sorted(shown, key=lambda item: -item[0]))
