"""Sums of what an episode's requests have used, and the memory of completions that were paid for before."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol, TypeAlias

from pydantic_ai.usage import RequestUsage

from refinesynth.backends.role import Role
from refinesynth.cost import Cost
from refinesynth.journal.values import Paid
from refinesynth.trajectory import Usage


@dataclass(slots=True)
class Count:
    """Sums that are changed in place, because every completion is entered."""

    requests: int = 0
    input: int = 0
    cached: int = 0
    output: int = 0
    cost_usd: float = 0.0
    unpriced: int = 0

    def enter(self, usage: RequestUsage, cost_usd: float | None) -> None:
        """Add one completion."""
        self.requests += 1
        self.input += usage.input_tokens
        self.cached += usage.cache_read_tokens
        self.output += usage.output_tokens
        if cost_usd is None:
            self.unpriced += 1
        else:
            self.cost_usd += cost_usd

    def spent(self) -> Cost:
        """These sums, as a value."""
        usage = Usage(
            requests=self.requests, input_tokens=self.input, cached_tokens=self.cached, output_tokens=self.output
        )
        return Cost(usage=usage, cost_usd=None if self.unpriced else self.cost_usd)


@dataclass
class Ledger:
    """Every completion of an episode or of a whole run, thrown-away answers included, per role."""

    _counts: dict[str, Count] = field(default_factory=dict[str, Count])

    @property
    def by_role(self) -> dict[Role, Cost]:
        """Of every role that has had a completion."""
        return {role: self._counts[role].spent() for role in Role if role in self._counts}

    @property
    def usage(self) -> Usage:
        """Of all roles together."""
        return self.total.usage

    @property
    def cost_usd(self) -> float | None:
        """US dollars for all roles together; None where the price of one completion is unknown."""
        return self.total.cost_usd

    @property
    def total(self) -> Cost:
        """All roles together."""
        return sum(self.by_role.values(), Cost())

    def enter(self, role: str, usage: RequestUsage, cost_usd: float | None) -> None:
        """Add one completion."""
        count = self._counts.get(role)
        if count is None:
            count = self._counts[role] = Count()
        count.enter(usage, cost_usd)


Price: TypeAlias = Callable[[RequestUsage], float | None]
"""What a completion costs in US dollars; None where the price is unknown."""


class Memory(Protocol):
    """What is known of the completions that one episode has paid for, in this process or an earlier one."""

    @property
    def ended(self) -> bool:
        """True if the episode had ended, and is made again from its paid completions alone."""
        ...

    def recall(self, role: str, step: int, digest: bytes) -> Paid | None:
        """The completion that this request of an episode's `role` was answered with before."""
        ...

    async def keep(self, *paid: Paid) -> None:
        """Returns when the completions will be there even if the process is killed: all of them, or none."""
        ...
