"""Limit of the episodes in flight: the given one, or with `auto` a limit from the servers' capacity and the memory.

Also the garbage collection of a process that only plays episodes.
"""

import gc
import math
import os
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal

from refinesynth.synthesis.progress import LimitingFactor, capacity_of

if TYPE_CHECKING:
    from refinesynth.client.limiter.rate_limiter import RateLimiter


_LIMIT_FILES: Final = ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes")
"""Files with a container's memory limit."""


def memory_of_machine() -> int | None:
    """Return the memory of the machine, or of its container if smaller, in bytes; None if unknown."""
    sizes: list[int] = []
    with suppress(OSError, ValueError, AttributeError):
        sizes.append(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"))
    for path in _LIMIT_FILES:
        with suppress(OSError, ValueError):
            sizes.append(int(Path(path).read_text()))
    return min(sizes, default=None)


MIN_IN_FLIGHT = 16
"""Initial and lowest limit of a large run under `auto`; equals the initial limit of a rate limiter."""
MAX_IN_FLIGHT = 1_024
"""Limit of one process: with more episodes, one core makes no more requests (docs/benchmarks.md)."""
_EPISODE_BYTES = 2**19
"""Bytes per episode in flight; measured: 189 KiB with the direct client, 384 KiB with litellm (docs/benchmarks.md)."""
_MEMORY_DIVISOR = 4
"""Divisor of the memory for episodes in flight; modules, caches and other programs need the rest."""
_EPISODES_PER_REQUEST = 1.25
"""Episodes per admitted request: the limiter tries a larger limit at 80 % use, and some episodes make no request while
they back off or are verified."""
PREFETCH = 8
"""Episodes handed over to workers per episode in flight; long blocks waste less time on their last episode."""
_RECHECK_S = 1.0
"""Seconds between checks for a grown limit while no episode ends."""


def max_in_flight_of(concurrency: int | Literal["auto"], *, workers: int = 1) -> int:
    """Return the maximum number of episodes in flight."""
    if concurrency != "auto":
        return concurrency
    memory, maximum = memory_of_machine(), MAX_IN_FLIGHT * workers
    return maximum if memory is None else max(MIN_IN_FLIGHT, min(maximum, memory // _MEMORY_DIVISOR // _EPISODE_BYTES))


def min_in_flight_for(n: int) -> int:
    """Return the initial and lowest limit under `auto`: `n` and a quarter more for refusals, at most `MIN_IN_FLIGHT`."""
    return min(MIN_IN_FLIGHT, n + max(2, n // 4))


@dataclass(frozen=True)
class EpisodeLimit:
    """Limit of the episodes in flight; constant if `minimum` equals `maximum`."""

    maximum: int
    minimum: int
    limiters: "Callable[[], Iterable[RateLimiter]]" = tuple
    """Returns the limiters of the servers that this process uses."""
    worker_capacity: Callable[[], int] = int
    """Returns the number of requests that servers admit at once from the run's workers."""
    prefetch: int = 1

    @property
    def recheck_s(self) -> float:
        """Seconds after which to check the limit again without an event."""
        return math.inf if self.minimum == self.maximum else _RECHECK_S

    def current(self) -> int:
        """Return the number of episodes that may be handed over now."""
        if self.minimum == self.maximum:
            return self.prefetch * self.maximum
        capacity = capacity_of(self.limiters()) + self.worker_capacity()
        return self.prefetch * min(self.maximum, max(self.minimum, math.ceil(_EPISODES_PER_REQUEST * capacity)))

    def limiting_factor(self, in_flight: int) -> LimitingFactor:
        """Return the factor that limits the episodes in flight; `in_flight` is at the present limit."""
        if in_flight >= self.prefetch * self.maximum:
            return LimitingFactor.CONCURRENCY if self.minimum == self.maximum else LimitingFactor.MEMORY
        paced = any(item.waiting and item.in_flight < (item.max_in_flight or math.inf) for item in self.limiters())
        return LimitingFactor.RATE if paced else LimitingFactor.SERVER


YOUNG, MIDDLE, OLD = 20_000, 20, 20
"""New objects per collection of the youngest generation, and collections per collection of each older one."""


def tune_gc() -> None:
    """Collect cyclic garbage less often, and never among the present objects, until the process ends.

    With many episodes in flight this saves an eighth of the CPU time or more. The exit does not traverse the objects of
    litellm, which took too long after Ctrl-C. Episodes leave no cycles. Cycles of a library or a user's rule are
    collected once in some hundred episodes, when a quarter of all objects is new.
    """
    gc.freeze()
    # Collects nothing, but resets the count of old objects. A full collection runs only when the new objects exceed a
    # quarter of the old ones, and the imported objects, though frozen, would still count as old.
    gc.collect()
    gc.set_threshold(YOUNG, MIDDLE, OLD)
