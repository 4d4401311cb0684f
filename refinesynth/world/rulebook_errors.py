"""Errors of a rulebook."""

from refinesynth.errors import InputError


class RulebookError(InputError):
    """A rulebook cannot be executed. The message tells its author, who may be an LLM, how to fix it."""


class Inapplicable(Exception):
    """An expression, lookup or effect cannot be applied in this state. The executor catches it and reports it in the
    ruling.
    """
