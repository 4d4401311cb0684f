"""The failure policy: a failed request is retried, or its episode is given up, or the run is stopped."""

import logging
from collections import Counter
from random import uniform

from refinesynth.backends.backend import Backend
from refinesynth.backends.providers import server_of
from refinesynth.client.classify_error import Fault, FaultKind, FaultStep
from refinesynth.client.limiter.rate_limiter import RateLimiter
from refinesynth.errors import BackendError, EpisodeAbandoned, EpisodeDoubtful, EpisodeLost, RunStopped

_LOG = logging.getLogger("refinesynth.backends")
# As libraries do: silent until someone configures logging. Without this Python prints warnings to stderr.
_LOG.addHandler(logging.NullHandler())

_AT_FIRST = 3
"""Retries of a server that was never reached: a wrong address is reported after 5 to 9 seconds."""
_PAGES = 1
"""Retries of a server that sends web pages and has never answered: a gateway sends its page once, a wrong address
always."""
_FEW = (FaultKind.CONTENT, FaultKind.DEFECT)
"""Kinds of fault with the smaller budget, `Backend.content_retries`."""
_PARSED = 3
"""First answers with calls of a backend; its tool parser is at fault if each of them shows it."""
_FRUITLESS = 5
"""First requests of a backend; the settings are at fault, and not the prompts, if none of them gave a usable answer."""
_TO_LOOK_AT = {FaultKind.REJECTED: "output_mode and extra", FaultKind.CONTENT: "max_tokens, output_mode and extra"}
"""Kinds of fault that settings can cause in every request, with the settings to name where the server names none."""
_DECIDED_BY = {"response_format": "output_mode", "tools": "output_mode", "tool_choice": "output_mode"}
"""Arguments of a request that another setting decides."""
_DOUBTFUL = 5
"""Uncertain faults in a row, without an answer in between, that stop the run."""


class Retries:
    """The retries of one request: the faults that it met, counted against the budgets of its backend.

    Faults of the backend and faults of the content have separate budgets; defects have the smaller one. A server that
    cannot be reached and has never answered anyone is given up after 5 to 9 seconds, one that sends a web page after
    the second page.
    """

    def __init__(self, backend: Backend) -> None:
        """No fault was met yet."""
        self.attempts = 0
        """Failed attempts."""
        self._backend = backend
        self._faults: Counter[FaultKind] = Counter()

    @property
    def content_faults(self) -> int:
        """Answers that came and could not be used."""
        return self._faults[FaultKind.CONTENT]

    def wait(self, fault: Fault, *, met: bool, patience: float, anew: bool) -> float | None:
        """Count a fault, and return the seconds until the next attempt; None if there is none.

        Exponential backoff with full jitter, at most `Backend.longest_wait`, and never before the server's Retry-After.

        Args:
            fault: The fault of the last attempt.
            met: True if the server has answered any request so far.
            patience: Longest Retry-After in seconds that is honoured.
            anew: True if a used-up budget for faults of the content is granted once more.
        """
        self.attempts += 1
        self._faults[fault.kind] += 1
        if not self._worth_another(fault, met=met, patience=patience, anew=anew):
            return None
        if fault.kind is FaultKind.CONTENT:
            # The backend is well; there is nothing to wait for.
            return 0.0
        step = min(2.0 ** min(self.attempts - 1, 30), self._backend.longest_wait)
        wait = uniform(0, step)
        if fault.kind is FaultKind.UNREACHED and not met:
            # Of many requests with full jitter, one would give up at once.
            wait = min(0.75 * step + 0.5 * wait, self._backend.longest_wait)
        return max(wait, fault.after or 0.0)

    def _worth_another(self, fault: Fault, *, met: bool, patience: float, anew: bool) -> bool:
        faults, backend = self._faults, self._backend
        if fault.step is not FaultStep.RETRY or (fault.after or 0.0) > patience:
            return False
        if fault.page is not None and not met and faults.total() > _PAGES:
            return False
        if fault.kind is FaultKind.UNREACHED and not met and faults[fault.kind] > _AT_FIRST:
            return False
        if fault.kind is FaultKind.CONTENT and faults[fault.kind] > backend.content_retries and anew:
            faults.clear()
            return True
        if fault.kind in _FEW:
            return faults[fault.kind] <= backend.content_retries
        return sum(faults[kind] for kind in FaultKind if kind not in _FEW) <= backend.retries


