"""What the driver and the workers of a run say to each other."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pydantic_ai.usage import RequestUsage

from refinesynth.run import Finished, JournalSums


@dataclass(frozen=True, slots=True)
class Ready:
    """From a worker, first of all: it plays what it is given."""

    node: str
    """Where on the cluster it is."""
    begun: frozenset[int]
    """Episodes of which it can read what was paid for."""
    read: frozenset[str]
    """The ids of journals that it can read."""


@dataclass(frozen=True, slots=True)
class Ended:
    """From a worker: an episode has come to its end, or no episode can go on."""

    index: int
    result: Finished | Exception


@dataclass(frozen=True, slots=True)
class Sums:
    """From a worker whose journal is not in the run's folder, once in a while: what is in it."""

    sums: JournalSums


@dataclass(frozen=True, slots=True)
class Reserve:
    """From a worker: may this be asked for?"""

    hold: int
    index: int
    """The episode's."""
    prompt_tokens: float
    max_tokens: int | None
    prices: tuple[float, float] | None
    """US dollars per prompt token and per completion token; None where they are unknown."""


@dataclass(frozen=True, slots=True)
class Reserved:
    """To a worker: it may, or why it may not."""

    hold: int
    refusal: Exception | None = None


@dataclass(frozen=True, slots=True)
class Settle:
    """From a worker: what was put aside was used so far; without usage, nothing was paid."""

    hold: int
    """Zero where nothing was put aside, because there is no budget; it is counted all the same."""
    index: int
    usage: RequestUsage | None = None
    cost_usd: float | None = None


@dataclass(frozen=True, slots=True)
class Said:
    """From a worker: something for the run's log, such as a backend that does not answer."""

    level: int
    """As Python's logging has them."""
    facts: Mapping[str, Any]
    """`event`, `text` and all else that is known."""
