"""Limit of the episodes in flight: the given one, or with `auto` a limit from the servers' capacity and the memory."""

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
    """Return the memory of the machine, or of its container if smaller, in bytes; None if unknown."""
    found: list[int] = []
    with suppress(OSError, ValueError, AttributeError):
        found.append(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"))
    for path in _LIMITS:
        with suppress(OSError, ValueError):
            found.append(int(Path(path).read_text()))
    return min(found, default=None)


FEWEST = 16
"""Initial and lowest limit of a large run under `auto`; equals the initial limit of a rate limiter."""
MOST = 1_024
"""Limit of one process: with more episodes, one core makes no more requests (docs/benchmarks.md)."""
_EACH = 2**19
"""Bytes per episode in flight; measured: 189 KiB with the direct client, 384 KiB with litellm (docs/benchmarks.md)."""
_PART = 4
"""Divisor of the memory for episodes in flight; modules, caches and other programs need the rest."""
_SPARE = 1.25
"""Episodes per admitted request: the limiter tries a larger limit at 80 % use, and some episodes make no request while
they back off or are verified."""
AHEAD = 8
"""Episodes handed over to workers per episode in flight; long blocks waste less time on their last episode."""
_LOOK_AGAIN = 1.0
"""Seconds between checks for a grown limit while no episode ends."""


def most_of(concurrency: int | Literal["auto"], *, workers: int = 1) -> int:
    """Return the maximum number of episodes in flight."""
    if concurrency != "auto":
        return concurrency
    memory, most = memory_of_machine(), MOST * workers
    return most if memory is None else max(FEWEST, min(most, memory // _PART // _EACH))


def fewest_for(n: int) -> int:
    """Return the initial and lowest limit under `auto`: `n` and a quarter more for refusals, at most `FEWEST`."""
    return min(FEWEST, n + max(2, n // 4))


@dataclass(frozen=True)
class EpisodeLimit:
    """Limit of the episodes in flight; constant if `fewest` equals `most`."""

    most: int
    fewest: int
    limiters: "Callable[[], Iterable[RateLimiter]]" = tuple
    """Returns the limiters of the servers that this process uses."""
    elsewhere: Callable[[], int] = int
    """Returns the number of requests that servers admit at once from the run's workers."""
    ahead: int = 1

    @property
    def look_again(self) -> float:
        """Seconds after which to check the limit again without an event."""
        return math.inf if self.fewest == self.most else _LOOK_AGAIN

    def episodes(self) -> int:
        """Return the number of episodes that may be handed over now."""
        if self.fewest == self.most:
            return self.ahead * self.most
        taken = room_of(self.limiters()) + self.elsewhere()
        return self.ahead * min(self.most, max(self.fewest, math.ceil(_SPARE * taken)))

    def bound(self, in_flight: int) -> LimitingFactor:
        """Return the factor that limits the episodes in flight; `in_flight` is at the present limit."""
        if in_flight >= self.ahead * self.most:
            return LimitingFactor.ASKED if self.fewest == self.most else LimitingFactor.MEMORY
        paced = any(one.waiting and one.in_flight < (one.most or math.inf) for one in self.limiters())
        return LimitingFactor.RATE if paced else LimitingFactor.SERVER
