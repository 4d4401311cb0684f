"""What becomes of an episode, and of the run, when a request is given up."""

import logging

from refinesynth.backends.backend import Backend
from refinesynth.backends.providers import server_of
from refinesynth.client.classify_error import Fault, FaultKind, FaultStep
from refinesynth.client.limiter.rate_limiter import RateLimiter
from refinesynth.client.retry import GaveUp
from refinesynth.errors import BackendError, EpisodeAbandoned, EpisodeDoubtful, EpisodeLost, RunStopped

_LOG = logging.getLogger("refinesynth.backends")

_PARSED = 3
"""Answers with calls, the first of a backend, after which its tool parser is at fault where each shows it."""
_FRUITLESS = 5
"""Requests that gave nothing, before any that gave an answer to use, after which the settings are at fault and not the
prompts."""
_TO_LOOK_AT = {FaultKind.REJECTED: "output_mode and extra", FaultKind.CONTENT: "max_tokens, output_mode and extra"}
"""Kinds of fault that settings can bring about at every request, with the settings where the server names none."""
_DECIDED_BY = {"response_format": "output_mode", "tools": "output_mode", "tool_choice": "output_mode"}
"""Arguments of a request that another setting decides."""
_DOUBTFUL = 5
"""Requests in a row, without an answer to any, that must seem to say that no episode can go on, where none says it for
sure."""


class Verdicts:
    """Of one backend: one episode is given up, or all are."""

    def __init__(self, backend: Backend, limiter: RateLimiter) -> None:
        """Nothing was answered."""
        self.answered = 0
        """Requests that were."""
        self.usable = False
        """Whether any answer could be used so far."""
        self._backend = backend
        self._limiter = limiter
        self._fruitless = 0
        self._doubtful = 0
        self._calls = 0
        self._artefacts = 0

    def note_answer(self) -> None:
        """A request was answered."""
        self.answered += 1
        self._doubtful = 0

    def note_calls(self, artefact: str | None) -> None:
        """An answer had calls, with this that only a server's tool parser makes of them; said once where all have it."""
        self._calls += 1
        self._artefacts += artefact is not None
        if self._calls == self._artefacts == _PARSED:
            text = (
                f"{self._backend.label} gives calls that its server's tool parser did not read right ({artefact}), each "
                "time so far; what is clear is put right, the rest is asked for again; check the server's tool parser"
            )
            _LOG.warning(
                "%s", text, extra={"facts": {"event": "tool_parser", "backend": self._backend.label, "text": text}}
            )

    def on(self, gave_up: GaveUp, *, others_answered: bool) -> BackendError:
        """What to raise for a request that was given up; `others_answered` says that others were not, meanwhile."""
        fault = gave_up.fault
        if fault.page is not None and not self._limiter.met:
            return RunStopped(_no_api(self._backend, fault.page))
        if fault.step is FaultStep.STOP:
            return self._stop_or_abandon(fault)
        if fault.step is FaultStep.RETRY:
            message = f"{fault.message} (after {gave_up.attempts} attempt{'s' * (gave_up.attempts != 1)})"
            return self._failed(fault, message, others_answered=others_answered)
        return self._abandoned_or_hopeless(fault.message, fault)

    @property
    def patience(self) -> float:
        """Seconds for which a server's Retry-After is kept to; where another backend is asked meanwhile, fewer."""
        waits = self._limiter.state.waits
        return max(self._backend.longest_wait, self._backend.outage if waits else 0.0)

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
        """One episode is given up, or all are: where the first requests of a backend give nothing to use, none will."""
        if fault.kind in _TO_LOOK_AT and not self.usable:
            self._fruitless += 1
            if self._fruitless >= _FRUITLESS:
                return _stopped(
                    f"{message}; so it was with each of the first {self._fruitless} requests, so the settings must be "
                    f"wrong: look at {_settings_of(fault)} of the backend"
                )
            return EpisodeDoubtful(message)
        return EpisodeAbandoned(message)

    def _stop_or_abandon(self, fault: Fault) -> BackendError:
        """One answer that only seems to say that no episode can go on may echo its prompt; several in a row do not."""
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


def _settings_of(fault: Fault) -> str:
    return ", ".join(dict.fromkeys(_DECIDED_BY.get(name, name) for name in fault.names)) or _TO_LOOK_AT[fault.kind]


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
