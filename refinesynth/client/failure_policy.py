"""Failure policy: retry a failed request, abandon its episode, or stop the run."""

from collections import Counter
from collections.abc import Container, Mapping
from dataclasses import dataclass, field
from random import uniform
from typing import Any

from refinesynth.backends.backend import Backend
from refinesynth.backends.providers import server_of
from refinesynth.client.classify_error import ClassifiedError, ErrorCategory, FailureAction
from refinesynth.client.limiter.rate_limiter import RateLimiter
from refinesynth.client.reporting import LOG, report
from refinesynth.client.session import RequestContext
from refinesynth.client.unsupported_features import UnsupportedFeature
from refinesynth.errors import BackendError, EpisodeAbandoned, EpisodeDoubtful, EpisodeLost, RunStopped

_AT_FIRST = 3
"""Retries for a server that was never reached; their waits add up to 5 to 9 seconds."""
_PAGES = 1
"""Retries for a server that sends web pages and never answered: a gateway's page goes away, that of a wrong address
stays."""
_FEW = (ErrorCategory.CONTENT, ErrorCategory.DEFECT)
"""Kinds of fault with the retry budget `Backend.content_retries`, counted per kind."""
_PARSED = 3
"""Number of a backend's first completions with tool calls; artefacts in all of them indicate a faulty tool parser."""
_FRUITLESS = 5
"""Requests given up before a backend's first usable completion that indicate wrong settings."""
_TO_LOOK_AT = {
    ErrorCategory.REJECTED: "output_mode and extra",
    ErrorCategory.CONTENT: "max_tokens, output_mode and extra",
}
"""Kinds of fault that settings can cause in every request, with the settings to check if the server names none."""
_DECIDED_BY = {"response_format": "output_mode", "tools": "output_mode", "tool_choice": "output_mode"}
"""Arguments of a request that another setting determines."""
_REFUSALS = frozenset({ErrorCategory.REJECTED, ErrorCategory.NOT_FOUND})
_CRASH = 500
_CRASHES = 2
"""Crashes after which a request with a schema is tried once without the schema."""
_LOADING = 5.0
"""Minimum seconds between two attempts while a model loads."""
_DOUBTFUL = 5
"""Consecutive uncertain faults, without an answer in between, that stop the run."""


@dataclass
class RequestCounts:
    """Requests of a run's process."""

    begun: int = 0
    retried: int = 0
    """Attempts after the first one of each request."""


@dataclass(eq=False, slots=True)
class PendingRequest:
    """State of one request of a role over all its attempts."""

    account: RequestContext
    attempt: int = 0
    """Attempts begun."""
    failed: int = 0
    """Failed attempts, unusable answers from the journal included."""
    faults: Counter[ErrorCategory] = field(default_factory=Counter[ErrorCategory])
    """Faults that count against the backend's retries."""
    may_omit: frozenset[UnsupportedFeature] = frozenset(UnsupportedFeature)
    """Features to omit if the server seems to lack them."""
    without: frozenset[UnsupportedFeature] = frozenset()
    """Features left out of the request."""
    loading: float = 0.0
    """Seconds waited for a server that loads its model."""
    bound: int | None = None
    """Default bound of the role's completion; None if the request is sent without it."""
    crashes: int = 0
    """Faults that look like a crash of the server."""
    answered_before: int = 0
    """Answers of the backend before this request began."""


