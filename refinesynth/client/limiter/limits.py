"""Limits of requests to a server: concurrent requests, requests and tokens a minute, circuit breaker for outages.

The adaptive limit of concurrent requests is found by comparing the throughput of two limits. While a backend is down,
the breaker allows one trial request at a time. Pure arithmetic: no clock, no waiting. No library: a limiter with its
own queue, such as aiolimiter, lets small requests overtake large ones forever and ignores the limiter's priorities.
"""

import math
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from random import uniform

from refinesynth.client.classify_error import ClassifiedError, ErrorCategory

UNBOUNDED = 2**31
"""Value of `ConcurrencyLimit.current` without a limit."""
_INITIAL_LIMIT = 16
"""Initial limit: small enough for a small server, and four doublings below the capacity of most servers."""
_MIN_GAIN_SHARE = 0.25
"""Minimum share of a proportional gain that keeps the larger of two limits: 19 % more concurrent requests must bring
4.4 % more throughput. A smaller share would add latency for little throughput; a larger one would lose small gains in
the noise."""
_MAX_HALVINGS, _MAX_FAILURES = 2, 4
"""Consecutive failed trials. The first `_MAX_HALVINGS` halve the logarithm of the step between two limits (factors 2,
1.41, 1.19): the search ends within a fifth of the optimum, and steps stay larger than the noise. Later ones double the
rest between trials (8 and 16 rounds), which makes the cost of trials negligible."""
_SHORT_ROUND = 8
"""Minimum answers to judge a long step, minimum faults to shrink the limit, and smallest limit that slowness alone
leads to: a few requests too many do no harm."""
_LONG_ROUND = 32
"""Minimum answers to judge a short step, to keep the noise smaller than the step."""
_FAULT_FACTOR = 3
"""A trial ends early with more faults than this multiple of the expected random faults plus one: four refusals suffice
without random faults. At a random fault rate of 1/6, half of all requests must fail, which ends the trial anyway."""
_SUDDEN_SLOWDOWN = 1.5
"""Slowdown factor that ends a rest."""
_MIN_USE = 0.8
"""Share of the limit in use from which the limit, not the demand, determines the throughput."""


@dataclass
class _KindTotals:
    """Sums over the answers of one kind of request."""

    seconds: float = 0.0
    tokens: float = 0.0


@dataclass
class _Measurement:
    size: int
    used: float
    """Logarithm of the mean number of places in use."""
    gain: float
    """Logarithm of the mean number of requests in flight times their answered share."""
    failed_share: float
    """Share of requests that failed."""
    pace: dict[Hashable, float]
    """Logarithm of the seconds per output token of each kind of request."""

    def average_with(self, new: "_Measurement") -> None:
        """Average with a new measurement, exponentially weighted: the new one counts one third."""
        self.used += (new.used - self.used) / 3
        self.gain += (new.gain - self.gain) / 3
        self.failed_share += (new.failed_share - self.failed_share) / 3
        for kind, pace in new.pace.items():
            known = self.pace.get(kind, pace)
            self.pace[kind] = known + (pace - known) / 3


