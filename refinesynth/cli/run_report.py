"""Texts about a run: its cost, where that went, and the command that continues it."""

import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path

from refinesynth.cost import Cost
from refinesynth.run.stats import Spending
from refinesynth.text.number_format import compact, counted, dollars
from refinesynth.text.printable import one_line


def continue_command(arguments: Sequence[str], path: Path) -> str:
    """The same command with the run's folder and without `--fresh`."""
    repeated = [argument for argument in arguments if argument != "--fresh"]
    has_output = any(
        argument in {"-o", "--output"} or argument.startswith(("-o", "--output=")) for argument in repeated
    )
    return shlex.join(["refinesynth", *repeated, *([] if has_output else ["-o", str(path)])])


_MIN_SHARE = 0.005
"""Smallest share that is shown."""


def amount(spent: Cost, *, whole: Cost) -> str:
    """`0.0242 USD`, or `12.3k tokens` if the whole has no price."""
    if whole.cost_usd:
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
        },
        whole=spending.total,
    )


def estimated(spending: Spending) -> str:
    """`tokens of 12 of 80 requests are estimated: no usage was reported`; empty without any."""
    count, total = spending.estimated.usage.requests, spending.total.usage.requests
    return f"tokens of {count:,} of {counted(total, 'request')} are estimated: no usage was reported" if count else ""


def _shares(parts: Mapping[str, Cost], *, whole: Cost) -> str:
    """`52% player, 40% dungeon master, 8% script writer`; empty for fewer than two parts."""
    total = whole.cost_usd or whole.tokens
    if not total:
        return ""
    shares = {
        name: (spent.cost_usd or 0.0 if whole.cost_usd else spent.tokens) / total for name, spent in parts.items()
    }
    shown = [name for name in sorted(shares, key=lambda name: -shares[name]) if shares[name] >= _MIN_SHARE]
    return ", ".join(f"{shares[name]:.0%} {one_line(name, size=40)}" for name in shown) if len(shown) > 1 else ""
