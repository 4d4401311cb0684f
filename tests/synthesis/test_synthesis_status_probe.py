"""State of a run's backends, in words."""

from types import SimpleNamespace
from typing import Any

import pytest

from refinesynth.synthesis.progress import trouble_of


def state(
    *,
    limit: int | None = 8,
    waiting: int = 0,
    held_until: float | None = None,
    down_since: float | None = None,
    fault: str | None = None,
    met: bool = True,
) -> Any:
    said = None if fault is None else SimpleNamespace(message=fault)
    breaker = SimpleNamespace(down_since=down_since, fault=said, waits_for_outages=True)
    return SimpleNamespace(
        name="gpt-4o", max_in_flight=limit, waiting=waiting, held_until=held_until, has_answered=met, breaker=breaker
    )


@pytest.mark.parametrize(
    ("found", "said"),
    [
        (state(), None),
        (state(fault="gpt-4o answered 500"), None),
        (state(waiting=9, fault="gpt-4o failed", met=False), "gpt-4o failed; it has not answered yet"),
        (state(held_until=99.0), None),
        (state(waiting=9, limit=None), None),
        (state(waiting=9), "gpt-4o is given 8 requests at once, 9 wait"),
        (state(waiting=9, held_until=112.5), "gpt-4o asks for a pause of 13 s"),
        (
            state(waiting=9, down_since=20.0, fault="gpt-4o refuses connections"),
            "gpt-4o has been down for 80 s; the run waits for it (gpt-4o refuses connections)",
        ),
        (state(down_since=-500.0), "gpt-4o has been down for 10 min; the run waits for it"),
    ],
)
def test_what_keeps_a_backend_from_taking_requests_is_said(found: Any, said: str | None) -> None:
    assert trouble_of(found, now=100.0) == said
