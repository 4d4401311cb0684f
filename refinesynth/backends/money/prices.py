"""What a completion costs: at the backend's own prices where they are given, else by litellm's price map."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

from refinesynth.backends.backend import Backend
from refinesynth.backends.money.tariffs import Rates, Tariff, listed
from refinesynth.backends.providers import PROVIDERS, split

if TYPE_CHECKING:
    from pydantic_ai.usage import RequestUsage

    from refinesynth.backends.account import Price

_MILLION = 1_000_000
_ENOUGH_TO_TELL = 1_000
"""Tokens for which litellm is asked, to learn what one costs."""


@dataclass(frozen=True)
class Metered:
    """A price by the token."""

    tariff: Tariff

    def __call__(self, usage: "RequestUsage") -> float:
        """US dollars for one completion; reasoning is billed as output."""
        prompt, cached, written = usage.input_tokens, usage.cache_read_tokens, usage.cache_write_tokens
        rates = self.tariff.at(prompt)
        return (
            (prompt - cached - written) * rates.input
            + cached * rates.cached
            + written * rates.written
            + usage.output_tokens * rates.output
        )


def free(_usage: "RequestUsage") -> float | None:
    """The price of completions that cost nothing."""
    return 0.0


def unknown(_usage: "RequestUsage") -> float | None:
    """The price where there is no telling."""
    return None


def price_of(backend: Backend, *, listings: bool = True) -> "Price":
    """What this backend's completions cost; `unknown` where its own prices and litellm's map do not say.

    Each of the backend's own prices takes the place of the listed one. Cached tokens without a price cost what the others of
    the prompt do. The rehearsal and a replay are free. With `listings=False` only its own prices count.

    litellm is imported for the few providers alone whose bills are more than prices by the token.
    """
    if backend.rehearses or backend.model.startswith("replay:"):
        return free
    own = _own_prices(backend)
    tariff = (listed(backend.model) or _asked(backend)) if listings and not {"input", "output"} <= own.keys() else None
    if tariff is not None:
        return Metered(tariff.changed(own))
    if {"input", "output"} <= own.keys():
        return Metered(Tariff(rates=Rates(**own)))
    return unknown


def is_known(price: "Price") -> bool:
    """Whether completions have a price, be it nothing."""
    from pydantic_ai.usage import RequestUsage

    return price(RequestUsage(input_tokens=1, output_tokens=1)) is not None


def _own_prices(backend: Backend) -> dict[str, float]:
    """By the names of `Rates`, in US dollars for one token."""
    prices = {"input": backend.input_price, "cached": backend.cached_price, "output": backend.output_price}
    own = {name: price / _MILLION for name, price in prices.items() if price is not None}
    if "input" in own:
        # A price for the prompt is meant for all of it.
        own = {"cached": own["input"], "written": own["input"], **own}
    return own


def _asked(backend: Backend) -> Tariff | None:
    """What litellm answers for a model that its map alone does not settle; it is not asked about servers of one's own."""
    provider = PROVIDERS.get(split(backend.model)[0])
    if backend.base_url is not None or (provider is not None and provider.base_url is not None):
        return None
    from pydantic_ai.usage import RequestUsage

    from refinesynth.backends.litellm_sdk import pricer

    ask, many = pricer(backend.model), _ENOUGH_TO_TELL

    def one(usage: RequestUsage) -> float:
        return (ask(usage) or 0.0) / many

    rates = Rates(
        input=one(RequestUsage(input_tokens=many)),
        cached=one(RequestUsage(input_tokens=many, cache_read_tokens=many)),
        written=one(RequestUsage(input_tokens=many, cache_write_tokens=many)),
        output=one(RequestUsage(output_tokens=many)),
    )
    # What it has no price for, it calls free.
    return Tariff(rates=rates) if rates.input or rates.output else None
