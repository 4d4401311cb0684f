"""What is in flight, and who says so when nothing moves."""

import logging
from typing import Any

import anyio
import pytest
from backend_doubles import Scripted
from pydantic_ai.direct import model_request
from pydantic_ai.messages import ModelRequest
from virtual_time import in_virtual_time

from refinesynth.backends import Backend, Role
from refinesynth.client import open_models
from refinesynth.client.request_watchdog import PendingRequest, RequestsInFlight, RequestStage, watch
from refinesynth.client.session import RequestContext, Session
from refinesynth.run.event_log import facts_of


async def call(calls: RequestsInFlight, *stays: tuple[RequestStage, float], limit: float = 10) -> None:
    account = RequestContext(Session("e1", seed=0, index=1), "player")
    with calls.begun(PendingRequest(account, "m", timeout=limit)) as one:
        for stage, seconds in stays:
            one.enter(stage)
            await anyio.sleep(seconds)


class Heard(logging.Handler):
    """Keeps what is said to the logger of backends."""

    def __init__(self) -> None:
        super().__init__()
        self.records = list[logging.LogRecord]()

    def emit(self, record: logging.LogRecord) -> None:
        self.records.append(record)

    def __enter__(self) -> list[logging.LogRecord]:
        logging.getLogger("refinesynth.backends").addHandler(self)
        return self.records

    def __exit__(self, *_: object) -> None:
        logging.getLogger("refinesynth.backends").removeHandler(self)


def alarms(
    *stays: tuple[RequestStage, float], others: float = 0.0, idle: float = 1_000, timeout: float = 10
) -> list[tuple[str, dict[str, Any]]]:
    """What is said while one call is in flight, and others of one second come every `others` seconds; with its facts."""

    async def run() -> None:
        calls = RequestsInFlight()

        async def busy() -> None:
            while others:
                await call(calls, (RequestStage.ANSWER, 1))
                await anyio.sleep(others)

        async with anyio.create_task_group() as group:
            group.start_soon(lambda: watch(calls, every=5, idle=idle))
            group.start_soon(busy)
            await call(calls, *stays, limit=timeout)
            assert len(calls) <= 1
            group.cancel_scope.cancel()

    with Heard() as records:
        in_virtual_time(run)
    return [(record.getMessage(), facts_of(record)) for record in records]


def test_calls_are_listed_as_long_as_they_are_in_flight() -> None:
    calls = RequestsInFlight()

    seen = list[PendingRequest]()

    async def run() -> None:
        async with anyio.create_task_group() as group:
            group.start_soon(call, calls, (RequestStage.TURN, 1), (RequestStage.ANSWER, 5))
            group.start_soon(call, calls, (RequestStage.TURN, 9))
            await anyio.sleep(2)
            seen.extend(calls)

    in_virtual_time(run)
    assert [one.account.session.id for one in seen] == ["e1", "e1"]
    assert (len(calls), calls.finished) == (0, 2)


def test_a_call_that_takes_several_times_its_timeout_is_reported_once() -> None:
    ((reason, facts),) = alarms(
        (RequestStage.TURN, 3),
        (RequestStage.ANSWER, 9),
        (RequestStage.BACKOFF, 30),
        (RequestStage.ANSWER, 90),
        others=1,
    )
    (waiting,) = facts["calls"]
    assert "3 times the timeout" in reason
    assert (waiting["stage"], waiting["role"], waiting["episode"]) == (RequestStage.BACKOFF, "player", "e1")
    assert 30 < waiting["seconds"] <= 40


@pytest.mark.parametrize("stays", [[(RequestStage.ANSWER, 29)], [(RequestStage.TURN, 900), (RequestStage.ANSWER, 9)]])
def test_what_waits_for_its_turn_or_is_in_time_is_not_reported(stays: list[tuple[RequestStage, float]]) -> None:
    assert alarms(*stays, others=1) == []


def test_that_nothing_is_answered_is_said_again_and_again() -> None:
    said = alarms((RequestStage.TURN, 350), idle=100)
    assert [reason for reason, _ in said] == ["nothing has been answered for 100 s; 1 in flight"] * 3


def test_before_any_call_is_late_nothing_is_missed() -> None:
    ((reason, _),) = alarms((RequestStage.ANSWER, 350), idle=100, timeout=300)
    assert reason == "nothing has been answered for 300 s; 1 in flight"
    assert alarms((RequestStage.ANSWER, 350), idle=100, timeout=400) == []


def test_where_nothing_is_asked_nothing_is_missed() -> None:
    async def run() -> None:
        with anyio.move_on_after(1_000):
            await watch(RequestsInFlight(), idle=100)

    with Heard() as records:
        in_virtual_time(run)
    assert records == []


def test_a_model_lists_its_requests_with_what_they_wait_for() -> None:
    calls, seen = RequestsInFlight(), list[tuple[str, str, RequestStage, int]]()

    def look() -> None:
        seen.extend((one.account.role, one.account.session.id, one.stage, one.attempt) for one in calls)

    async def run() -> None:
        class Slow(Scripted):
            async def __call__(self, **request: object) -> object:
                look()
                return await super().__call__(**request)

        model = open_models({Role.PLAYER: Backend(model="m")}, call=Slow(OSError()), calls=calls)[Role.PLAYER]
        answering = Session("e7", seed=1).model(Role.PLAYER, model)
        async with anyio.create_task_group() as group:

            async def one() -> None:
                await model_request(answering, [ModelRequest.user_text_prompt("hi")])

            group.start_soon(one)
            await anyio.wait_all_tasks_blocked()
            look()

    in_virtual_time(run)
    assert seen == [
        ("player", "e7", RequestStage.ANSWER, 1),
        ("player", "e7", RequestStage.BACKOFF, 1),
        ("player", "e7", RequestStage.ANSWER, 2),
    ]
    assert len(calls) == 0
