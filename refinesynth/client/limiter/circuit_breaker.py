"""Circuit breaker: while a backend is down, one trial request at a time is sent, and all others wait."""

from collections.abc import Callable
from random import uniform

from refinesynth.client.classify_error import ClassifiedError, ErrorCategory

_FAULTS = 5
"""Faults in a row, without any answer, that open the breaker."""
_EPISODES = 3
"""Different episodes among them, so one prompt that crashes the server does not open it."""
DOWN = frozenset({ErrorCategory.UNREACHED, ErrorCategory.SERVER, ErrorCategory.TIMEOUT})
"""Faults of a backend that is down; with any other one, it has answered."""


class CircuitBreaker:
    """Opens on faults in a row, tries from time to time, closes on the first answer. Pure arithmetic: no clock, no
    waiting.

    It never opens before the first answer of the backend (`met`): that is a wrong address, not an outage. Between trials:
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
        self._row: list[ErrorCategory] = []
        """Last faults without an answer in between."""
        self._episodes: set[float] = set()
        self.fault: ClassifiedError | None = None
        """Last fault, if the backend has not answered since."""
        self.down_since: float | None = None
        """None while the backend is up."""
        self.trying = False
        """True while a trial request is in flight."""
        self.trials = 0
        """Trial requests since the backend went down."""
        self.next_trial = float("-inf")

    @property
    def waits_for_outages(self) -> bool:
        """True if an outage is waited for."""
        return self._outage > 0

    @property
    def gives_up_at(self) -> float:
        """Time at which the backend is given up; infinite while it is up."""
        return float("inf") if self.down_since is None else self.down_since + self._outage

    def may_try(self, now: float) -> bool:
        """Return True if a trial may be sent to a backend that is down."""
        return not self.trying and now >= self.next_trial

    def answered(self) -> bool:
        """Report an answer, also a refusal; return True if that ends an outage. Without effect if `fault` is None."""
        was_down = self.down_since is not None
        self.trying = False
        self.fault = self.down_since = None
        self.trials = 0
        self._row.clear()
        self._episodes.clear()
        return was_down

    def failed(
        self,
        fault: ClassifiedError,
        *,
        episode: float,
        now: float,
        met: bool = True,
        trial: bool = False,
        not_before: float = float("-inf"),
    ) -> bool:
        """Report a fault of `DOWN`; return True if that begins an outage. `met` is True if the backend has ever answered.
        No trial goes before `not_before`.
        """
        began = self.down_since is None
        self.fault = fault
        self._row = [*self._row[1 - _FAULTS :], fault.kind]
        if len(self._episodes) < _EPISODES:
            self._episodes.add(episode)
        if began:
            # No prompt makes a server refuse connections.
            of_server = len(self._episodes) >= _EPISODES or set(self._row) == {ErrorCategory.UNREACHED}
            if not (met and self._opens and of_server) or len(self._row) < _FAULTS:
                return False
            self.down_since = now
        elif not trial:
            # One of those that were under way when it opened.
            return False
        self.trying = False
        self.next_trial = max(now + self._jitter(0.0, min(self._longest_wait, 2.0**self.trials)), not_before)
        self.trials = min(self.trials + 1, 30)
        return began
