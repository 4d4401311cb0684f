"""Failure policy: retry a failed request, abandon its episode, or stop the run."""

from collections import Counter
from collections.abc import Container, Mapping
from dataclasses import dataclass, field
from random import uniform
from typing import Any

from refinesynth.backends.backend import LOG, Backend, report
from refinesynth.backends.providers import server_of
from refinesynth.client.classify_error import ClassifiedError, ErrorCategory, FailureAction
from refinesynth.client.limiter.rate_limiter import RateLimiter
from refinesynth.client.request_arguments import UnsupportedFeature
from refinesynth.client.session import RequestContext
from refinesynth.errors import BackendError, EpisodeAbandoned, EpisodeDoubtful, EpisodeLost, RunStopped

_CONNECT_RETRIES = 3
"""Retries for a server that was never reached; their waits add up to 5 to 9 seconds."""
_PAGE_RETRIES = 1
"""Retries for a server that sends web pages and never answered: a gateway's page goes away, that of a wrong address
stays."""
_CONTENT_CATEGORIES = (ErrorCategory.CONTENT, ErrorCategory.DEFECT)
"""Kinds of fault with the retry budget `Backend.content_retries`, counted per kind."""
_MAX_FRUITLESS = 5
"""Requests given up before a backend's first usable completion that indicate wrong settings."""
_OF_SETTINGS = frozenset({ErrorCategory.REJECTED, ErrorCategory.CONTENT})
"""Kinds of fault that settings can cause in every request."""
_SETTING_OF_ARGUMENT = {"response_format": "output_mode", "tools": "output_mode", "tool_choice": "output_mode"}
"""Arguments of a request that another setting determines."""
_REFUSALS = frozenset({ErrorCategory.REJECTED, ErrorCategory.NOT_FOUND})
_CRASH_STATUS = 500
_MAX_CRASHES = 2
"""Crashes after which a request with a schema is tried once without the schema."""
_LOADING_RETRY_S = 5.0
"""Minimum seconds between two attempts while a model loads."""
_MAX_UNCERTAIN = 20
"""Consecutive rejected requests of a role, without an answer to it in between, that stop the run."""
_TEXT_WEIGHT = 4
"""Weight, in rejected requests, of a fault that is a reason to stop by its text alone."""


@dataclass
class RequestCounts:
    """Requests of a run's process."""

    begun: int = 0
    retried: int = 0
    """Attempts after the first one of each request."""


@dataclass(eq=False, slots=True)
class PendingRequest:
    """State of one request of a role over all its attempts."""

    context: RequestContext
    attempt: int = 0
    """Attempts begun."""
    failed: int = 0
    """Failed attempts, unusable answers from the journal included."""
    faults: Counter[ErrorCategory] = field(default_factory=Counter[ErrorCategory])
    """Faults that count against the backend's retries."""
    may_omit: frozenset[UnsupportedFeature] = frozenset(UnsupportedFeature)
    """Features to omit if the server seems to lack them."""
    omitted: frozenset[UnsupportedFeature] = frozenset()
    """Features left out of the request."""
    loading_s: float = 0.0
    """Seconds waited for a server that loads its model."""
    default_bound: int | None = None
    """Default bound of the role's completion; None if the request is sent without it."""
    crashes: int = 0
    """Faults that look like a crash of the server."""
    answered_before: int = 0
    """Usable answers of the backend before this request began."""


