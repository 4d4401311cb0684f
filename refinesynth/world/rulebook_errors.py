"""Errors of a rulebook, as opposed to mistakes in a player's action."""

from refinesynth.errors import InputError


class RulebookError(InputError):
    """A rulebook cannot be executed. The message tells its author, who may be an LLM, how to fix it."""


class Inapplicable(Exception):
    """An expression, lookup or effect cannot be applied in this state, or its result is not allowed.

    `World.step` catches it and reports it in the ruling.
    """
