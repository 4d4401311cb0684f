"""One layer of retries around one completion: how often, how long in between, and what it means when they are used
up.
"""

import logging
import math
from collections import Counter
from collections.abc import Awaitable, Callable
from typing import TypeVar

import anyio
from tenacity import AsyncRetrying, RetryCallState, retry_if_exception_type
from tenacity.wait import wait_base, wait_exponential, wait_random_exponential

from refinesynth.backends.backend import Backend
from refinesynth.client.classify_error import Fault, FaultKind, FaultStep, classify_error
from refinesynth.errors import RefinesynthError

_Result = TypeVar("_Result")

_LOG = logging.getLogger("refinesynth.backends")
# As libraries do: silent until someone configures logging. Without this Python prints warnings to stderr.
_LOG.addHandler(logging.NullHandler())

_AT_FIRST = 3
"""Retries of a server that was never there: seconds, so that a wrong address is said before anyone wonders."""

_PAGES = 1
"""Retries of one that sends web pages and has never answered: a gateway's page comes once, those of a wrong address
always."""

_FEW = (FaultKind.CONTENT, FaultKind.DEFECT)
"""Kinds with the smaller budget."""

Sleep = Callable[[float], Awaitable[None]]
"""Waits that many seconds."""


class GaveUp(Exception):
    """No further attempt is made; carries the last fault and how many attempts there were."""

    def __init__(self, fault: Fault, attempts: int) -> None:
        super().__init__(fault.message)
        self.fault = fault
        self.attempts = attempts


class _Again(Exception):
    def __init__(self, fault: Fault) -> None:
        super().__init__(fault.message)
        self.fault = fault


async def retry(
    attempt: Callable[[int], Awaitable[_Result]],
    backend: Backend,
    *,
    met: Callable[[], bool] = lambda: True,
    excuses: Callable[[Fault], bool] = lambda _fault: False,
    anew: Callable[[], bool] = lambda: False,
    patience: float = math.inf,
    sleep: Sleep = anyio.sleep,
) -> _Result:
    """`attempt(content_faults_so_far)` until it succeeds or its faults say that it will not.

    Between attempts: exponential backoff with full jitter, at most `backend.longest_wait`, and what the server asks for in
    Retry-After, if that is no more than `patience` seconds: else it is given up. Faults of the backend and faults of the content have budgets of their own; defects have the
    smaller one. A server that cannot be reached and has not been `met`, that is has never answered anyone, is given up
    on after 5 to 9 seconds; one that sends a web page, after a second one. Each retry is a warning of the logger
    `refinesynth.backends`. A fault that is excused, as part of an outage that the limiter waits for, is no retry:
    nothing is counted, said or waited for here. Where `anew` says so, a budget for faults of the content that is used up
    is given once more.

    Raises:
        GaveUp: A fault that no retry fixes, or a budget is used up. Carries no trace of the original exception, whose
            text or locals may hold a key.
        RefinesynthError: What the attempt raised of this kind, unchanged.
    """
    faults: Counter[FaultKind] = Counter()

    async def until_it_counts() -> _Result | Fault:
        while True:
            try:
                return await attempt(faults[FaultKind.CONTENT])
            except RefinesynthError:
                # A completion function of ours that knows what its fault means, such as a replay.
                raise
            except Exception as error:  # noqa: BLE001 - everything is sorted, nothing is swallowed
                fault = classify_error(error, backend)
            if fault.step is not FaultStep.RETRY or not excuses(fault):
                return fault

    async def once() -> _Result:
        fault = await until_it_counts()
        if not isinstance(fault, Fault):
            return fault
        faults[fault.kind] += 1
        if _worth_another(fault, faults, backend, met=met(), patience=patience, anew=anew):
            raise _Again(fault)
        raise GaveUp(fault, faults.total())

    try:
        return await once()
    except _Again as again:
        first = again
    return await _go_on(once, first, wait=_Backoff(backend.longest_wait, met), sleep=sleep)


def _worth_another(
    fault: Fault,
    faults: Counter[FaultKind],
    backend: Backend,
    *,
    met: bool,
    patience: float,
    anew: Callable[[], bool],
) -> bool:
    """Whether another attempt may succeed, and there is one left."""
    if fault.step is not FaultStep.RETRY or (fault.after or 0.0) > patience:
        return False
    if fault.page is not None and not met and faults.total() > _PAGES:
        return False
    if fault.kind is FaultKind.UNREACHED and not met and faults[fault.kind] > _AT_FIRST:
        return False
    if fault.kind is FaultKind.CONTENT and faults[fault.kind] > backend.content_retries and anew():
        faults.clear()
        return True
    if fault.kind in _FEW:
        return faults[fault.kind] <= backend.content_retries
    return sum(faults[kind] for kind in FaultKind if kind not in _FEW) <= backend.retries


async def _go_on(
    once: Callable[[], Awaitable[_Result]], failed: _Again | None, *, wait: wait_base, sleep: Sleep
) -> _Result:
    """The attempts after the first, which has failed: most requests need none, and tenacity costs more than all else
    here.
    """

    async def from_the_second() -> _Result:
        nonlocal failed
        if failed is not None:
            first, failed = failed, None
            raise first
        return await once()

    retrying = AsyncRetrying(
        sleep=sleep, wait=wait, retry=retry_if_exception_type(_Again), before_sleep=_warn, reraise=True
    )
    return await retrying(from_the_second)


class _Backoff(wait_base):
    """Full jitter over 1, 2, 4, ... seconds, and never before the server's Retry-After.

    Before a server is met, a quarter more or less: of many that wait with full jitter, one would give up at once.
    """

    def __init__(self, longest: float, met: Callable[[], bool]) -> None:
        self._step = wait_exponential(multiplier=1, max=longest)
        self._jitter = wait_random_exponential(multiplier=1, max=longest)
        self._longest = longest
        self._met = met

    def __call__(self, retry_state: RetryCallState) -> float:
        fault = _fault(retry_state)
        if fault is not None and fault.kind is FaultKind.CONTENT:
            # The backend is well; there is nothing to wait for.
            return 0.0
        asked = 0.0 if fault is None else fault.after or 0.0
        wait = self._jitter(retry_state)
        if fault is not None and fault.kind is FaultKind.UNREACHED and not self._met():
            wait = 0.75 * self._step(retry_state) + 0.5 * wait
        return max(min(wait, self._longest), asked)


def _fault(retry_state: RetryCallState) -> Fault | None:
    error = retry_state.outcome.exception() if retry_state.outcome is not None else None
    return error.fault if isinstance(error, _Again) else None


def _warn(retry_state: RetryCallState) -> None:
    fault = _fault(retry_state)
    if fault is not None:
        attempt, wait = retry_state.attempt_number, retry_state.upcoming_sleep
        _LOG.warning("%s; attempt %d, the next in %.1f s", fault.message, attempt, wait)
