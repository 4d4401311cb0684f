"""What an episode has used and paid, per role."""

from dataclasses import dataclass, field

from pydantic_ai.usage import RequestUsage

from refinesynth.backends.role import Role
from refinesynth.trajectory import Usage


@dataclass(frozen=True)
class Spent:
    """What was used and paid."""

    usage: Usage = field(default_factory=Usage)
    cost_usd: float | None = 0.0
    """US dollars; None as soon as the price of one completion is unknown."""

    def __add__(self, other: "Spent") -> "Spent":
        known = self.cost_usd is not None and other.cost_usd is not None
        return Spent(
            usage=self.usage + other.usage,
            cost_usd=(self.cost_usd or 0.0) + (other.cost_usd or 0.0) if known else None,
        )


@dataclass
class Ledger:
    """Every completion of an episode, thrown-away answers included, per role."""

    by_role: dict[Role, Spent] = field(default_factory=dict[Role, Spent])

    @property
    def usage(self) -> Usage:
        """Of all roles together."""
        return self.total.usage

    @property
    def cost_usd(self) -> float | None:
        """US dollars for all roles together; None where the price of one completion is unknown."""
        return self.total.cost_usd

    @property
    def total(self) -> Spent:
        """All roles together."""
        return sum((self.by_role[role] for role in Role if role in self.by_role), Spent())

    def enter(self, role: Role, usage: RequestUsage, cost_usd: float | None) -> None:
        """Add one completion."""
        one = Usage(
            requests=1,
            input_tokens=usage.input_tokens,
            cached_tokens=usage.cache_read_tokens,
            output_tokens=usage.output_tokens,
        )
        self.by_role[role] = self.by_role.get(role, Spent()) + Spent(usage=one, cost_usd=cost_usd)