class FailurePolicy:
    """The failures of one backend: each ends one episode, or the run."""

    def __init__(self, backend: Backend, limiter: RateLimiter) -> None:
        """No request was answered yet."""
        self.answered = 0
        """Requests that were answered."""
        self.usable = False
        """True once an answer could be used."""
        self._backend = backend
        self._limiter = limiter
        self._fruitless = 0
        self._doubtful = 0
        self._calls = 0
        self._artefacts = 0

    def note_answer(self) -> None:
        """Note that a request was answered."""
        self.answered += 1
        self._doubtful = 0

    def note_calls(self, artefact: str | None) -> None:
        """Note an answer with calls, and the artefact that the server's tool parser left in it; warn once if each has
        one.
        """
        self._calls += 1
        self._artefacts += artefact is not None
        if self._calls == self._artefacts == _PARSED:
            text = (
                f"{self._backend.label} gives calls that its server's tool parser did not read right ({artefact}), each "
                "time so far; what is clear is put right, the rest is asked for again; check the server's tool parser"
            )
            facts = {"event": "tool_parser", "backend": self._backend.label, "text": text}
            _LOG.warning("%s", text, extra={"facts": facts})

    @property
    def patience(self) -> float:
        """Longest Retry-After in seconds that is honoured; shorter where another backend is asked meanwhile."""
        waits = self._limiter.state.waits
        return max(self._backend.longest_wait, self._backend.outage if waits else 0.0)

    def error(self, fault: Fault, *, attempts: int, others_answered: bool) -> BackendError:
        """Return the error to raise for a request that is given up.

        Args:
            fault: The fault of the last attempt.
            attempts: How many attempts failed.
            others_answered: True if other requests were answered since this one began.
        """
        if fault.page is not None and not self._limiter.met:
            return RunStopped(_no_api(self._backend, fault.page))
        if fault.step is FaultStep.STOP:
            return self._stop_or_abandon(fault)
        if fault.step is FaultStep.RETRY:
            message = f"{fault.message} (after {attempts} attempt{'s' * (attempts != 1)})"
            return self._failed(fault, message, others_answered=others_answered)
        return self._abandoned_or_hopeless(fault.message, fault)

    def _failed(self, fault: Fault, message: str, *, others_answered: bool) -> BackendError:
        if (fault.after or 0.0) > self.patience:
            return _stopped(
                f"{fault.message}; it asks to wait {fault.after:,.0f} s (Retry-After), and {self.patience:,.0f} s are the most that "
                f"is waited: go on later, or with --set outage={fault.after:.0f}"
            )
        if fault.kind is FaultKind.CONTENT:
            return self._abandoned_or_hopeless(message, fault)
        return EpisodeLost(message) if others_answered else _stopped(f"{message}{self._outlook(fault)}")

    def _abandoned_or_hopeless(self, message: str, fault: Fault) -> BackendError:
        """Give up one episode; or the run, where the first requests of a backend give nothing to use."""
        if fault.kind in _TO_LOOK_AT and not self.usable:
            self._fruitless += 1
            if self._fruitless >= _FRUITLESS:
                named = ", ".join(dict.fromkeys(_DECIDED_BY.get(name, name) for name in fault.names))
                return _stopped(
                    f"{message}; so it was with each of the first {self._fruitless} requests, so the settings must be "
                    f"wrong: look at {named or _TO_LOOK_AT[fault.kind]} of the backend"
                )
            return EpisodeDoubtful(message)
        return EpisodeAbandoned(message)

    def _stop_or_abandon(self, fault: Fault) -> BackendError:
        """Stop the run; an uncertain fault may echo its prompt, and stops it only as one of several in a row."""
        if not fault.certain and self.answered:
            self._doubtful += 1
            if self._doubtful < _DOUBTFUL:
                return EpisodeAbandoned(fault.message)
        return _stopped(fault.message)

    def _outlook(self, fault: Fault) -> str:
        if fault.kind is FaultKind.DEFECT:
            return ""
        if fault.kind is FaultKind.UNREACHED and not self._limiter.met:
            return "; check that the server is running and its address right"
        return "; it stays down, try again later"


def _no_api(backend: Backend, page: str) -> str:
    server = server_of(backend)
    where = "its address" if server is None else f"base_url ({server})"
    usually = "" if server is not None and server.rstrip("/").endswith("/v1") else ", which mostly ends in /v1"
    return (
        f"{backend.label} is asked at an address where no completion API is: a web page came back, {page!r}. Check {where}{usually}, "
        f"and whether a login or a proxy stands in between."
    )


def _stopped(message: str) -> RunStopped:
    # A sentence: where the run is kept is said after it.
    return RunStopped(message if message.endswith((".", "!", "?")) else f"{message}.")
