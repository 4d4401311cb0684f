"""Counting requests for load tests: how many, how they ended, how many at once."""

from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from starlette.types import ASGIApp, Message, Receive, Scope, Send

NUMBER = "refinesynth.number"
"""Key of a request's scope: how many came before it."""

FAULT = "refinesynth.fault"
"""Key of a request's scope: the fault that it got, if that is not a status."""


@dataclass
class Traffic:
    """What the server has seen. One event loop changes it, so it needs no lock."""

    requests: int = 0
    in_flight: int = 0
    max_in_flight: int = 0
    endings: Counter[str] = field(default_factory=Counter[str])
    """Requests that have ended, by HTTP status, or `hang` or `garbage`."""

    def report(self) -> dict[str, Any]:
        """The counts as JSON."""
        return {
            "requests": self.requests,
            "by_status": dict(sorted(self.endings.items())),
            "in_flight": self.in_flight,
            "max_in_flight": self.max_in_flight,
        }


class Counting:
    """ASGI middleware that numbers requests and counts them until the last byte of their answer."""

    def __init__(self, app: ASGIApp, traffic: Traffic) -> None:
        self._app = app
        self._traffic = traffic

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        traffic = self._traffic
        scope[NUMBER] = traffic.requests
        traffic.requests += 1
        traffic.in_flight += 1
        traffic.max_in_flight = max(traffic.max_in_flight, traffic.in_flight)
        status = "none"

        async def noting(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = str(message["status"])
            await send(message)

        try:
            await self._app(scope, receive, noting)
        finally:
            traffic.in_flight -= 1
            traffic.endings[scope.get(FAULT, status)] += 1