class FailurePolicy:
    """Decision for each failure of one backend: retry, abandon the episode, or stop the run.

    Backend faults have the retry budget `Backend.retries`; content faults and defects have `Backend.content_retries`
    each. A server that never answered is given up after 3 retries without a connection, or after its second web page.
    """

    def __init__(self, backend: Backend, limiter: RateLimiter) -> None:
        self.answered = 0
        """Number of answered requests."""
        self.usable = False
        """True after the first usable completion."""
        self._proved: set[str] = set()
        """Features that the server supports, proved by an answer; names from `_carried`."""
        self._backend = backend
        self._limiter = limiter
        self._fruitless = 0
        self._doubtful = 0
        self._calls = 0
        self._artefacts = 0

    def wait(self, fault: ClassifiedError, pending: PendingRequest, request: Mapping[str, Any]) -> float | None:
        """Count a fault, and return the seconds until the next attempt; None to give up.

        A request that changes its form, or whose limiter waits for the end of an outage, waits 0 s and spends no retry.
        Content faults wait 0 s. Otherwise: exponential backoff with jitter up to `Backend.longest_wait`, and at least
        the server's Retry-After.
        """
        if (lack := _lack_behind(fault, pending, request, self._proved)) is not None:
            pending.without |= {lack}
            return 0.0
        if fault.step is FailureAction.RETRY and self._limiter.excuses(fault):
            return 0.0
        pending.failed += 1
        if fault.kind is ErrorCategory.LOADING:
            # Loading spends no retry.
            if not pending.loading:
                text = f"{fault.message}; it is waited for, up to {self.patience:,.0f} s (outage)"
                report("loading", self._backend, text)
            wait = max(_LOADING, fault.after or 0.0)
            pending.loading += wait
            return wait if pending.loading <= self.patience else None
        pending.faults[fault.kind] += 1
        if not self._worth_another(fault, pending):
            return None
        wait = self._backoff(fault, pending.failed)
        LOG.warning("%s; attempt %d, the next in %.1f s", fault.message, pending.failed, wait)
        return wait

    def _backoff(self, fault: ClassifiedError, failed: int) -> float:
        if fault.kind is ErrorCategory.CONTENT:
            # The backend works; a wait would not help.
            return 0.0
        longest = self._backend.longest_wait
        step = min(2.0 ** min(failed - 1, 30), longest)
        wait = uniform(0, step)
        if fault.kind is ErrorCategory.UNREACHED and not self._limiter.met:
            # With full jitter, one of many requests would give up almost at once and stop the run.
            wait = min(0.75 * step + 0.5 * wait, longest)
        return max(wait, fault.after or 0.0)

    def _worth_another(self, fault: ClassifiedError, pending: PendingRequest) -> bool:
        faults, backend, met = pending.faults, self._backend, self._limiter.met
        if fault.step is not FailureAction.RETRY or (fault.after or 0.0) > self.patience:
            return False
        if fault.page is not None and not met and faults.total() > _PAGES:
            return False
        if fault.kind is ErrorCategory.UNREACHED and not met and faults[fault.kind] > _AT_FIRST:
            return False
        # A resumed run replays the failed answers of its journal: their cause may be gone, so retries begin anew.
        memory = pending.account.session.memory
        anew = not pending.attempt and not (memory is not None and memory.had_finished)
        if fault.kind is ErrorCategory.CONTENT and faults[fault.kind] > backend.content_retries and anew:
            faults.clear()
            return True
        if fault.kind in _FEW:
            return faults[fault.kind] <= backend.content_retries
        return sum(faults[kind] for kind in ErrorCategory if kind not in _FEW) <= backend.retries

    def note_answer(self, request: Mapping[str, Any]) -> None:
        """Record an answer to a request, and the features of the server that it proves."""
        self._proved.update(_carried(request).values())
        self.answered += 1
        self._doubtful = 0

    def note_calls(self, artefact: str | None) -> None:
        """Record a completion with tool calls and its artefact; warn once if the first three all have an artefact."""
        self._calls += 1
        self._artefacts += artefact is not None
        if self._calls == self._artefacts == _PARSED:
            text = (
                f"{self._backend.label} gives calls that its server's tool parser did not read right ({artefact}), each "
                "time so far; what is clear is put right, the rest is asked for again; check the server's tool parser"
            )
            report("tool_parser", self._backend, text)

    @property
    def patience(self) -> float:
        """Longest accepted Retry-After and model loading time, in seconds; shorter if a fallback backend exists."""
        waits = self._limiter.breaker.waits_for_outages
        return max(self._backend.longest_wait, self._backend.outage if waits else 0.0)

    def error(self, fault: ClassifiedError, pending: PendingRequest) -> BackendError:
        """Return the error for a request that is given up after this fault."""
        if fault.page is not None and not self._limiter.met:
            return RunStopped(_no_api(self._backend, fault.page))
        if fault.step is FailureAction.STOP:
            if not fault.certain and self.answered:
                # The text may quote the prompt; only several such faults in a row stop the run.
                self._doubtful += 1
                if self._doubtful < _DOUBTFUL:
                    return EpisodeAbandoned(fault.message)
            return _stopped(fault.message)
        if fault.step is FailureAction.ABANDON:
            return self._abandoned_or_hopeless(fault.message, fault)
        return self._retried_in_vain(fault, pending)

    def _retried_in_vain(self, fault: ClassifiedError, pending: PendingRequest) -> BackendError:
        if (fault.after or 0.0) > self.patience:
            return _stopped(
                f"{fault.message}; it asks to wait {fault.after:,.0f} s (Retry-After), and {self.patience:,.0f} s are the most that "
                f"is waited: go on later, or with --set outage={fault.after:.0f}"
            )
        message = f"{fault.message} (after {pending.failed} attempt{'s' * (pending.failed != 1)})"
        if fault.kind is ErrorCategory.CONTENT:
            return self._abandoned_or_hopeless(message, fault)
        if self.answered > pending.answered_before:
            # The backend answered other requests meanwhile.
            return EpisodeLost(message)
        if fault.kind is ErrorCategory.UNREACHED and not self._limiter.met:
            message += "; check that the server is running and its address right"
        elif fault.kind is ErrorCategory.LOADING:
            message += f"; try again later, or wait longer than {self.patience:,.0f} s with --set outage=SECONDS"
        elif fault.kind is not ErrorCategory.DEFECT:
            message += "; it stays down, try again later"
        return _stopped(message)

    def _abandoned_or_hopeless(self, message: str, fault: ClassifiedError) -> BackendError:
        """Give up one episode; the run, if the first requests of a backend gave no usable completion."""
        if fault.kind not in _TO_LOOK_AT or self.usable:
            return EpisodeAbandoned(message)
        self._fruitless += 1
        if self._fruitless < _FRUITLESS:
            return EpisodeDoubtful(message)
        named = ", ".join(dict.fromkeys(_DECIDED_BY.get(name, name) for name in fault.names))
        return _stopped(
            f"{message}; so it was with each of the first {self._fruitless} requests, so the settings must be wrong: look at "
            f"{named or _TO_LOOK_AT[fault.kind]} of the backend"
        )


