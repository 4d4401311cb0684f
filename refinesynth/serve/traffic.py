"""Counting requests for load tests: how many, how they ended, how many at once, and which completions were paid for."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from hashlib import blake2b
from pathlib import Path
from typing import Any

import orjson

from refinesynth.errors import InputError

SESSION_HEADER = "x-session-id"


@dataclass
class Exchange:
    """One chat request, and what has become of it so far."""

    number: int
    """How many requests came before it."""
    session: str | None = None
    """The request's session header."""
    seed: object = None
    """The request's seed, for any value that was sent as one."""
    digest: str | None = None
    """Of the request's body without its seed; None where no log is kept."""
    status: int | None = None
    """HTTP status of the answer, None if no answer was begun."""
    fault: str | None = None
    """Name of the fault that it got, if that is no status."""
    paid: bool = False
    """Whether a completion was made for it: that is what a provider bills, even if the client has left."""


@dataclass
class Traffic:
    """What the server has seen. One event loop changes it, so it needs no lock; its size does not grow with
    requests.
    """

    log: Path | None = None
    """JSONL to which the fields of `Exchange` are appended for each request that has ended.

    A line is written at once and whole, so that a killed server loses none.
    """
    requests: int = 0
    paid: int = 0
    in_flight: int = 0
    max_in_flight: int = 0
    endings: Counter[str] = field(default_factory=Counter[str])
    """Requests that have ended, by HTTP status or the fault's name; `none` where the client left before an answer."""

    def __post_init__(self) -> None:
        self._append(b"")

    def begin(self) -> Exchange:
        """A request has come."""
        exchange = Exchange(number=self.requests)
        self.requests += 1
        self.in_flight += 1
        self.max_in_flight = max(self.max_in_flight, self.in_flight)
        return exchange

    def identify(self, exchange: Exchange, *, session: str | None, body: Mapping[str, Any]) -> None:
        """Note what a request asks, for the log."""
        if self.log is not None:
            exchange.session, exchange.seed, exchange.digest = session, body.get("seed"), request_digest(body)

    def end(self, exchange: Exchange) -> None:
        """There is an answer, or there will be none."""
        self.in_flight -= 1
        self.paid += exchange.paid
        self.endings[exchange.fault or str(exchange.status or "none")] += 1
        if self.log is not None:
            self._append(orjson.dumps(asdict(exchange), default=str) + b"\n")

    def _append(self, line: bytes) -> None:
        if self.log is None:
            return
        try:
            with self.log.open("ab", buffering=0) as file:
                file.write(line)
        except OSError as error:
            raise InputError(f"cannot write the log {self.log}: {error.strerror}; choose another file") from error

    def report(self) -> dict[str, Any]:
        """The counts as JSON."""
        return {
            "requests": self.requests,
            "by_status": dict(sorted(self.endings.items())),
            "paid": self.paid,
            "in_flight": self.in_flight,
            "max_in_flight": self.max_in_flight,
        }


def request_digest(body: Mapping[str, Any]) -> str:
    """What a request asks, its seed left out; the order of keys does not matter."""
    asked = {key: value for key, value in body.items() if key != "seed"}
    return blake2b(orjson.dumps(asked, option=orjson.OPT_SORT_KEYS), digest_size=16).hexdigest()