class ConcurrencyLimit:
    """Limit of the requests in flight. Pure arithmetic: no clock, no waiting.

    Throughput decides between two limits. By Little's law it is the requests in flight, times the answered share, over
    the time per output token (each kind of request is compared with itself). Random faults do not affect the choice:
    their share is the same at both limits. Refusals and slowness beyond the server's capacity do.

    A round is as many ended requests, begun at this limit, as the limit, but at least 8 or 32. The larger of two limits
    is kept if its throughput is clearly higher, else the smaller. A failed trial shortens the step or lengthens the
    rest; two consecutive successes lengthen the step. A trial of a larger limit ends early if its faults rule out a
    gain, and the next rest doubles. If most requests fail at the settled limit, the limit is halved.

    Guarantees: 1 <= `current` <= ceiling. Without noise, for a server that accepts C requests at once and queues or
    refuses the rest, the limit ends at 0.84 C to 1.14 C (at least 8 if it queues). Not guaranteed: anything while
    demand is below the limit, or if random faults break half of the requests.
    """

    def __init__(self, *, start: int | None = _INITIAL_LIMIT, ceiling: int | None = None) -> None:
        """Begin with a limit of `start`; None begins at `ceiling`, or without a limit."""
        self._ceiling = float("inf") if ceiling is None else float(ceiling)
        self._start = self._ceiling if start is None else min(float(start), self._ceiling)
        self._weights: dict[Hashable, float] = {}
        """Kind of request to the total seconds of its answers, its weight."""
        self._begun_count = 0
        self.restart()

    @property
    def current(self) -> int:
        """Current limit of the requests in flight."""
        return UNBOUNDED if math.isinf(self._size) else max(1, int(self._size))

    def restart(self) -> None:
        """Search anew from the initial limit: after an outage, the server may have changed."""
        self._search_from(self._start)

    def begin(self) -> int:
        """Begin a request; return its number, for `answered`, `failed` and `ended`. Every request must call `ended`."""
        self._begun_count += 1
        return self._begun_count

    def answered(
        self, number: int, *, seconds: float, tokens: float, kind: Hashable, in_flight: int, held: int = 0
    ) -> None:
        """Record an answer to request `number`, which took `seconds` and had `tokens` of output.

        Requests of one `kind`, such as one role and model, should take similar time per token. `in_flight` includes
        this request; `held` is the number of places kept empty because of a Retry-After.
        """
        if number < self._first_counted:
            return
        totals = self._totals.setdefault(kind, _KindTotals())
        totals.seconds += seconds
        totals.tokens += max(tokens, 1.0)
        self._count += 1
        self._in_flight += in_flight
        self._in_use += in_flight + held

    def failed(self, number: int) -> None:
        """Record a request that failed because of the server or the network.

        Requests begun before the last change of the limit do not count.
        """
        if number < self._first_counted:
            return
        self._faults += 1
        begun_in_round = self._begun_count - self._begun_before
        is_trial = self._settled is not None and self.current > self._settled.size
        if self._faults >= _SHORT_ROUND and self._faults > begun_in_round / 2:
            if is_trial:
                self._give_up()
            else:
                self._search_from(self._size / 2)
        elif is_trial and self._is_refuted(begun_in_round):
            self._give_up()
            # Trials that cost refusals become half as frequent.
            self._rest_rounds *= 2

    def ended(self, number: int) -> None:
        """Record the end of a request, after `answered` or `failed`."""
        if number < self._first_counted:
            return
        self._round_remaining -= 1
        if self._round_remaining <= 0:
            if self._count:
                self._judge(self._measure())
            self._start_round()

    def _is_refuted(self, begun: int) -> bool:
        """Return True if the faults of a larger limit exceed its possible gain and several times the random faults."""
        settled = self._settled
        if settled is None or not _FAULT_FACTOR * (1 + settled.failed_share * begun) < self._faults < begun:
            return False
        loss = math.log((1 - settled.failed_share) / (1 - self._faults / begun))
        return loss > (1 - _MIN_GAIN_SHARE) * math.log(self.current / settled.size)

    def _give_up(self) -> None:
        if self._settled is not None:
            self._resize(self._settled.size)
        self._fail()
        self._start_round()

    @property
    def _step_factor(self) -> float:
        return 2.0**0.5 ** min(self._failures, _MAX_HALVINGS)

    def _search_from(self, size: float) -> None:
        self._settled: _Measurement | None = None
        self._failures = 0
        self._has_succeeded = False
        self._rest_rounds = 0
        self._is_growing = True
        self._resize(size)
        self._start_round()

    def _start_round(self) -> None:
        self._totals: dict[Hashable, _KindTotals] = {}
        self._count = self._in_flight = self._in_use = self._faults = 0
        self._begun_before = self._begun_count
        self._round_remaining = max(self.current, _LONG_ROUND if self._failures >= _MAX_HALVINGS else _SHORT_ROUND)

    def _measure(self) -> _Measurement:
        for kind, totals in self._totals.items():
            self._weights[kind] = self._weights.get(kind, 0.0) + totals.seconds
        # A coarse clock may measure 0 s.
        pace = {kind: math.log(max(totals.seconds, 1e-9) / totals.tokens) for kind, totals in self._totals.items()}
        answered = self._count / (self._count + self._faults)
        used, in_flight = self._in_use / self._count, self._in_flight / self._count
        return _Measurement(self.current, math.log(used), math.log(in_flight * answered), 1 - answered, pace)

    def _slowdown(self, new: _Measurement, old: _Measurement) -> float:
        """Return the logarithm of the slowdown from `old` to `new`; kinds are weighted by their work."""
        kinds = new.pace.keys() & old.pace.keys()
        work = sum(self._weights[kind] for kind in kinds)
        return sum(self._weights[kind] * (new.pace[kind] - old.pace[kind]) for kind in kinds) / work if work else 0.0

    def _judge(self, measured: _Measurement) -> None:
        settled = self._settled
        if settled is None:
            self._settled = measured
        elif measured.size == settled.size:
            if self._slowdown(measured, settled) > math.log(_SUDDEN_SLOWDOWN):
                self._rest_rounds = 0
                self._is_growing = False
            settled.average_with(measured)
            self._rest_rounds -= 1
        else:
            large, small = (measured, settled) if self._is_growing else (settled, measured)
            use_gain = large.used - small.used
            gain = large.gain - small.gain - self._slowdown(large, small)
            if 2 * use_gain < math.log(large.size / small.size):
                # Demand was too low to decide: start again from this limit.
                self._settled = measured
                self._is_growing = True
            elif (gain >= _MIN_GAIN_SHARE * use_gain) == self._is_growing:
                self._settled = measured
                self._failures = max(self._failures - self._has_succeeded, 0)
                self._has_succeeded = True
            else:
                self._resize(settled.size)
                self._is_growing = not self._is_growing
                self._fail()
        if self._rest_rounds <= 0 and measured.used >= math.log(_MIN_USE * measured.size):
            self._step()

    def _fail(self) -> None:
        self._failures = min(self._failures + 1, _MAX_FAILURES)
        self._has_succeeded = False
        self._rest_rounds = 0 if self._failures <= _MAX_HALVINGS else 2**self._failures

    def _step(self) -> None:
        size = self._size
        if self._is_growing:
            self._resize(max(size * self._step_factor, size + 1))
        else:
            self._resize(max(size / self._step_factor, min(size, _SHORT_ROUND)))
        if self.current == int(size):
            # At the ceiling or the floor: try the other direction after a rest.
            self._is_growing = not self._is_growing
            self._fail()

    def _resize(self, size: float) -> None:
        self._size = min(max(size, 1.0), self._ceiling)
        self._first_counted = self._begun_count + 1


