"""What a run's processes say to each other."""

from dataclasses import dataclass
from typing import Any

from pydantic_ai.usage import RequestUsage

from refinesynth.run import Finished
from refinesynth.trajectory import Persona


@dataclass(frozen=True, slots=True)
class PlayPersona:
    """To a shard: play this persona's episode."""

    index: int
    persona: Persona


@dataclass(frozen=True, slots=True)
class Ended:
    """From a shard: an episode has come to its end, or no episode can go on."""

    index: int
    result: Finished | Exception


@dataclass(frozen=True, slots=True)
class Broken:
    """From a shard: it cannot begin or go on, and another process in its place could not either."""

    error: Exception


@dataclass(frozen=True, slots=True)
class How:
    """From a shard, once in a while: how its backends are."""

    retries: int
    """So far, of this process."""
    troubles: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Reserve:
    """From a shard: may this be asked for?"""

    hold: int
    index: int
    """The episode's."""
    prompt_tokens: float
    max_tokens: int | None
    prices: tuple[float, float] | None
    """US dollars per prompt token and per completion token; None where they are unknown."""


@dataclass(frozen=True, slots=True)
class Reserved:
    """To a shard: it may, or why it may not."""

    hold: int
    refusal: Exception | None = None


@dataclass(frozen=True, slots=True)
class Settle:
    """From a shard: what was put aside was used so far; without usage, nothing was paid."""

    hold: int
    """Zero where nothing was put aside, because there is no budget; it is counted all the same."""
    index: int
    usage: RequestUsage | None = None
    cost_usd: float | None = None


@dataclass(frozen=True, slots=True)
class Said:
    """From a shard: something for the run's log, such as a backend that does not answer."""

    level: int
    """As Python's logging has them."""
    facts: dict[str, Any]
    """`event`, `text` and all else that is known."""
