"""A circuit breaker: while a backend is down, one request at a time asks whether it is back, and all others wait."""

from collections.abc import Callable
from enum import StrEnum
from random import uniform

from refinesynth.client.classify_error import Fault, FaultKind

_FAULTS = 5
"""Faults in a row, without an answer to anyone, that open the breaker."""
_EPISODES = 3
"""Episodes among which they are, lest one prompt that a server cannot bear is taken for its end."""
DOWN = frozenset({FaultKind.UNREACHED, FaultKind.SERVER, FaultKind.TIMEOUT})
"""Faults of a backend that is down; after any other one, it has answered."""


class CircuitState(StrEnum):
    """Of a breaker."""

    CLOSED = "closed"
    """All is well."""
    OPEN = "open"
    """The backend is down; nothing is sent until the next trial."""
    HALF_OPEN = "half_open"
    """One request is under way, to see whether the backend is back."""


class CircuitBreaker:
    """Opens on faults in a row, tries now and then, closes on the first answer. Pure arithmetic: no clock, no waiting.

    It never opens before the backend has answered for the first time: what was never there is a wrong address, not an
    outage. Between trials: exponential backoff with full jitter, at most `longest_wait` seconds.
    """

    def __init__(
        self,
        *,
        longest_wait: float = 60.0,
        outage: float = 600.0,
        opens: bool = True,
        jitter: Callable[[float, float], float] = uniform,
    ) -> None:
        """Closed.

        Args:
            longest_wait: Most seconds between two trials.
            outage: Seconds after which a backend that is down is given up.
            opens: False for requests whose faults do not say that the backend is down, such as those of one batch,
                which all fail at once.
            jitter: A number between two others.
        """
        self._opens = opens
        self._longest_wait = longest_wait
        self._outage = outage
        self._jitter = jitter
        self._faults: list[Fault] = []
        self._episodes: set[float] = set()
        self.trials = 0
        """Requests that are to see, or saw, whether it is back, since it went down."""
        self.position = CircuitState.CLOSED
        self.met = False
        """Whether the backend has ever answered."""
        self.down_since: float | None = None
        self.next_trial = float("-inf")
        """When the next request may go while it is open."""

    @property
    def waits(self) -> bool:
        """Whether an outage is waited for at all."""
        return self._outage > 0

    @property
    def closed(self) -> bool:
        """Whether requests may go."""
        return self.position is CircuitState.CLOSED

    @property
    def fault(self) -> Fault | None:
        """The last of the faults in a row; None after an answer."""
        return self._faults[-1] if self._faults else None

    @property
    def gives_up_at(self) -> float:
        """When it has been waited for long enough; infinite while the backend is up."""
        return float("inf") if self.down_since is None else self.down_since + self._outage

    def may_try(self, now: float) -> bool:
        """Whether a request may go as a trial."""
        return self.position is CircuitState.OPEN and now >= self.next_trial

    def start_trial(self) -> None:
        """A request goes to see whether the backend is back."""
        self.position = CircuitState.HALF_OPEN

    def drop_trial(self) -> None:
        """It was cancelled before there was an answer; the next may go at once."""
        self.position = CircuitState.OPEN

    def answered(self) -> bool:
        """The backend answered, if only to refuse; True if that ends an outage."""
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
        """A request met a fault of `DOWN`; True if that begins an outage. Until `not_before` the server wants no other."""
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
