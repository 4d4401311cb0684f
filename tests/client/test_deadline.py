"""The time that an episode may take: it stands still in an outage, and what was refused by then is kept."""

from itertools import pairwise
from types import SimpleNamespace
from typing import Any

import anyio
import pytest
from backend_doubles import Refused, Scripted
from chat_server import completion
from hypothesis import given
from hypothesis import strategies as st
from pydantic_ai.messages import ModelRequest
from pydantic_ai.models import ModelRequestParameters
from stage import settings_for
from virtual_time import in_virtual_time

from refinesynth.async_contexts import deadline
from refinesynth.backends import Backend, resolve_roles
from refinesynth.client import open_model, open_models
from refinesynth.episode import EpisodeOutcome, play_episode
from refinesynth.rehearsal import Faults, Rehearsal
from refinesynth.settings import Attempts
from refinesynth.trajectory import Persona


@given(st.lists(st.tuples(st.floats(0, 30), st.floats(0, 30)), max_size=6))
def test_time_that_is_stopped_does_not_count(stops: list[tuple[float, float]]) -> None:
    async def work() -> tuple[float, float]:
        began, stopped, took = anyio.current_time(), 0.0, 0.0

        async def one(start: float, length: float) -> None:
            await anyio.sleep(start)
            with limit.stopped():
                await anyio.sleep(length)

        async with anyio.create_task_group() as group:
            with deadline(20) as limit:
                for stop in stops:
                    group.start_soon(one, *stop)
                await anyio.sleep(1_000)
            took = anyio.current_time() - began
            # Seconds in which at least one of them had stopped it, while it ran.
            edges = sorted({0.0, took, *(edge for start, length in stops for edge in (start, start + length))})
            for before, after in pairwise(edges):
                middle = (before + after) / 2
                if middle < took and any(start <= middle < start + length for start, length in stops):
                    stopped += after - before
            group.cancel_scope.cancel()
        return took, stopped

    took, stopped = in_virtual_time(work)
    assert took == pytest.approx(20 + stopped, abs=1e-6)


def episode(*, allowed: float | None, seconds_a_call: float) -> EpisodeOutcome:
    """An episode whose scripts are all refused."""
    rehearsal = Rehearsal(faults=Faults(invalid_json=1.0))

    async def call(**request: object) -> object:
        await anyio.sleep(seconds_a_call)
        return await rehearsal(**request)

    async def play() -> EpisodeOutcome:
        settings = settings_for(attempts=Attempts(scripts=50, answers=0, calls=None), deadline=allowed)
        return await play_episode(
            Persona(text="A night porter in a small hotel who repairs clocks."),
            index=0,
            settings=settings,
            models=open_models(resolve_roles("rehearsal"), call=call),
        )

    return in_virtual_time(play)


def test_an_episode_over_its_deadline_is_given_up_and_what_it_refused_is_kept() -> None:
    outcome = episode(allowed=100, seconds_a_call=8)
    assert outcome.trajectory is None
    assert outcome.reason == "not done within its deadline of 100 s"
    assert outcome.lost
    assert outcome.usage.requests == 12
    assert len(outcome.refused) == 12


@pytest.mark.parametrize("limits", [{"requests_per_minute": 1}, {"max_in_flight": 1}, {"tokens_per_minute": 1_000}])
def test_waits_for_our_own_limits_are_not_the_episodes(limits: dict[str, Any]) -> None:
    async def call(**_request: object) -> dict[str, Any]:
        await anyio.sleep(20)
        return completion(usage={"prompt_tokens": 900, "completion_tokens": 100})

    async def work() -> list[bool]:
        model, passed = open_model(Backend(model="mine/m", **limits), call=call), list[bool]()

        async def one() -> None:
            with deadline(90) as clock:
                for _ in range(3):
                    await model.request([ModelRequest.user_text_prompt("Go on.")], None, ModelRequestParameters())
            passed.append(clock.passed)

        async with anyio.create_task_group() as group:
            for _ in range(9):
                group.start_soon(one)
        return passed

    assert in_virtual_time(work) == [False] * 9


@pytest.mark.parametrize(("status", "passes"), [(429, False), (500, True)])
def test_waits_for_a_servers_rate_limit_are_not_the_episodes(status: int, *, passes: bool) -> None:
    class Later(Refused):
        response = SimpleNamespace(headers={"retry-after": "60"})

    call = Scripted(*[Later(status, "slow down")] * 3)

    async def work() -> bool:
        model = open_model(Backend(model="mine/m"), call=call)
        with deadline(90) as clock:
            await model.request([ModelRequest.user_text_prompt("Go on.")], None, ModelRequestParameters())
        return clock.passed

    assert in_virtual_time(work) is passes
