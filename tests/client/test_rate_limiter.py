"""Who may ask, and when; against servers in virtual time."""

import logging
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import TypeVar

import anyio
import pytest
from chat_server import completion
from hypothesis import given, settings
from hypothesis import strategies as st
from limited_servers import BROKEN, BUSY, DOWN, REJECTED, Server, Unmoved, ask
from pydantic_ai.messages import ModelMessage, ModelRequest
from pydantic_ai.models import ModelRequestParameters
from virtual_time import in_virtual_time

from refinesynth.backends import Backend, Role
from refinesynth.client import open_models
from refinesynth.client.limiter.limits import CircuitBreaker, ConcurrencyLimit, TokenBuckets
from refinesynth.client.limiter.rate_limiter import RateLimiter
from refinesynth.errors import RunStopped

_Result = TypeVar("_Result")


def virtually(work: Callable[[], Awaitable[_Result]]) -> Callable[[], None]:
    """A test in virtual time."""

    def test() -> None:
        in_virtual_time(work)

    test.__name__ = work.__name__  # pyright: ignore[reportFunctionMemberAccess]
    return test


def fixed(most: int) -> RateLimiter:
    return RateLimiter("m", limit=Unmoved(most))


async def occupy(
    limiter: RateLimiter, seconds: float, *, priority: float = 0.0, buckets: TokenBuckets | None = None
) -> None:
    async with limiter.permit(priority=priority, buckets=buckets) as permit:
        await anyio.sleep(seconds)
        permit.answered(output_tokens=1)


async def go_down(limiter: RateLimiter) -> None:
    """One request that is answered, and five that find it down."""
    await occupy(limiter, 0)
    for index in range(5):
        async with limiter.permit(priority=index) as permit:
            permit.failed(DOWN)


@virtually
async def test_one_retry_after_among_many_holds_its_own_place_and_no_other() -> None:
    limiter, went = fixed(10), list[float]()
    async with limiter.permit() as permit:
        permit.failed(replace(BUSY, retry_after=30.0))
    began = anyio.current_time()
    assert limiter.held_until is None

    async def one() -> None:
        async with limiter.permit() as permit:
            went.append(anyio.current_time() - began)
            await anyio.sleep(10)
            permit.answered(output_tokens=1)

    async with anyio.create_task_group() as group:
        for _ in range(47):
            group.start_soon(one)
    assert went == [0.0] * 9 + [10.0] * 9 + [20.0] * 9 + [30.0] * 10 + [40.0] * 10


@pytest.mark.parametrize(("asked", "waited"), [(7.0, 7.0), (0.5, 0.5), (3_600.0, 60.0)])
def test_no_request_goes_before_retry_after_is_over(asked: float, waited: float) -> None:
    async def reserved() -> list[float]:
        limiter, server = RateLimiter("m", limit=ConcurrencyLimit(start=1, ceiling=1), longest_wait=60), Server()
        async with limiter.permit() as permit:
            permit.failed(replace(BUSY, retry_after=asked))
        began = anyio.current_time()
        assert limiter.held_until == began + waited
        async with anyio.create_task_group() as group:
            for index in range(4):
                group.start_soon(ask, limiter, server)
                await anyio.sleep(index * 0.1)
        assert limiter.held_until is None
        return [arrival - began for arrival in server.arrivals]

    assert min(in_virtual_time(reserved)) == pytest.approx(waited)


@virtually
async def test_older_episodes_go_first_and_equals_in_the_order_of_their_coming() -> None:
    limiter, order = fixed(1), list[tuple[float, int]]()

    async def one(priority: float, number: int) -> None:
        async with limiter.permit(priority=priority):
            order.append((priority, number))
            await anyio.sleep(1)

    async with anyio.create_task_group() as group:
        group.start_soon(occupy, limiter, 1)
        await anyio.sleep(0.1)
        for number, priority in enumerate((5, 3, 5, 1, 3, 9, 1)):
            group.start_soon(one, priority, number)
            await anyio.sleep(0.01)
    assert order == sorted(order)


