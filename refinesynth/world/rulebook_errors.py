"""Errors of a rulebook, as opposed to mistakes in a player's action."""

from collections.abc import Generator
from contextlib import contextmanager

from refinesynth.errors import InputError


class RulebookError(InputError):
    """A rulebook cannot be executed. The message tells its author, who may be an LLM, how to fix it."""


class Inapplicable(Exception):
    """An expression, lookup or effect cannot be applied in this state, or its result is not allowed.

    `World.step` catches it and reports it in the ruling.
    """


@contextmanager
def error_prefix(place: str) -> Generator[None]:
    """Add the part of the rulebook to an error's message."""
    try:
        yield
    except RulebookError as error:
        raise RulebookError(f"{place}: {error}") from None