_MINUTE = 60.0
_WINDOW = 6.0
"""Size of a token bucket: tokens of this many seconds may be spent at once."""
_FIRST_ANSWER_TOKENS = 500.0
"""Expected tokens of the first completion."""


class TokenBucket:
    """Bucket that fills at a constant rate, which may be infinite, up to its size; its level may become negative."""

    def __init__(self, *, rate: float, size: float) -> None:
        """Begin with a full bucket. `rate` is per second."""
        self._rate = rate
        self._size = size
        self._full_at = float("-inf")

    def ready_at(self, amount: float) -> float:
        """Return the time at which `amount` may be taken: for more than the size, when the bucket is full."""
        return self._full_at - (self._size - min(amount, self._size)) / self._rate

    def take(self, now: float, amount: float) -> None:
        """Take an amount, even beyond the level; a negative amount is returned to the bucket."""
        self._full_at = max(self._full_at, now) + amount / self._rate


class TokenBuckets:
    """The user's rate limits of one model.

    An estimate of the tokens is charged before a request, and corrected to the billed tokens after it: the limit holds
    on average over a few requests. A request waits until `ready_at` and calls `charge`; the rate limiter decides the
    order of requests.
    """

    def __init__(
        self,
        *,
        requests_per_minute: float | None = None,
        tokens_per_minute: float | None = None,
    ) -> None:
        self._requests = TokenBucket(rate=(requests_per_minute or math.inf) / _MINUTE, size=1.0)
        rate = (tokens_per_minute or math.inf) / _MINUTE
        self._tokens = TokenBucket(rate=rate, size=1.0 if tokens_per_minute is None else rate * _WINDOW)
        self._answer_tokens = _FIRST_ANSWER_TOKENS

    def ready_at(self, prompt_tokens: float) -> float:
        """Return the time at which a request with such a prompt may go; a past time means now."""
        return max(self._requests.ready_at(1.0), self._tokens.ready_at(prompt_tokens + self._answer_tokens))

    def charge(self, now: float, prompt_tokens: float) -> float:
        """Charge a request; return the charged tokens, for `settle`."""
        charged = prompt_tokens + self._answer_tokens
        self._requests.take(now, 1.0)
        self._tokens.take(now, charged)
        return charged

    def settle(self, now: float, charged: float, *, billed: float, answer: float | None = None) -> None:
        """Correct a charge to the `billed` tokens; `answer` is the completion's tokens, None without one."""
        self._tokens.take(now, billed - charged)
        if answer is not None:
            self._answer_tokens += (answer - self._answer_tokens) / 8


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
