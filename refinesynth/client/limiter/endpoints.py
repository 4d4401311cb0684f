"""Which backends share a limiter, and what it is made of."""

from collections.abc import Iterable
from typing import TypeAlias

from pydantic_ai.models import Model

from refinesynth.backends.backend import Backend
from refinesynth.backends.providers import key_variables, server_of, split
from refinesynth.client.limiter.circuit_breaker import CircuitBreaker, StaysClosed
from refinesynth.client.limiter.concurrency_limit import ConcurrencyLimit
from refinesynth.client.limiter.rate_limiter import RateLimiter
from refinesynth.client.several import FallbackModel, MixedModel

Endpoint: TypeAlias = tuple[str, tuple[str, ...]]
"""A server, and the variables that may hold its key."""


def endpoint(backend: Backend) -> Endpoint:
    """The server and where its key is looked for; backends that agree in this are one to the server."""
    return server_of(backend) or split(backend.model)[0], key_variables(backend)


def limiter_of(backend: Backend, *others: Backend, waits: bool = True, batched: bool = False) -> RateLimiter:
    """A limiter for backends of one endpoint; where they ask for different bounds, it keeps the strictest.

    Unless it `waits`, requests do not wait for the end of an outage; if they are `batched`,
    all go that there are, and what comes of them says nothing of the server.
    """
    backends = (backend, *others)
    ceilings = [one.max_in_flight for one in backends if one.max_in_flight is not None]
    longest_wait = min(one.longest_wait for one in backends)
    outage = min(one.outage for one in backends) if waits else 0.0
    return RateLimiter(
        backend.label,
        # The embedded backend is this process: it takes whatever comes, and there is nothing to find out.
        limit=ConcurrencyLimit(start=None)
        if backend.rehearses or batched
        else ConcurrencyLimit(ceiling=min(ceilings, default=None)),
        breaker=(StaysClosed if batched else CircuitBreaker)(longest_wait=longest_wait, outage=outage),
        # For a server that asks to be left alone is waited as for one that is down.
        longest_wait=max(longest_wait, outage),
    )


def limiters_of(backends: Iterable[Backend], *, fallback: Backend | None = None) -> dict[Endpoint, RateLimiter]:
    """One limiter for each endpoint among `backends`; where there is a `fallback`, only its own waits for an outage."""
    grouped: dict[Endpoint, list[Backend]] = {}
    for backend in backends:
        grouped.setdefault(endpoint(backend), []).append(backend)
    last = None if fallback is None else endpoint(fallback)
    return {where: limiter_of(*group, waits=last in {None, where}) for where, group in grouped.items()}


def leaves_of(models: Iterable[Model]) -> tuple[Model, ...]:
    """Models without a fallback or a mixture around them, fallbacks included, each once."""
    found: dict[int, Model] = {}
    waiting = [*models]
    while waiting:
        model = waiting.pop(0)
        if isinstance(model, FallbackModel):
            waiting[:0] = (model.wrapped, model.fallback)
        elif isinstance(model, MixedModel):
            waiting[:0] = model.models
        else:
            found.setdefault(id(model), model)
    return tuple(found.values())


def limiters_in(models: Iterable[Model]) -> tuple[RateLimiter, ...]:
    """The limiters of models, fallbacks included, each once."""
    limiters = (getattr(model, "limiter", None) for model in leaves_of(models))
    found = {id(limiter): limiter for limiter in limiters if isinstance(limiter, RateLimiter)}
    return tuple(found.values())