@virtually
async def test_who_waits_for_its_pace_holds_no_slot_and_stops_no_other_model() -> None:
    limiter, slow, fast = fixed(1), TokenBuckets(requests_per_minute=1), TokenBuckets()
    began, ends = anyio.current_time(), dict[str, float]()

    async def one(name: str, buckets: TokenBuckets, priority: float) -> None:
        await occupy(limiter, 1, priority=priority, buckets=buckets)
        ends[name] = anyio.current_time() - began

    async with anyio.create_task_group() as group:
        for name, buckets, priority in (("s1", slow, 0), ("s2", slow, 1), ("f1", fast, 2), ("f2", fast, 3)):
            group.start_soon(one, name, buckets, priority)
    assert ends == pytest.approx({"s1": 1, "f1": 2, "f2": 3, "s2": 61})


@virtually
async def test_backends_that_differ_otherwise_share_the_pace_of_their_model() -> None:
    times = list[float]()

    async def call(**_: object) -> dict[str, object]:
        times.append(anyio.current_time())
        return completion()

    one = Backend(model="openai/m", requests_per_minute=60)
    roles = {role: one.model_copy(update={"temperature": at / 10}) for at, role in enumerate((*Role,)[:3])}
    models = open_models(roles, call=call)
    messages: list[ModelMessage] = [ModelRequest.user_text_prompt("Hello")]
    async with anyio.create_task_group() as group:
        for model in (*models.values(), *models.values()):
            group.start_soon(model.request, messages, None, ModelRequestParameters())
    assert [time - times[0] for time in times] == pytest.approx([0, 1, 2, 3, 4, 5])


@settings(max_examples=60)
@given(st.data())
def test_no_slot_is_lost_however_requests_end(data: st.DataObject) -> None:
    plans = data.draw(
        st.lists(
            st.tuples(
                st.floats(0, 5),  # when it comes
                st.floats(0, 3),  # how long it is in flight
                st.floats(0, 4),  # when it is cancelled, from its coming
                st.sampled_from(["answered", "failed", "raises", "silent"]),
                st.integers(0, 3),
            ),
            max_size=25,
        )
    )
    most = data.draw(st.integers(1, 4))

    async def play() -> None:
        limiter, peak, here = fixed(most), 0, 0
        buckets = [TokenBuckets(), TokenBuckets(requests_per_minute=120)]

        async def one(comes: float, takes: float, until: float, end: str, priority: int) -> None:
            nonlocal peak, here
            await anyio.sleep(comes)
            with anyio.move_on_after(until):
                try:
                    async with limiter.permit(priority=priority, buckets=buckets[priority % 2]) as permit:
                        here += 1
                        peak = max(peak, here)
                        try:
                            await anyio.sleep(takes)
                            if end == "answered":
                                permit.answered(output_tokens=1)
                            elif end == "failed":
                                permit.failed(BROKEN)
                            elif end == "raises":
                                raise ValueError
                        finally:
                            here -= 1
                except ValueError:
                    pass

        async with anyio.create_task_group() as group:
            for plan in plans:
                group.start_soon(one, *plan)
        assert peak <= most
        assert (limiter.in_flight, limiter.waiting) == (0, 0)
        with anyio.fail_after(10):
            async with anyio.create_task_group() as group:
                for _ in range(most):
                    group.start_soon(occupy, limiter, 1)

    in_virtual_time(play)


class Outage:
    """A server that is down for a while, and everything that is to be seen of that."""

    def __init__(self, *, seconds: float, callers: int = 30, breaker: CircuitBreaker | None = None) -> None:
        self.seconds = seconds
        self.callers = callers
        self.server = Server()
        self.limiter = RateLimiter("m", breaker=breaker)
        self.excused = self.counted = 0

    async def play(self) -> None:
        for _ in range(3):
            await ask(self.limiter, self.server)
        self.server.up = False
        self.began = anyio.current_time()
        async with anyio.create_task_group() as group:
            for index in range(self.callers):
                group.start_soon(self.caller, index)
            await anyio.sleep(self.seconds)
            self.server.up = True

    async def caller(self, index: int) -> None:
        while True:
            async with self.limiter.permit(priority=index) as permit:
                fault = await self.server.answer(50)
                if fault is None:
                    permit.answered(output_tokens=50)
                    return
                permit.failed(fault)
            if self.limiter.is_outage_fault(fault):
                self.excused += 1
            else:
                self.counted += 1
                await anyio.sleep(1)


