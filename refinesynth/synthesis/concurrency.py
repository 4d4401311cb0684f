"""Limit of the episodes in flight: the given one, or with `auto` a limit that grows with the finished episodes."""

import os
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal

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
"""Initial limit under `auto`; equals the initial limit of a rate limiter."""
MAX_IN_FLIGHT = 1_024
"""Limit of one process: with more episodes, one core makes no more requests (docs/benchmarks.md)."""
_EPISODE_BYTES = 2**19
"""Bytes per episode in flight; measured: 189 KiB with the direct client, 384 KiB with litellm (docs/benchmarks.md)."""
_MEMORY_DIVISOR = 4
"""Divisor of the memory for episodes in flight; modules, caches and other programs need the rest."""
_GROWTH = 2
"""Episodes that may be in flight per finished episode under `auto`: a run in which nothing is accepted stops early before
hundreds are paid for."""
PREFETCH = 8
"""Episodes handed over to workers per episode in flight; long blocks waste less time on their last episode."""


def max_in_flight_of(concurrency: int | Literal["auto"], *, workers: int = 1) -> int:
    """Return the maximum number of episodes in flight."""
    if concurrency != "auto":
        return concurrency
    memory, maximum = memory_of_machine(), MAX_IN_FLIGHT * workers
    return maximum if memory is None else max(MIN_IN_FLIGHT, min(maximum, memory // _MEMORY_DIVISOR // _EPISODE_BYTES))


@dataclass(frozen=True)
class EpisodeLimit:
    """Limit of the episodes in flight. The rate limiters decide how many of their requests a server gets at once."""

    maximum: int
    grows: bool = False
    """True to begin with `MIN_IN_FLIGHT` and grow with the finished episodes."""
    prefetch: int = 1

    def current(self, finished: int) -> int:
        """Return the number of episodes that may be handed over after `finished` ones."""
        limit = min(self.maximum, max(MIN_IN_FLIGHT, _GROWTH * finished)) if self.grows else self.maximum
        return self.prefetch * limit
