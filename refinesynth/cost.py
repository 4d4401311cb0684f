"""Cost in tokens, requests and US dollars, with sums and shares that lose no token."""

from pydantic import Field

from refinesynth.trajectory import Usage, Value


class Cost(Value):
    """Tokens and requests, with their price."""

    usage: Usage = Usage()
    cost_usd: float | None = Field(default=0.0, allow_inf_nan=False)
    """US dollars; None if the price of a completion is unknown."""

    def __add__(self, other: "Cost") -> "Cost":
        return Cost(usage=self.usage + other.usage, cost_usd=_sum(self.cost_usd, other.cost_usd, 1))

    def __sub__(self, other: "Cost") -> "Cost":
        """Return the rest of this cost without its part `other`."""
        usage = {name: amount - getattr(other.usage, name) for name, amount in self.usage}
        return Cost(usage=Usage(**usage), cost_usd=_sum(self.cost_usd, other.cost_usd, -1))

    def share(self, part: int, of: int) -> "Cost":
        """Return `part` of `of` equal parts; tokens and requests are rounded down."""
        usage = {name: count * part // of for name, count in self.usage}
        return Cost(usage=Usage(**usage), cost_usd=None if self.cost_usd is None else self.cost_usd * part / of)

    def divided(self, parts: int) -> list["Cost"]:
        """Return this cost in equal parts, whose tokens and requests add up to it."""
        rest, shares = self, list["Cost"]()
        for remaining in range(parts, 0, -1):
            shares.append(rest.share(1, remaining))
            rest -= shares[-1]
        return shares

    @property
    def tokens(self) -> int:
        """Number of tokens of prompts and completions together."""
        return self.usage.input_tokens + self.usage.output_tokens


def _sum(first: float | None, second: float | None, sign: int) -> float | None:
    # Differences below 1e-12 US dollars are rounding errors.
    return None if first is None or second is None else round(first + sign * second, 12) + 0.0