def test_a_run_waits_for_a_backend_that_is_down_and_goes_on_by_itself(caplog: pytest.LogCaptureFixture) -> None:
    outage = Outage(seconds=300)
    with caplog.at_level(logging.WARNING, "refinesynth.backends"):
        in_virtual_time(outage.play)
    # The four before it opened count; nobody's does while it is open.
    assert outage.counted == 4
    down, back = caplog.messages
    assert down.startswith(f"{DOWN.message}; the run waits")
    assert back.startswith("m is back after 3")
    during = [arrival for arrival in outage.server.arrivals if arrival > outage.began]
    trials = [arrival for arrival in during if arrival < outage.began + 300]
    assert len(trials) <= 25, "one at a time, ever more seldom"
    assert len(outage.server.answers) == 3 + 30
    assert max(during) <= outage.began + 300 + 60 + 30


def test_an_outage_that_lasts_too_long_stops_the_run(caplog: pytest.LogCaptureFixture) -> None:
    async def never_back() -> float:
        outage = Outage(seconds=9_999, breaker=CircuitBreaker(longest_wait=60, outage=120))
        began = anyio.current_time()
        with pytest.raises(BaseExceptionGroup) as stopped:
            await outage.play()
        assert stopped.group_contains(RunStopped, match=r"cannot be reached; it stays down, try again later\.$")
        return anyio.current_time() - began

    with caplog.at_level(logging.WARNING, "refinesynth.backends"):
        assert in_virtual_time(never_back) <= 120 + 30
    assert [record.getMessage() for record in caplog.records] == [
        "m cannot be reached; the run waits, and one request at a time tries whether it is back"
    ]


@virtually
async def test_even_a_trial_that_hangs_does_not_hold_a_run_for_longer() -> None:
    breaker = CircuitBreaker(outage=120, jitter=lambda _least, most: most)
    limiter = RateLimiter("m", breaker=breaker)
    await go_down(limiter)
    began = anyio.current_time()

    async def hang() -> None:
        async with limiter.permit():
            await anyio.sleep(1_000)

    async with anyio.create_task_group() as group:
        group.start_soon(hang)
        await anyio.sleep(5)
        assert breaker.is_trying
        with pytest.raises(RunStopped):
            await occupy(limiter, 0)
        assert anyio.current_time() == began + 120
        group.cancel_scope.cancel()
    assert not breaker.is_trying


@virtually
async def test_without_patience_nobody_waits_and_one_at_a_time_still_tries() -> None:
    limiter = RateLimiter("m", breaker=CircuitBreaker(outage=0, jitter=lambda _least, most: most))
    await go_down(limiter)
    for _ in range(3):
        with pytest.raises(RunStopped):
            await occupy(limiter, 0)
    await anyio.sleep(1)
    async with limiter.permit():
        with pytest.raises(RunStopped):
            await occupy(limiter, 0)
    await occupy(limiter, 0)
    assert not limiter.is_down


@virtually
async def test_any_answer_is_a_sign_of_life() -> None:
    limiter = RateLimiter("m")
    async with limiter.permit() as permit:
        permit.failed(REJECTED)
    assert limiter.has_answered


def test_a_limiter_serves_one_event_loop_after_another() -> None:
    limiter = fixed(1)

    async def interrupted() -> None:
        async with limiter.permit():
            await occupy(limiter, 1)

    async def limited() -> None:
        with anyio.move_on_after(1):
            await interrupted()

    for _ in range(2):
        in_virtual_time(limited)

    async def one() -> None:
        await occupy(limiter, 1)

    in_virtual_time(one)
    assert limiter.in_flight == 0
