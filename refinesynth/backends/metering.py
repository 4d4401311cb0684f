"""Who is told of a completion that was paid for: whoever asked, also when the answer is then thrown away."""

from collections.abc import Callable, Generator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TypeAlias

from pydantic_ai.usage import RequestUsage

Meter: TypeAlias = Callable[[RequestUsage, float | None], None]
"""Takes what one completion used and its price in US dollars, None where that is unknown."""

_meter: ContextVar[Meter | None] = ContextVar("meter", default=None)


@contextmanager
def metered_by(meter: Meter) -> Generator[None]:
    """Within this block and task, `record` goes to `meter`."""
    token = _meter.set(meter)
    try:
        yield
    finally:
        _meter.reset(token)


def record(usage: RequestUsage, cost_usd: float | None) -> None:
    """Report one completion; without a meter it goes nowhere."""
    meter = _meter.get()
    if meter is not None:
        meter(usage, cost_usd)
