"""OpenTelemetry spans of episodes, attempts, verifications and requests; nothing at all unless a run asks for it.

Each episode is a trace of its own, because a run has tens of thousands: span `episode` with `refinesynth.episode`, the
id that journal, events and trajectories have too; below it `attempt` and `verify`, and pydantic-ai's own span for each
request.
"""

from collections.abc import Generator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from opentelemetry.trace import TracerProvider
    from pydantic_ai.models import Model


NAME = "refinesynth"
"""Name of the tracer."""
ACCEPTED = f"{NAME}.accepted"
"""Whether rules accepted what an attempt gave, or an episode gave a trajectory."""


@dataclass(frozen=True)
class Tracing:
    """Settings of the spans of a run."""

    provider: "TracerProvider | None" = None
    """Where spans go; None takes the global one, which the application has set."""
    content: bool = False
    """Whether prompts and answers are in the spans of requests."""


class Span(Protocol):
    """What can be said of a span."""

    def set_attribute(self, key: str, value: Any, /) -> None:
        """Say something of it."""
        ...


class _Nothing:
    def set_attribute(self, key: str, value: Any, /) -> None:
        """Nothing is recorded."""


_NOTHING = _Nothing()
_tracing: ContextVar[Tracing | None] = ContextVar("tracing", default=None)


@contextmanager
def traced(tracing: Tracing | None) -> Generator[None]:
    """Within this block and the tasks that are started in it, spans are made; none for None."""
    token = _tracing.set(tracing)
    try:
        yield
    finally:
        _tracing.reset(token)


@contextmanager
def span(name: str, *, root: bool = False, **attributes: Any) -> Generator[Span]:
    """A span around the block; with `root`, the beginning of a trace. Attributes get the prefix `refinesynth.`."""
    tracing = _tracing.get()
    if tracing is None:
        yield _NOTHING
        return
    from opentelemetry.context import Context
    from opentelemetry.trace import get_tracer

    tracer = get_tracer(NAME, tracer_provider=tracing.provider)
    named = {f"{NAME}.{key}": value for key, value in attributes.items() if value is not None}
    with tracer.start_as_current_span(name, context=Context() if root else None, attributes=named) as current:
        yield current


def instrumented(model: "Model") -> "Model":
    """The model with a span for each request, where spans are wanted."""
    tracing = _tracing.get()
    if tracing is None:
        return model
    from pydantic_ai.models.instrumented import InstrumentationSettings, InstrumentedModel

    settings = InstrumentationSettings(tracer_provider=tracing.provider, include_content=tracing.content)
    return InstrumentedModel(model, settings)
