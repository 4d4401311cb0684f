"""Circuit breaker: while a backend is down, one trial request at a time is sent, and all others wait."""

from collections.abc import Callable
from enum import StrEnum
from random import uniform

from refinesynth.client.classify_error import Fault, FaultKind

_FAULTS = 5
"""Faults in a row, without any answer, that open the breaker."""
_EPISODES = 3
"""Different episodes among them, so one prompt that crashes the server does not open it."""
DOWN = frozenset({FaultKind.UNREACHED, FaultKind.SERVER, FaultKind.TIMEOUT})
"""Faults of a backend that is down; with any other one, it has answered."""


class CircuitState(StrEnum):
    CLOSED = "closed"
    OPEN = "open"
    """The backend is down; nothing is sent until the next trial."""
    HALF_OPEN = "half_open"
    """One trial request is in flight."""


class CircuitBreaker:
    """Opens on faults in a row, tries from time to time, closes on the first answer. Pure arithmetic: no clock, no
    waiting.

    It never opens before the first answer of the backend: that is a wrong address, not an outage. Between trials:
    exponential backoff with full jitter, at most `longest_wait` seconds.
    """

    def __init__(
        self,
        *,
        longest_wait: float = 60.0,
        outage: float = 600.0,
        opens: bool = True,
        jitter: Callable[[float, float], float] = uniform,
    ) -> None:
        """Begin closed. A backend is given up `outage` seconds after it went down. Without `opens`, faults say nothing
        of the backend, as in a batch, whose requests all fail at once. `jitter` draws a number between two others.
        """
        self._opens = opens
        self._longest_wait = longest_wait
        self._outage = outage
        self._jitter = jitter
        self._faults: list[Fault] = []
        self._episodes: set[float] = set()
        self.trials = 0
        """Trial requests since the backend went down."""
        self.position = CircuitState.CLOSED
        self.met = False
        """True if the backend has ever answered."""
        self.down_since: float | None = None
        self.next_trial = float("-inf")
        """Time of the next trial while open."""

    @property
    def waits(self) -> bool:
        """True if an outage is waited for."""
        return self._outage > 0

    @property
    def closed(self) -> bool:
        return self.position is CircuitState.CLOSED

    @property
    def fault(self) -> Fault | None:
        """Last of the faults in a row; None after an answer."""
        return self._faults[-1] if self._faults else None

    @property
    def gives_up_at(self) -> float:
        """Time at which the backend is given up; infinite while it is up."""
        return float("inf") if self.down_since is None else self.down_since + self._outage

    def may_try(self, now: float) -> bool:
        """Return True if a trial may be sent."""
        return self.position is CircuitState.OPEN and now >= self.next_trial

    def start_trial(self) -> None:
        self.position = CircuitState.HALF_OPEN

    def drop_trial(self) -> None:
        """Cancel the trial; the next may go at once."""
        self.position = CircuitState.OPEN

    def answered(self) -> bool:
        """Report an answer, also a refusal; return True if that ends an outage."""
        self.met = True
        self._faults.clear()
        self._episodes.clear()
        was_down = not self.closed
        self.position = CircuitState.CLOSED
        self.down_since = None
        self.trials = 0
        return was_down

    def failed(
        self, fault: Fault, *, episode: float, now: float, trial: bool = False, not_before: float = float("-inf")
    ) -> bool:
        """Report a fault of `DOWN`; return True if that begins an outage. No trial goes before `not_before`."""
        # The last few are enough, however long an outage lasts.
        self._faults = [*self._faults[-_FAULTS:], fault]
        if len(self._episodes) < _EPISODES:
            self._episodes.add(episode)
        if self.closed:
            if not self.met or not self._is_down():
                return False
            self.down_since = now
        elif not trial:
            # One of those that were under way when it opened.
            return False
        began = self.closed
        self.position = CircuitState.OPEN
        self.next_trial = max(now + self._jitter(0.0, min(self._longest_wait, 2.0**self.trials)), not_before)
        self.trials = min(self.trials + 1, 30)
        return began

    def _is_down(self) -> bool:
        recent = self._faults[-_FAULTS:]
        if len(recent) < _FAULTS or not self._opens:
            return False
        # No prompt makes a server refuse connections.
        return len(self._episodes) >= _EPISODES or all(fault.kind is FaultKind.UNREACHED for fault in recent)
