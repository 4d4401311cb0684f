"""Diagnosis of rules that raise, are slow or do not return: the rule and the place in its code."""

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
"""Time for one draft after which a rule is reported, in seconds."""

_Draft_contra = TypeVar("_Draft_contra", contravariant=True)
_Found_co = TypeVar("_Found_co", covariant=True)


class _Check(Protocol[_Draft_contra, _Found_co]):
    def __call__(self, draft: _Draft_contra, /) -> Iterator[_Found_co]: ...


def timed(rule: _Check[_Draft_contra, _Found_co], draft: _Draft_contra) -> Iterator[_Found_co]:
    """Yield the violations of `rule`, and log a warning to `refinesynth.rules` if it takes more than `SECONDS`."""
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
    """Return the error that names a user's rule; None if `error` is a bug of this package.

    `error` was raised during the verification of drafts.
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
    """Return the rule that a thread with this frame executes, and the place in it; None if there is none."""
    rule, place = _innermost(reversed(list(walk_stack(frame))))
    return None if rule is None else f"the rule {_name(rule)}{place}"


def _innermost(frames: Iterable[tuple[FrameType, int]]) -> tuple[object, str]:
    """Return the last rule in these frames, from the outermost on, and the place in it if it is not of this package."""
    rule: object = None
    place = before = ""
    for frame, line in frames:
        module = str(frame.f_globals.get("__name__", ""))
        if module in _COMPOSING:
            # Compositions call rules by this name.
            held = getattr(frame.f_locals.get("self"), "rule", rule)
            rule = cast("object", frame.f_locals.get("rule", held))
        elif before in _COMPOSING and module.partition(".")[0] != _OURS:
            # Called by a composition and not by a rule of this package: it is the user's rule.
            place = f" ({frame.f_code.co_filename}:{line})"
        before = module
    return rule, place


def _name(rule: object) -> str:
    return getattr(rule, "__name__", type(rule).__name__)
