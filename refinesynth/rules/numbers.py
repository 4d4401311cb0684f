"""The whole numbers in rules' settings, so that prompts can name the limits before anything is refused."""

from collections.abc import Iterator, Mapping
from dataclasses import fields

from refinesynth.rules.registry import BUILT_IN
from refinesynth.rules.rule import All, BaseRule, FirstFailure, Rule

_AT_LEAST = frozenset({"least", "minimum"})
"""Settings of which the greater number is the stricter."""


def numbers(*rules: Rule) -> dict[str, dict[str, int]]:
    """Rule name to setting to its number, of the built-in rules that a draft must satisfy under all of `rules`; the
    strictest counts.

    Rules that only warn, or are one of two alternatives, do not count.
    """
    found: dict[str, dict[str, int]] = {}
    for rule in _binding(rules):
        known = found.setdefault(type(rule).__name__, {})
        for name, number in _settings(rule):
            strictest = max if name in _AT_LEAST else min
            known[name] = strictest(number, known.get(name, number))
    return found


def usual_numbers() -> Mapping[str, Mapping[str, int]]:
    """The same of every built-in rule, as it is made where nothing is said."""
    return numbers(*(made for made in (factory() for factory in BUILT_IN.values()) if type(made) in BUILT_IN.values()))


def _binding(rules: tuple[Rule, ...]) -> Iterator[BaseRule]:
    for rule in rules:
        if isinstance(rule, All | FirstFailure):
            yield from _binding(rule.rules)
        elif isinstance(rule, BaseRule) and BUILT_IN.get(type(rule).__name__) is type(rule):
            yield rule


def _settings(rule: BaseRule) -> Iterator[tuple[str, int]]:
    # Every built-in rule is a dataclass.
    for setting in fields(rule):  # pyright: ignore[reportArgumentType]
        value = getattr(rule, setting.name)
        if isinstance(value, int) and not isinstance(value, bool):
            yield setting.name, value
