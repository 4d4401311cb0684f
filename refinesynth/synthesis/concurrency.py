"""Limit of the episodes in flight: as given, or with `auto` as many as servers and memory bear."""

import math
import os
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal

from refinesynth.synthesis.progress import LimitingFactor, room_of

if TYPE_CHECKING:
    from refinesynth.client.limiter.rate_limiter import RateLimiter


_LIMITS: Final = ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes")
"""Files with a container's memory limit."""


def memory_of_machine() -> int | None:
    """Return the bytes of the machine's or its container's memory; None if unknown."""
    found: list[int] = []
    with suppress(OSError, ValueError, AttributeError):
        found.append(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"))
    for path in _LIMITS:
        with suppress(OSError, ValueError):
            found.append(int(Path(path).read_text()))
    return min(found, default=None)


FEWEST = 16
"""First and lowest limit under `auto` of a run that needs so many, as many as a limiter admits at first."""
MOST = 1_024
"""Limit of one process: beyond it, one core cannot make more requests (docs/benchmarks.md)."""
_EACH = 2**19
"""Bytes of an episode in flight: 189 KiB were measured with the direct client, 384 with litellm
(docs/benchmarks.md)."""
_PART = 4
"""Divisor of the memory for episodes in flight; modules, caches and other programs need the rest."""
_SPARE = 1.25
"""Episodes per request in flight: the limiter tries a larger limit at four fifths of use, and some episodes back off
or are being checked."""
AHEAD = 8
"""Episodes handed over to workers per episode in flight, so blocks take long compared with their last episode."""
_LOOK_AGAIN = 1.0
"""Seconds after which a grown limit is noticed though no episode has ended."""


def most_of(concurrency: int | Literal["auto"], *, workers: int = 1) -> int:
    """Return the most episodes that may ever be in flight."""
    if concurrency != "auto":
        return concurrency
    memory, most = memory_of_machine(), MOST * workers
    return most if memory is None else max(FEWEST, min(most, memory // _PART // _EACH))


def fewest_for(n: int) -> int:
    """Return the first and lowest limit under `auto`: enough for `n` trajectories with some refusals."""
    return min(FEWEST, n + max(2, n // 4))


@dataclass(frozen=True)
class EpisodeLimit:
    """Limit of the episodes in flight; constant if `fewest` equals `most`."""

    most: int
    fewest: int
    limiters: "Callable[[], Iterable[RateLimiter]]" = tuple
    """Returns the limiters of the servers that this process uses."""
    elsewhere: Callable[[], int] = int
    """Returns the requests that servers take at once from workers of the run."""
    ahead: int = 1

    @property
    def look_again(self) -> float:
        """Seconds after which the limit may have grown without an event here."""
        return math.inf if self.fewest == self.most else _LOOK_AGAIN

    def episodes(self) -> int:
        """Return the number of episodes that may be handed over now."""
        if self.fewest == self.most:
            return self.ahead * self.most
        taken = room_of(self.limiters()) + self.elsewhere()
        return self.ahead * min(self.most, max(self.fewest, math.ceil(_SPARE * taken)))

    def bound(self, in_flight: int) -> LimitingFactor:
        """Return what keeps more than `in_flight` episodes, the present limit, from being in flight."""
        if in_flight >= self.ahead * self.most:
            return LimitingFactor.ASKED if self.fewest == self.most else LimitingFactor.MEMORY
        paced = any(one.waiting and one.in_flight < (one.most or math.inf) for one in self.limiters())
        return LimitingFactor.RATE if paced else LimitingFactor.SERVER