class FailurePolicy:
    """Decision for each failure of one backend: retry, abandon the episode, or stop the run.

    Backend faults have the retry budget `Backend.retries`; content faults and defects have `Backend.content_retries`
    each. A server that never answered is given up after 3 retries without a connection, or after its second web page.
    """

    def __init__(self, backend: Backend, limiter: RateLimiter) -> None:
        self.answered = 0
        """Number of requests with a usable completion, recalled ones excluded."""
        self.usable = False
        """True after the first usable completion."""
        self._proved_features: set[str] = set()
        """Features that the server supports, proved by an answer; names from `_used_features`."""
        self._backend = backend
        self._limiter = limiter
        self._fruitless_count = 0
        self._uncertain_counts = Counter[str]()
        """Weight of the consecutive rejected requests of each role: answers to others say nothing about its requests."""

    def wait(self, fault: ClassifiedError, pending: PendingRequest, request: Mapping[str, Any]) -> float | None:
        """Count a fault, and return the seconds until the next attempt; None to give up.

        A request that changes its form, or whose limiter waits for the end of an outage, waits 0 s and spends no retry.
        Content faults wait 0 s. Otherwise: exponential backoff with jitter up to `Backend.longest_wait`, and at least
        the server's Retry-After.
        """
        if (feature := _missing_feature(fault, pending, request, self._proved_features)) is not None:
            pending.omitted |= {feature}
            return 0.0
        if fault.action is FailureAction.RETRY and self._limiter.is_outage_fault(fault):
            return 0.0
        pending.failed += 1
        if fault.category is ErrorCategory.LOADING:
            # Loading spends no retry.
            if not pending.loading_s:
                text = f"{fault.message}; it is waited for, up to {self.max_wait:,.0f} s (outage)"
                report("loading", self._backend, text)
            wait = max(_LOADING_RETRY_S, fault.retry_after or 0.0)
            pending.loading_s += wait
            return wait if pending.loading_s <= self.max_wait else None
        pending.faults[fault.category] += 1
        if not self._may_retry(fault, pending):
            return None
        wait = self._backoff(fault, pending.failed)
        LOG.warning("%s; attempt %d, the next in %.1f s", fault.message, pending.failed, wait)
        return wait

    def _backoff(self, fault: ClassifiedError, failed: int) -> float:
        if fault.category is ErrorCategory.CONTENT:
            # The backend works; a wait would not help.
            return 0.0
        max_wait = self._backend.longest_wait
        base = min(2.0 ** min(failed - 1, 30), max_wait)
        wait = uniform(0, base)
        if fault.category is ErrorCategory.UNREACHED and not self._limiter.has_answered:
            # With full jitter, one of many requests would give up almost at once and stop the run.
            wait = min(0.75 * base + 0.5 * wait, max_wait)
        return max(wait, fault.retry_after or 0.0)

    def _may_retry(self, fault: ClassifiedError, pending: PendingRequest) -> bool:
        faults, backend, has_answered = pending.faults, self._backend, self._limiter.has_answered
        if fault.action is not FailureAction.RETRY or (fault.retry_after or 0.0) > self.max_wait:
            return False
        if fault.page is not None and not has_answered and faults.total() > _PAGE_RETRIES:
            return False
        if fault.category is ErrorCategory.UNREACHED and not has_answered and faults[fault.category] > _CONNECT_RETRIES:
            return False
        # A resumed run replays the failed answers of its journal: their cause may be gone, so retries begin anew.
        memory = pending.context.session.memory
        is_replayed = not pending.attempt and not (memory is not None and memory.had_finished)
        if fault.category is ErrorCategory.CONTENT and faults[fault.category] > backend.content_retries and is_replayed:
            faults.clear()
            return True
        if fault.category in _CONTENT_CATEGORIES:
            return faults[fault.category] <= backend.content_retries
        return sum(faults[kind] for kind in ErrorCategory if kind not in _CONTENT_CATEGORIES) <= backend.retries

    def note_answer(self, request: Mapping[str, Any], role: str) -> None:
        """Record an answer to a role's request, usable or not, and the features of the server that it proves."""
        self._proved_features.update(_used_features(request).values())
        del self._uncertain_counts[role]

    @property
    def max_wait(self) -> float:
        """Longest accepted Retry-After and model loading time, in seconds; shorter if a fallback backend exists."""
        waits_for_outages = self._limiter.breaker.waits_for_outages
        return max(self._backend.longest_wait, self._backend.outage if waits_for_outages else 0.0)

    def error(self, fault: ClassifiedError, pending: PendingRequest) -> BackendError:
        """Return the error for a request that is given up after this fault."""
        if fault.page is not None and not self._limiter.has_answered:
            return RunStopped(_no_api_message(self._backend, fault.page))
        is_stop = fault.action is FailureAction.STOP
        if is_stop and (fault.certain or not self.answered):
            return _run_stopped(fault.message)
        if is_stop or (fault.category is ErrorCategory.REJECTED and self.usable):
            # The prompt may be the cause, or be quoted; only several such faults in a row stop the run.
            role = pending.context.role
            self._uncertain_counts[role] += _TEXT_WEIGHT if is_stop else 1
            is_last = self._uncertain_counts[role] >= _MAX_UNCERTAIN
            return _run_stopped(fault.message) if is_last else EpisodeDoubtful(fault.message)
        if fault.action is FailureAction.ABANDON:
            return self._abandon_or_stop(fault.message, fault)
        return self._out_of_retries(fault, pending)

    def _out_of_retries(self, fault: ClassifiedError, pending: PendingRequest) -> BackendError:
        if (fault.retry_after or 0.0) > self.max_wait:
            return _run_stopped(
                f"{fault.message}; it asks to wait {fault.retry_after:,.0f} s (Retry-After), and {self.max_wait:,.0f} s are the most that "
                f"is waited: go on later, or with --set outage={fault.retry_after:.0f}"
            )
        message = f"{fault.message} (after {pending.failed} attempt{'s' * (pending.failed != 1)})"
        if fault.category is ErrorCategory.CONTENT:
            return self._abandon_or_stop(message, fault)
        if self.answered > pending.answered_before:
            # The backend answered other requests meanwhile.
            return EpisodeLost(message)
        if fault.category is ErrorCategory.UNREACHED and not self._limiter.has_answered:
            message += "; check that the server is running and its address right"
        elif fault.category is ErrorCategory.LOADING:
            message += f"; try again later, or wait longer than {self.max_wait:,.0f} s with --set outage=SECONDS"
        elif fault.category is not ErrorCategory.DEFECT:
            message += "; it stays down, try again later"
        return _run_stopped(message)

    def _abandon_or_stop(self, message: str, fault: ClassifiedError) -> BackendError:
        """Give up one episode; the run, if the first requests of a backend gave no usable completion."""
        if fault.category not in _OF_SETTINGS or self.usable:
            return EpisodeAbandoned(message)
        self._fruitless_count += 1
        if self._fruitless_count < _MAX_FRUITLESS:
            return EpisodeDoubtful(message)
        settings = ", ".join(dict.fromkeys(_SETTING_OF_ARGUMENT.get(name, name) for name in fault.arguments))
        return _run_stopped(
            f"{message}; so it was with each of the first {self._fruitless_count} requests, so the settings must be wrong: look at "
            f"{settings or 'max_tokens, output_mode and extra'} of the backend"
        )


