"""Work limit of a search: a deterministic count of the evaluations and changes that a block of code performs.

Work is counted where it is done, before it is done: by expressions, effects, sights and digests of states.
"""

from collections.abc import Generator
from contextlib import contextmanager
from contextvars import ContextVar
from math import inf

MAX_WORK = 20_000_000_000
"""Default work limit of a search: some tens of seconds, reached only by rulebooks that are slow on purpose."""

_BASE_COST = 1_000
"""Base cost of an evaluation or a change, in the unit of a condition's cost: bytes of touched state."""


class WorkLimitExceeded(Exception):
    """The work limit is reached. Caught where the limit was created."""


class WorkLimit:
    """Work that is left, and the size of the largest state so far in bytes of JSON."""

    def __init__(self, remaining: float = MAX_WORK) -> None:
        self.remaining = remaining
        self.state_bytes = 0
        self._charged = set[bytes]()

    def charge(self, work: int) -> None:
        """Count work, in bytes of touched state.

        Raises:
            WorkLimitExceeded: The limit is reached.
        """
        self.remaining -= work + _BASE_COST
        if self.remaining < 0:
            raise WorkLimitExceeded

    def charge_once(self, key: bytes, work: int) -> None:
        """Charge the work of a result in a cache, once for each key, so the count does not depend on the cache."""
        if self.remaining < inf and key not in self._charged:
            self._charged.add(key)
            self.charge(work)

    @contextmanager
    def applied(self) -> "Generator[WorkLimit]":
        """Count the work of a block of code, in which functions that never raise otherwise raise `WorkLimitExceeded` at the
        limit. Threads and tasks that run meanwhile are not counted; a block in it counts alone.
        """
        token = _current.set(self)
        try:
            yield self
        finally:
            _current.reset(token)


_UNLIMITED = WorkLimit(inf)
_current: ContextVar[WorkLimit] = ContextVar("work limit")


def current_limit() -> WorkLimit:
    """Return the limit of the running block; outside of one, work is unlimited."""
    return _current.get(_UNLIMITED)
