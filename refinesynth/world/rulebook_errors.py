"""Errors of a rulebook, apart from those of a player's action."""

from refinesynth.errors import InputError


class RulebookError(InputError):
    """A rulebook that cannot be executed; the message says to its author, who may be an LLM, what to fix."""


class Inapplicable(Exception):
    """An expression, lookup or effect has no meaning in this state. Caught inside the executor: a ruling says so."""
