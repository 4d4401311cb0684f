"""How many episodes may be in flight: as many as was asked, or with `auto` as the servers have room for and memory bears."""

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from refinesynth.files.memory import memory_of_machine
from refinesynth.synthesis.progress import Bound, room_of

if TYPE_CHECKING:
    from refinesynth.client.limiter.rate_limiter import RateLimiter

FEWEST = 16
"""What is begun with under `auto`, as many as a limiter lets through at first, and what it never goes below."""
MOST = 1_024
"""Beyond which one process has no core left to ask with (docs/benchmarks.md)."""
_EACH = 2**19
"""Bytes of an episode in flight: 189 KiB were measured with the direct client, 384 with litellm (docs/benchmarks.md)."""
_PART = 4
"""The part of the memory that episodes in flight may take; modules, caches and other programs need the rest."""
_SPARE = 1.25
"""Episodes for each request that may be in flight: the limiter tries a larger limit where four fifths are in use, and
some episodes back off or are being checked."""
AHEAD = 8
"""Episodes that are handed over to workers for each that may be in flight, so their blocks are long beside the time that
the last episode of one takes."""
_LOOK_AGAIN = 1.0
"""Seconds after which a limit that has grown is noticed though no episode has ended."""


def most_of(concurrency: int | Literal["auto"], *, workers: int = 1) -> int:
    """The most episodes that may ever be in flight."""
    if concurrency != "auto":
        return concurrency
    memory, most = memory_of_machine(), MOST * workers
    return most if memory is None else max(FEWEST, min(most, memory // _PART // _EACH))


@dataclass(frozen=True)
class Room:
    """For episodes in flight. Where `fewest` is `most`, that many, whatever the servers do."""

    most: int
    fewest: int
    limiters: "Callable[[], Iterable[RateLimiter]]" = tuple
    """Of the servers that are asked here."""
    elsewhere: Callable[[], int] = int
    """Requests that servers take at once from workers of the run."""
    ahead: int = 1
    """Episodes that are handed over for each that may be in flight."""

    @property
    def look_again(self) -> float:
        """Seconds after which there may be more, though nothing has happened here."""
        return math.inf if self.fewest == self.most else _LOOK_AGAIN

    def episodes(self) -> int:
        """Number of episodes that may be handed over now."""
        if self.fewest == self.most:
            return self.ahead * self.most
        taken = room_of(self.limiters()) + self.elsewhere()
        return self.ahead * min(self.most, max(self.fewest, math.ceil(_SPARE * taken)))

    def bound(self, in_flight: int) -> Bound:
        """What keeps it from being more than so many, which are all that there is room for."""
        if in_flight >= self.ahead * self.most:
            return Bound.ASKED if self.fewest == self.most else Bound.MEMORY
        states = [limiter.state for limiter in self.limiters()]
        paced = any(state.waiting and state.in_flight < (state.limit or math.inf) for state in states)
        return Bound.RATE if paced else Bound.SERVER
