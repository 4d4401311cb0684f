"""Prices of completions: the backend's own prices where they are given, else those of litellm's price map.

The map is read from its file: the import of litellm would take seconds, and asking it a third of a millisecond a call.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache
from typing import TYPE_CHECKING, Any

from refinesynth.backends.backend import Backend
from refinesynth.backends.providers import base_of, read_table, split

if TYPE_CHECKING:
    from pydantic_ai.usage import RequestUsage

    from refinesynth.client.budget.tracker import Price

_MILLION = 1_000_000
_OTHER_UNITS = ("cost_per_second", "input_cost_per_second", "input_cost_per_request", "input_dbu_cost_per_token")
"""Entries with one of these are not priced by the token alone."""
_BY_THE_TOKEN = (
    "input_cost_per_token", "output_cost_per_token", "cache_read_input_token_cost", "cache_creation_input_token_cost",
)  # fmt: skip
_BILLED_BY_OTHER_RULES = frozenset({"perplexity"})
"""Providers that charge for more than tokens."""


@dataclass(frozen=True, slots=True)
class Rates:
    """US dollars for one token of each kind.

    Where a provider has several, these are its usual ones: those of short prompts, by day. An episode's prompts stay
    below the tens of thousands of tokens from which some are dearer; hours in which some are cheaper are not counted
    on.
    """

    input: float
    """Of the prompt, neither read from the provider's cache nor written to it."""
    cached: float
    """Of the prompt, read from the cache."""
    written: float
    """Of the prompt, written to the cache."""
    output: float
    """Of the answer, reasoning included."""

    def __call__(self, usage: "RequestUsage") -> float:
        cached, written = usage.cache_read_tokens, usage.cache_write_tokens
        fresh = usage.input_tokens - cached - written
        return fresh * self.input + cached * self.cached + written * self.written + usage.output_tokens * self.output


def free(_usage: "RequestUsage") -> float | None:
    """The price of completions that cost nothing."""
    return 0.0


def unknown(_usage: "RequestUsage") -> float | None:
    """The price where it is unknown."""
    return None


def price_of(backend: Backend, *, listings: bool = True, batch: bool = False) -> "Price":
    """What this backend's completions cost; `unknown` where its own prices and litellm's map do not say.

    Each of the backend's own prices takes the place of the listed one. Cached tokens without a price cost what the
    others of the prompt do. The rehearsal and a replay are free. With `listings=False` only its own prices count; with
    `batch`, the listed ones are those of the provider's batches.
    """
    if backend.rehearses or backend.model.startswith("replay:"):
        return free
    own = _own_prices(backend)
    if {"input", "output"} <= own.keys():
        return Rates(**own)
    rates = listed(backend.model, batch=batch) if listings else None
    return unknown if rates is None else replace(rates, **own)


def is_known(price: "Price") -> bool:
    """Whether completions have a price, be it nothing."""
    from pydantic_ai.usage import RequestUsage

    return price(RequestUsage(input_tokens=1, output_tokens=1)) is not None


@cache
def listed(model: str, *, batch: bool = False) -> Rates | None:
    """What litellm's map says of a model string; None where it lists no price by the token, or none that we
    understand.

    In a `batch` what has no price of its own there costs half.
    """
    provider, name = split(model)
    if provider in _BILLED_BY_OTHER_RULES:
        return None
    prices = read_table("model_prices_and_context_window_backup.json")
    # Bedrock's ways to ask are no part of a name.
    plain = base_of(name).removeprefix("converse/").removeprefix("invoke/")
    for key in dict.fromkeys((model, name, plain, model.lower(), plain.lower())):
        entry = prices.get(key)
        if entry is not None and _same_provider(provider, str(entry.get("litellm_provider", ""))):
            try:
                return _rates(_batched(entry) if batch else entry)
            except (TypeError, ValueError, KeyError):
                return None
    return None


def _same_provider(asked: str, listed: str) -> bool:
    # `vertex_ai-language-models`, `cohere_chat` and the like are families of one provider.
    return not asked or asked == listed or listed.startswith((f"{asked}-", f"{asked}_"))


def _rates(entry: Mapping[str, Any]) -> Rates | None:
    if any(entry.get(unit) for unit in _OTHER_UNITS):
        return None
    if tiers := entry.get("tiered_pricing"):
        # The shortest prompts'.
        entry = {**entry, **min(tiers, key=lambda tier: tier["range"][0])}
    if "input_cost_per_token" not in entry or "output_cost_per_token" not in entry:
        return None
    prompt = float(entry["input_cost_per_token"])

    def of_prompt(name: str) -> float:
        price = entry.get(name)
        return prompt if price is None else float(price)

    return Rates(
        input=prompt,
        cached=of_prompt("cache_read_input_token_cost"),
        written=of_prompt("cache_creation_input_token_cost"),
        output=float(entry["output_cost_per_token"] or 0),
    )


def _batched(entry: Mapping[str, Any]) -> Mapping[str, Any]:
    halves = {name: float(entry[name]) / 2 for name in _BY_THE_TOKEN if entry.get(name) is not None}
    own = {name: entry[f"{name}_batches"] for name in _BY_THE_TOKEN if entry.get(f"{name}_batches") is not None}
    return {**entry, **halves, **own}


def _own_prices(backend: Backend) -> dict[str, float]:
    prices = {"input": backend.input_price, "cached": backend.cached_price, "output": backend.output_price}
    own = {name: price / _MILLION for name, price in prices.items() if price is not None}
    if "input" in own:
        # A price for the prompt is meant for all of it.
        own = {"cached": own["input"], "written": own["input"], **own}
    return own
