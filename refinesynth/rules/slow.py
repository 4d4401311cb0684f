"""Rules that take seconds: nothing else goes on meanwhile, so they are named."""

import logging
from collections.abc import Iterator
from time import perf_counter
from typing import Protocol, TypeVar

LOGGER = "refinesynth.rules"
_LOG = logging.getLogger(LOGGER)
_LOG.addHandler(logging.NullHandler())

SECONDS = 1.0
"""What a rule may take over one draft before it is reported."""

_Draft_contra = TypeVar("_Draft_contra", contravariant=True)
_Found_co = TypeVar("_Found_co", covariant=True)


class _Check(Protocol[_Draft_contra, _Found_co]):
    def __call__(self, draft: _Draft_contra, /) -> Iterator[_Found_co]: ...


def timed(rule: _Check[_Draft_contra, _Found_co], draft: _Draft_contra) -> Iterator[_Found_co]:
    """What `rule` finds; a warning of the logger `refinesynth.rules` if that takes too long."""
    began = perf_counter()
    yield from rule(draft)
    seconds = perf_counter() - began
    if seconds > SECONDS:
        name = getattr(rule, "__name__", type(rule).__name__)
        facts = {"event": "slow_rule", "rule": name, "seconds": round(seconds, 1)}
        _LOG.warning(
            "the rule %s took %.1f s over a draft, and nothing else went on", name, seconds, extra={"facts": facts}
        )