def _lack_behind(
    fault: ClassifiedError, pending: PendingRequest, request: Mapping[str, Any], proved: Container[str]
) -> UnsupportedFeature | None:
    """Return the feature to omit from `request` after this fault; None if no missing feature explains the fault.

    Some servers crash on a schema without naming it: the second crash leads to one attempt without the schema, the
    third restores it. `proved` holds the features that the server supports.
    """
    if fault.kind not in _REFUSALS and fault.status != _CRASH:
        return None
    proofs = _carried(request).items()
    candidates = {lack for lack, proof in proofs if proof not in proved and lack in pending.may_omit - pending.without}
    names = list[str]()
    for name in fault.names:
        # Servers without tools may name `tool_choice` instead of `tools`.
        of_tools = name == UnsupportedFeature.DEMAND and "tools" in request
        names += [name, UnsupportedFeature.TOOLS] if of_tools else [name]
    lack = next((UnsupportedFeature(name) for name in names if name in candidates), None)
    if lack is None and fault.status == _CRASH:
        pending.crashes += 1
        if pending.crashes > _CRASHES:
            pending.without -= {UnsupportedFeature.SCHEMA}
        elif pending.crashes == _CRASHES and UnsupportedFeature.SCHEMA in candidates:
            return UnsupportedFeature.SCHEMA
    return lack


def _carried(request: Mapping[str, Any]) -> dict[UnsupportedFeature, str]:
    """Return the features in a request that a server may lack, each with the name under which an answer proves it."""
    features = {
        lack: lack.value
        for lack in (UnsupportedFeature.TOOLS, UnsupportedFeature.SEED, UnsupportedFeature.STOP)
        if lack.value in request
    }
    if request.get(UnsupportedFeature.DEMAND) == "required":
        features[UnsupportedFeature.DEMAND] = UnsupportedFeature.DEMAND.value
    form = request.get(UnsupportedFeature.SCHEMA)
    if isinstance(form, Mapping) and "json_schema" in form:
        features[UnsupportedFeature.SCHEMA] = f"{UnsupportedFeature.SCHEMA} {form['json_schema']['name']}"
    return features


def _no_api(backend: Backend, page: str) -> str:
    server = server_of(backend)
    where = "its address" if server is None else f"base_url ({server})"
    usually = "" if server is not None and server.rstrip("/").endswith("/v1") else ", which mostly ends in /v1"
    return (
        f"{backend.label} is asked at an address where no completion API is: a web page came back, {page!r}. Check {where}{usually}, "
        f"and whether a login or a proxy stands in between."
    )


def _stopped(message: str) -> RunStopped:
    # A full sentence: the caller appends the location of the run.
    return RunStopped(message if message.endswith((".", "!", "?")) else f"{message}.")
