"""Circuit breaker: while a backend is down, it gets one trial request at a time, and all other requests wait."""

from collections.abc import Callable
from random import uniform

from refinesynth.client.classify_error import ClassifiedError, ErrorCategory

_MAX_FAULTS = 5
"""Consecutive faults that open the breaker."""
_MIN_EPISODES = 3
"""Minimum number of episodes with these faults: one prompt that crashes the server must not open the breaker."""
OUTAGE_CATEGORIES = frozenset({ErrorCategory.UNREACHED, ErrorCategory.SERVER, ErrorCategory.TIMEOUT})
"""Faults of a backend that may be down; any other fault is a response."""


class CircuitBreaker:
    """State of a breaker that opens on consecutive faults, allows trials, and closes on the first answer. Pure
    arithmetic: no clock, no waiting.

    It never opens before the first answer (`has_answered`), because the address may be wrong. The interval between
    trials is exponential backoff with full jitter, at most `longest_wait` seconds unless the server asks for more.
    """

    def __init__(
        self,
        *,
        longest_wait: float = 60.0,
        outage: float = 600.0,
        can_open: bool = True,
        jitter: Callable[[float, float], float] = uniform,
    ) -> None:
        """Begin closed. A backend is given up `outage` seconds after it went down. Without `can_open`, the breaker
        stays closed, as for batches, whose requests all fail at once. `jitter` draws a number between two others.
        """
        self._can_open = can_open
        self._longest_wait = longest_wait
        self._outage = outage
        self._jitter = jitter
        self._recent_faults: list[ErrorCategory] = []
        """Latest consecutive faults, at most `_MAX_FAULTS`."""
        self._episodes: set[float] = set()
        self.fault: ClassifiedError | None = None
        """Last fault; None after an answer."""
        self.down_since: float | None = None
        """Time at which the backend went down; None while it is up."""
        self.is_trying = False
        self.trials = 0
        """Trial requests since the backend went down."""
        self.next_trial = float("-inf")

    @property
    def waits_for_outages(self) -> bool:
        """True if requests wait for the end of an outage."""
        return self._outage > 0

    @property
    def gives_up_at(self) -> float:
        """Time at which the backend is given up; infinite while the backend is up."""
        return float("inf") if self.down_since is None else self.down_since + self._outage

    def may_try(self, now: float) -> bool:
        """Return True if a trial may be sent to a backend that is down."""
        return not self.is_trying and now >= self.next_trial

    def answered(self) -> bool:
        """Record an answer or a refusal; return True if it ends an outage. No effect if `fault` is None."""
        was_down = self.down_since is not None
        self.is_trying = False
        self.fault = self.down_since = None
        self.trials = 0
        self._recent_faults.clear()
        self._episodes.clear()
        return was_down

    def failed(
        self,
        fault: ClassifiedError,
        *,
        episode: float,
        now: float,
        has_answered: bool = True,
        is_trial: bool = False,
        not_before: float = float("-inf"),
    ) -> bool:
        """Record a fault of `OUTAGE_CATEGORIES`; return True if it begins an outage. `has_answered` is True if the
        backend has ever answered. The next trial is not before `not_before`.
        """
        begins = self.down_since is None
        self.fault = fault
        self._recent_faults = [*self._recent_faults[1 - _MAX_FAULTS :], fault.category]
        if len(self._episodes) < _MIN_EPISODES:
            self._episodes.add(episode)
        if begins:
            # A prompt cannot cause refused connections: these faults count without `_MIN_EPISODES`.
            of_server = len(self._episodes) >= _MIN_EPISODES or set(self._recent_faults) == {ErrorCategory.UNREACHED}
            if not (has_answered and self._can_open and of_server) or len(self._recent_faults) < _MAX_FAULTS:
                return False
            self.down_since = now
        elif not is_trial:
            # The request was in flight when the breaker opened.
            return False
        self.is_trying = False
        self.next_trial = max(now + self._jitter(0.0, min(self._longest_wait, 2.0**self.trials)), not_before)
        self.trials = min(self.trials + 1, 30)
        return begins