def _missing_feature(
    fault: ClassifiedError, pending: PendingRequest, request: Mapping[str, Any], proved: Container[str]
) -> UnsupportedFeature | None:
    """Return the feature to omit from `request` after this fault; None if no missing feature explains the fault.

    Some servers crash on a schema without naming it: the second crash leads to one attempt without the schema, the
    third restores it. `proved` holds the features that the server supports.
    """
    if fault.category not in _REFUSALS and fault.status != _CRASH_STATUS:
        return None
    used, allowed = _used_features(request).items(), pending.may_omit - pending.omitted
    candidates = {feature for feature, proof in used if proof not in proved and feature in allowed}
    names = list[str]()
    for name in fault.arguments:
        # Servers without tools may name `tool_choice` instead of `tools`.
        of_tools = name == UnsupportedFeature.TOOL_CHOICE and "tools" in request
        names += [name, UnsupportedFeature.TOOLS] if of_tools else [name]
    feature = next((UnsupportedFeature(name) for name in names if name in candidates), None)
    if feature is None and fault.status == _CRASH_STATUS:
        pending.crashes += 1
        if pending.crashes > _MAX_CRASHES:
            pending.omitted -= {UnsupportedFeature.SCHEMA}
        elif pending.crashes == _MAX_CRASHES and UnsupportedFeature.SCHEMA in candidates:
            return UnsupportedFeature.SCHEMA
    return feature


def _used_features(request: Mapping[str, Any]) -> dict[UnsupportedFeature, str]:
    """Return the features in a request that a server may lack, each with the name under which an answer proves it."""
    features = {
        feature: feature.value
        for feature in (UnsupportedFeature.TOOLS, UnsupportedFeature.SEED, UnsupportedFeature.STOP)
        if feature.value in request
    }
    if request.get(UnsupportedFeature.TOOL_CHOICE) == "required":
        features[UnsupportedFeature.TOOL_CHOICE] = UnsupportedFeature.TOOL_CHOICE.value
    schema = request.get(UnsupportedFeature.SCHEMA)
    if isinstance(schema, Mapping) and "json_schema" in schema:
        features[UnsupportedFeature.SCHEMA] = f"{UnsupportedFeature.SCHEMA} {schema['json_schema']['name']}"
    return features


def _no_api_message(backend: Backend, page: str) -> str:
    server = server_of(backend)
    setting = "its address" if server is None else f"base_url ({server})"
    hint = "" if server is not None and server.rstrip("/").endswith("/v1") else ", which mostly ends in /v1"
    return (
        f"{backend.label} is asked at an address where no completion API is: a web page came back, {page!r}. Check {setting}{hint}, "
        f"and whether a login or a proxy stands in between."
    )


def _run_stopped(message: str) -> RunStopped:
    # A full sentence: the caller appends the location of the run.
    return RunStopped(message if message.endswith((".", "!", "?")) else f"{message}.")
