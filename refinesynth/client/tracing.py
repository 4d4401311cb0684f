"""OpenTelemetry spans of episodes, attempts, verifications and requests, if a run enables them.

Each episode is one trace. Its span `episode` has the attribute `refinesynth.episode`, the id in journal, events and
trajectories; its children are `attempt`, `verify` and pydantic-ai's span of each request.
"""

from collections.abc import Generator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from opentelemetry.trace import Span, TracerProvider
    from pydantic_ai.models import Model


NAME = "refinesynth"
"""Name of the tracer."""
ACCEPTED = f"{NAME}.accepted"
"""Attribute: True if the rules accepted an attempt, or an episode produced a trajectory."""


@dataclass(frozen=True)
class Tracing:
    """Tracing settings of a run."""

    provider: "TracerProvider | None" = None
    """Target of the spans; None uses the application's global provider."""
    content: bool = False
    """True to include prompts and answers in the spans of requests."""


_tracing: ContextVar[Tracing | None] = ContextVar("tracing", default=None)


@contextmanager
def traced(tracing: Tracing | None) -> Generator[None]:
    """Record spans within this context and the tasks started in it; None records none."""
    token = _tracing.set(tracing)
    try:
        yield
    finally:
        _tracing.reset(token)


@contextmanager
def span(name: str, *, root: bool = False, **attributes: Any) -> "Generator[Span]":
    """Record a span around the block; `root` begins a new trace. Attributes get the prefix `refinesynth.`."""
    from opentelemetry.context import Context
    from opentelemetry.trace import INVALID_SPAN, get_tracer

    tracing = _tracing.get()
    if tracing is None:
        yield INVALID_SPAN
        return

    tracer = get_tracer(NAME, tracer_provider=tracing.provider)
    prefixed = {f"{NAME}.{key}": value for key, value in attributes.items() if value is not None}
    with tracer.start_as_current_span(name, context=Context() if root else None, attributes=prefixed) as current:
        yield current


def instrumented(model: "Model") -> "Model":
    """Return the model with a span for each request; the model itself if tracing is off."""
    tracing = _tracing.get()
    if tracing is None:
        return model
    from pydantic_ai.models.instrumented import InstrumentationSettings, InstrumentedModel

    settings = InstrumentationSettings(tracer_provider=tracing.provider, include_content=tracing.content)
    return InstrumentedModel(model, settings)
