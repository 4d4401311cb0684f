"""litellm's price map, read from its file: the import of litellm would take seconds, and asking it a third of a millisecond a call.

For every chat model it gives what `litellm.cost_per_token` gives, or nothing.
"""

import re
import time
from bisect import bisect_left
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Any

from refinesynth.backends.money.offpeak import OffPeak
from refinesynth.backends.providers import read_table, split

_STEP = re.compile(r"(?:input_cost_per_token|output_cost_per_token)_above_(\d+)(k?)_tokens")
_OTHER_UNITS = ("cost_per_second", "input_cost_per_second", "input_cost_per_request", "input_dbu_cost_per_token")
"""Entries with one of these are not priced by the token alone."""
_BILLED_BY_OTHER_RULES = frozenset({"fireworks_ai", "perplexity"})
"""Providers for which litellm does more than look a price up."""
_REACHED_IS_ABOVE = frozenset({"xai"})
"""Providers whose dearer step begins with the token count that it is named after; for the others, after it."""


@dataclass(frozen=True, slots=True)
class Rates:
    """US dollars for one token of each kind."""

    input: float
    """Of the prompt, neither read from the provider's cache nor written to it."""
    cached: float
    """Of the prompt, read from the cache."""
    written: float
    """Of the prompt, written to the cache."""
    output: float
    """Of the answer, reasoning included."""


@dataclass(frozen=True)
class Tariff:
    """A model's prices: they may depend on how long the prompt is, and on the hour."""

    rates: Rates
    """For prompts up to the first step."""
    steps: tuple[tuple[int, Rates], ...] = ()
    """Prompts of more than so many tokens are billed at these rates as a whole; in ascending order."""
    off_peak: "tuple[OffPeak, Tariff] | None" = None
    """Hours with other prices, and those."""
    clock: Callable[[], float] = field(default=time.time, compare=False)
    """Seconds since 1970."""

    def at(self, prompt_tokens: int) -> Rates:
        """The rates for a prompt of this length, now."""
        if self.off_peak is not None and self.off_peak[0].holds(self.clock()):
            return self.off_peak[1].at(prompt_tokens)
        if self.steps:
            passed = bisect_left(self.steps, prompt_tokens, key=_threshold)
            return self.steps[passed - 1][1] if passed else self.rates
        return self.rates

    def changed(self, prices: Mapping[str, float]) -> "Tariff":
        """The same with other prices, by the names of `Rates`, at every length and hour."""
        if not prices:
            return self
        return replace(
            self,
            rates=replace(self.rates, **prices),
            steps=tuple((above, replace(rates, **prices)) for above, rates in self.steps),
            off_peak=None if self.off_peak is None else (self.off_peak[0], self.off_peak[1].changed(prices)),
        )


@cache
def listed(model: str) -> Tariff | None:
    """What litellm's map says of a model string; None where it lists no price by the token, or none that we understand."""
    provider, name = split(model)
    if provider in _BILLED_BY_OTHER_RULES:
        return None
    prices = read_table("model_prices_and_context_window_backup.json")
    for key in (model, name):
        entry = prices.get(key)
        if entry is not None and _same_provider(provider, str(entry.get("litellm_provider", ""))):
            try:
                return _tariff(entry)
            except (TypeError, ValueError, KeyError):
                return None
    return None


def _same_provider(asked: str, listed: str) -> bool:
    # `vertex_ai-language-models`, `cohere_chat` and the like are families of one provider.
    return not asked or asked == listed or listed.startswith((f"{asked}-", f"{asked}_"))


def _tariff(entry: Mapping[str, Any]) -> Tariff | None:
    if any(entry.get(unit) for unit in _OTHER_UNITS):
        return None
    tiers: list[Mapping[str, Any]] = sorted(entry.get("tiered_pricing") or (), key=lambda tier: tier["range"][0])
    if tiers:
        flat = float(entry.get("output_cost_per_token") or 0)
        steps = [(int(tier["range"][0]), _rates(tier, output=flat)) for tier in tiers]
        first, steps = steps[0][1], steps[1:]
    elif "input_cost_per_token" in entry and "output_cost_per_token" in entry:
        first = _rates(entry)
        steps = list(_steps(entry, first))
    else:
        return None
    return _with_off_peak(Tariff(rates=first, steps=tuple(steps)), entry)


def _rates(prices: Mapping[str, Any], *, suffix: str = "", output: float = 0.0) -> Rates:
    def rate(name: str, otherwise: float) -> float:
        value = prices.get(f"{name}{suffix}")
        return otherwise if value is None else float(value)

    prompt = rate("input_cost_per_token", 0.0)
    return Rates(
        input=prompt,
        # Without a price of its own, what is cached or written costs what any input does.
        cached=rate("cache_read_input_token_cost", prompt),
        written=rate("cache_creation_input_token_cost", prompt),
        output=rate("output_cost_per_token", output),
    )


def _steps(entry: Mapping[str, Any], rates: Rates) -> Iterable[tuple[int, Rates]]:
    """Each step names what changes; the rest stays as it was below it."""
    found = {
        (int(step[1]) * (1000 if step[2] else 1), step[1] + step[2]) for step in map(_STEP.fullmatch, entry) if step
    }
    cached, written = ("cache_read_input_token_cost" in entry, "cache_creation_input_token_cost" in entry)
    for above, spelled in sorted(found):
        given = _changes(entry, f"_above_{spelled}_tokens")
        cached, written = cached or "cached" in given, written or "written" in given
        rates = replace(rates, **given)
        rates = replace(
            rates,
            cached=rates.cached if cached else rates.input,
            written=rates.written if written else rates.input,
        )
        yield above - (entry.get("litellm_provider") in _REACHED_IS_ABOVE), rates


def _with_off_peak(tariff: Tariff, entry: Mapping[str, Any]) -> Tariff:
    block: Mapping[str, Any] | None = entry.get("off_peak_pricing")
    hours = None if block is None else OffPeak.read(block)
    if block is None or hours is None:
        return tariff
    changes = _changes(block)
    for name in ("cached", "written"):
        if "input" in changes and _NAMES[name] not in entry:
            changes.setdefault(name, changes["input"])
    return replace(tariff, off_peak=(hours, tariff.changed(changes)))


_NAMES = {
    "input": "input_cost_per_token",
    "cached": "cache_read_input_token_cost",
    "written": "cache_creation_input_token_cost",
    "output": "output_cost_per_token",
}


def _changes(prices: Mapping[str, Any], suffix: str = "") -> dict[str, float]:
    found = {ours: prices.get(f"{theirs}{suffix}") for ours, theirs in _NAMES.items()}
    return {ours: float(price) for ours, price in found.items() if price is not None}


def _threshold(step: tuple[int, Rates]) -> int:
    return step[0]
