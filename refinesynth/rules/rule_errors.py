"""Rules that raise, do not return, or take seconds: which one it is, and where in whose code."""

import logging
from collections.abc import Iterable, Iterator
from time import perf_counter
from traceback import walk_stack, walk_tb
from types import FrameType
from typing import Protocol, TypeVar, cast

from refinesynth.errors import RuleFailed

LOGGER = "refinesynth.rules"
_LOG = logging.getLogger(LOGGER)
_LOG.addHandler(logging.NullHandler())

SECONDS = 1.0
"""Time that a rule may take over one draft before it is reported."""

_Draft_contra = TypeVar("_Draft_contra", contravariant=True)
_Found_co = TypeVar("_Found_co", covariant=True)


class _Check(Protocol[_Draft_contra, _Found_co]):
    def __call__(self, draft: _Draft_contra, /) -> Iterator[_Found_co]: ...


def timed(rule: _Check[_Draft_contra, _Found_co], draft: _Draft_contra) -> Iterator[_Found_co]:
    """Return what `rule` finds; a warning of the logger `refinesynth.rules` if that takes too long."""
    began = perf_counter()
    yield from rule(draft)
    seconds = perf_counter() - began
    if seconds > SECONDS:
        name = getattr(rule, "__name__", type(rule).__name__)
        facts = {"event": "slow_rule", "rule": name, "seconds": round(seconds, 1)}
        _LOG.warning(
            "the rule %s took %.1f s over a draft, and nothing else went on", name, seconds, extra={"facts": facts}
        )


_OURS = "refinesynth"
_COMPOSING = frozenset({"refinesynth.rules.rule", "refinesynth.rules.rule_errors"})
"""Modules whose frames call rules."""


def blame(error: Exception) -> RuleFailed | None:
    """The error that names a rule of the user's own; None where `error` is a fault of the package itself.

    `error` was raised while rules looked at a draft.
    """
    rule, place = _innermost(walk_tb(error.__traceback__))
    home = str(getattr(rule, "__module__", type(rule).__module__))
    if home.partition(".")[0] == _OURS and not place:
        return None
    return RuleFailed(
        f"the rule {_name(rule)}{place} raised {type(error).__name__}: {error}. A rule yields violations and raises nothing, whatever "
        f"the draft holds: correct it, and the same command goes on"
    )


def running(frame: FrameType) -> str | None:
    """The rule that a thread is at, which is executing this frame, and where; None if it is at none."""
    rule, place = _innermost(reversed(list(walk_stack(frame))))
    return None if rule is None else f"the rule {_name(rule)}{place}"


def _innermost(frames: Iterable[tuple[FrameType, int]]) -> tuple[object, str]:
    """The last rule that these frames, from the outermost on, call, and the place in it if it is not of the package."""
    rule: object = None
    place = before = ""
    for frame, line in frames:
        module = str(frame.f_globals.get("__name__", ""))
        if module in _COMPOSING:
            # What composes rules calls them by this name.
            held = getattr(frame.f_locals.get("self"), "rule", rule)
            rule = cast("object", frame.f_locals.get("rule", held))
        elif before in _COMPOSING and module.partition(".")[0] != _OURS:
            # Called by what composes, and not by a rule of the package: it is the rule.
            place = f" ({frame.f_code.co_filename}:{line})"
        before = module
    return rule, place


def _name(rule: object) -> str:
    return getattr(rule, "__name__", type(rule).__name__)
