"""Prices of completions: the backend's own, else those of litellm's price map.

The map is read from its file: an import of litellm takes seconds, and its price function 0.3 ms per call.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache
from typing import TYPE_CHECKING, Any

from refinesynth.backends.backend import Backend
from refinesynth.backends.providers import base_model_name, read_table, split_model

if TYPE_CHECKING:
    from pydantic_ai.usage import RequestUsage

    from refinesynth.client.budget.tracker import Price

_OTHER_UNITS = ("cost_per_second", "input_cost_per_second", "input_cost_per_request", "input_dbu_cost_per_token")
"""Keys of an entry that is not priced by the token alone."""
_TOKEN_PRICES = (
    "input_cost_per_token", "output_cost_per_token", "cache_read_input_token_cost", "cache_creation_input_token_cost",
    "output_cost_per_reasoning_token",
)  # fmt: skip
_OTHER_BILLING = frozenset({"perplexity"})
"""Providers that charge for more than tokens."""


@dataclass(frozen=True, slots=True)
class Rates:
    """US dollars per token of each kind: a provider's prices for short prompts.

    An episode's prompts stay below the tens of thousands of tokens from which some prices rise. Cheaper hours are
    ignored.
    """

    input: float
    """Prompt tokens neither read from the provider's cache nor written to it."""
    cached: float
    """Prompt tokens read from the cache."""
    written: float
    """Prompt tokens written to the cache."""
    output: float
    """Tokens of the completion."""
    reasoning: float | None = None
    """Tokens of thoughts within the completion; None for the price of other tokens."""

    def __call__(self, usage: "RequestUsage") -> float:
        cached, written = usage.cache_read_tokens, usage.cache_write_tokens
        fresh = usage.input_tokens - cached - written
        prompt = fresh * self.input + cached * self.cached + written * self.written
        extra = 0.0 if self.reasoning is None else usage.output_reasoning_tokens * (self.reasoning - self.output)
        return prompt + usage.output_tokens * self.output + extra


free = Rates(input=0.0, cached=0.0, written=0.0, output=0.0)


def unknown(_usage: "RequestUsage") -> float | None:
    """Return None, the unknown price."""
    return None


def price_of(backend: Backend, *, listings: bool = True, batch: bool = False) -> "Price":
    """Return the price function of a backend; `unknown` if its own prices and litellm's map do not suffice.

    Each own price replaces the listed one. Cached tokens without a price cost as much as other prompt tokens. The
    rehearsal is free. Without `listings`, only own prices count; with `batch`, listed batch prices apply,
    else those of the `service_tier` in `extra`.
    """
    if backend.is_rehearsal:
        return free
    own = _own_prices(backend)
    if {"input", "output"} <= own.keys():
        return Rates(**own)
    body = backend.extra.get("extra_body")
    tier = {**(body if isinstance(body, Mapping) else {}), **backend.extra}.get("service_tier")
    rates = listed_rates(backend.model, batch=batch, tier=str(tier or "")) if listings else None
    return unknown if rates is None else replace(rates, **own)


@cache
def listed_rates(model: str, *, batch: bool = False, tier: str = "") -> Rates | None:
    """Return litellm's prices of a model string; None if it lists no price per token, or one of unknown form.

    In a `batch`, a price without a batch price of its own is halved. A service `tier`, such as `priority` or `flex`,
    replaces the prices that it lists.
    """
    entry = None if split_model(model)[0] in _OTHER_BILLING else entry_of(model)
    if entry is None:
        return None
    variant = "batches" if batch else tier
    listed = {name: entry[f"{name}_{variant}"] for name in _TOKEN_PRICES if entry.get(f"{name}_{variant}") is not None}
    try:
        halves = {name: float(entry[name]) / 2 for name in _TOKEN_PRICES if batch and entry.get(name) is not None}
        return _rates({**entry, **halves, **listed})
    except (TypeError, ValueError, KeyError):
        return None


@cache
def entry_of(model: str) -> Mapping[str, Any] | None:
    """Return a model string's entry in litellm's table of prices and context windows; None if it has none."""
    provider, name = split_model(model)
    table = read_table("model_prices_and_context_window_backup.json")
    # Bedrock's API prefixes are no part of a model name.
    plain = base_model_name(name).removeprefix("converse/").removeprefix("invoke/")
    for key in dict.fromkeys((model, name, plain, model.lower(), plain.lower())):
        entry = table.get(key)
        if entry is None:
            continue
        entry_provider = str(entry.get("litellm_provider", ""))
        # `vertex_ai-language-models`, `cohere_chat` and the like are families of one provider.
        if not provider or provider == entry_provider or entry_provider.startswith((f"{provider}-", f"{provider}_")):
            return entry
    return None


def _rates(entry: Mapping[str, Any]) -> Rates | None:
    if any(entry.get(unit) for unit in _OTHER_UNITS):
        return None
    if tiers := entry.get("tiered_pricing"):
        # The tier of the shortest prompts.
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
        reasoning=None if (thoughts := entry.get("output_cost_per_reasoning_token")) is None else float(thoughts),
    )


def _own_prices(backend: Backend) -> dict[str, float]:
    prices = {"input": backend.input_price, "cached": backend.cached_price, "output": backend.output_price}
    own = {name: price / 1_000_000 for name, price in prices.items() if price is not None}
    if "input" in own:
        # A prompt price also covers cached and cache-written tokens.
        own = {"cached": own["input"], "written": own["input"], **own}
    if "output" in own:
        own["reasoning"] = own["output"]
    return own
