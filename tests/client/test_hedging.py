"""A request that takes far longer than its like is sent once more: once, rarely, and both are paid for."""

from collections.abc import Awaitable, Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import anyio
import pytest
from backend_doubles import USAGE, Refused, Waits
from chat_server import completion
from pydantic_ai import Agent
from test_account import Counted, Dictionary
from virtual_time import in_virtual_time

from refinesynth.backends import Backend, Role
from refinesynth.client.account import Price
from refinesynth.client.limiter.rate_limiter import RateLimiterState
from refinesynth.client.model import LiteLLMModel
from refinesynth.client.session import Session
from refinesynth.errors import EpisodeAbandoned
from refinesynth.journal.values import FIRST_UNUSED, SECOND_UNUSED, Paid

LIKE_OTHERS = 200
"""Requests after which it is known what is long: three seconds, where each takes one."""
AGES = 100.0


@dataclass
class Server:
    """Takes a second for an answer, or as long as it is told for a request of this number; raises what is an
    exception, after a second."""

    takes: Mapping[int, float | Exception] = field(default_factory=dict[int, float | Exception])
    usual: float = 1.0
    asked: int = 0
    broken_off: list[int] = field(default_factory=list[int])

    async def __call__(self, **_: object) -> object:
        number, self.asked = self.asked, self.asked + 1
        takes = self.takes.get(number, self.usual)
        try:
            await anyio.sleep(1.0 if isinstance(takes, Exception) else takes)
        except anyio.get_cancelled_exc_class():
            self.broken_off.append(number)
            raise
        if isinstance(takes, Exception):
            raise takes
        return completion(f"answer {number}", usage=USAGE)


@dataclass
class Tracker(Counted):
    """Grants all, or nothing from some time on."""

    poor: bool = False

    async def reserve(self, *, prompt_tokens: float, max_tokens: int | None, price: Price) -> Counted:
        if self.poor:
            await anyio.sleep_forever()
        return await super().reserve(prompt_tokens=prompt_tokens, max_tokens=max_tokens, price=price)


def model(server: Server, *, hedge: bool = True, limited: bool = True, most: int | None = None) -> LiteLLMModel:
    named: dict[str, Any] = {"model": "hosted_vllm/m", "base_url": "http://h/v1"} if limited else {"model": "rehearsal"}
    backend = Backend(**named, hedge=hedge, retries=0, max_in_flight=most)
    return LiteLLMModel(backend, call=server, price=lambda usage: usage.total_tokens / 2, sleep=Waits())


async def ask(answering: LiteLLMModel, *, tracker: Tracker | None = None, memory: Dictionary | None = None) -> str:
    session = Session("e1", seed=7, tracker=tracker or Tracker(), memory=memory or Dictionary())
    return (await Agent(session.model(Role.PLAYER, answering)).run("hi")).output


async def many(answering: LiteLLMModel, count: int) -> None:
    async def caller(left: Iterator[int]) -> None:
        for _ in left:
            await ask(answering)

    left = iter(range(count))
    async with anyio.create_task_group() as group:
        for _ in range(64):
            group.start_soon(caller, left)


def after(known: int, work: Callable[[LiteLLMModel], Awaitable[None]], server: Server, **form: Any) -> None:
    """Let the model ask so often, and then do this; in no time."""

    async def both() -> None:
        answering = model(server, **form)
        await many(answering, known)
        await work(answering)

    in_virtual_time(both)


def test_the_first_of_two_answers_is_used_and_the_other_request_is_broken_off() -> None:
    server, memory, tracker = Server({LIKE_OTHERS: AGES}), Dictionary(), Tracker()

    async def work(answering: LiteLLMModel) -> None:
        began = anyio.current_time()
        assert await ask(answering, memory=memory, tracker=tracker) == f"answer {LIKE_OTHERS + 1}"
        # Three times as long as others, and then a second one of the usual length.
        assert anyio.current_time() - began == 4.0

    after(LIKE_OTHERS, work, server)
    assert server.broken_off == [LIKE_OTHERS]
    # What was broken off is billed at the worst, since nobody knows.
    assert tracker.log == ["reserved", "reserved", "settled 12 6.0", "assumed 8202 4101.0"]
    assert bill(memory) == [("", 12, 6.0), (FIRST_UNUSED, 8202, 4101.0)]


def bill(memory: Dictionary) -> list[tuple[str, int, float | None]]:
    name = model(Server()).model_name
    return [(one.model.removeprefix(name), one.input_tokens + one.output_tokens, one.cost_usd) for one in paid(memory)]


def paid(memory: Dictionary) -> list[Paid]:
    return list(memory.kept.values())


def test_no_request_is_sent_a_third_time() -> None:
    server, memory = Server({LIKE_OTHERS: AGES, LIKE_OTHERS + 1: AGES}), Dictionary()

    async def work(answering: LiteLLMModel) -> None:
        assert await ask(answering, memory=memory) == f"answer {LIKE_OTHERS}"

    after(LIKE_OTHERS, work, server)
    assert server.asked == LIKE_OTHERS + 2
    assert server.broken_off == [LIKE_OTHERS + 1]
    assert [name for name, _, _ in bill(memory)] == ["", SECOND_UNUSED]


def test_nothing_is_sent_twice_unless_asked_for_nor_before_it_is_known_what_is_long() -> None:
    for known, hedge in ((LIKE_OTHERS, False), (LIKE_OTHERS - 50, True)):
        server = Server({known: AGES})

        async def work(answering: LiteLLMModel) -> None:
            await ask(answering)

        after(known, work, server, hedge=hedge)
        assert server.asked == known + 1


def test_a_second_one_that_fails_leaves_the_first() -> None:
    server, memory = Server({LIKE_OTHERS: AGES, LIKE_OTHERS + 1: Refused(500)}), Dictionary()

    async def work(answering: LiteLLMModel) -> None:
        assert await ask(answering, memory=memory) == f"answer {LIKE_OTHERS}"

    after(LIKE_OTHERS, work, server)
    # A request that failed costs nothing.
    assert bill(memory) == [("", 12, 6.0)]


def test_the_second_is_used_where_the_first_fails_in_the_end() -> None:
    @dataclass
    class Fails(Server):
        async def __call__(self, **request: object) -> object:
            if (number := self.asked) == LIKE_OTHERS:
                self.asked += 1
                await anyio.sleep(3.5)
                raise Refused(500)
            assert number == self.asked
            return await super().__call__(**request)

    memory = Dictionary()

    async def work(answering: LiteLLMModel) -> None:
        assert await ask(answering, memory=memory) == f"answer {LIKE_OTHERS + 1}"

    after(LIKE_OTHERS, work, Fails())
    assert bill(memory) == [("", 12, 6.0)]


def test_without_money_for_a_second_one_the_first_goes_on() -> None:
    server, tracker = Server({LIKE_OTHERS: AGES}), Tracker()

    async def work(answering: LiteLLMModel) -> None:
        async with anyio.create_task_group() as group:
            group.start_soon(_poor_soon, tracker)
            assert await ask(answering, tracker=tracker) == f"answer {LIKE_OTHERS}"

    after(LIKE_OTHERS, work, server)
    assert server.asked == LIKE_OTHERS + 1
    assert tracker.log == ["reserved", "settled 12 6.0"]


async def _poor_soon(tracker: Tracker) -> None:
    await anyio.sleep(1.0)
    tracker.poor = True


def test_a_server_that_becomes_slow_as_a_whole_is_not_asked_twice_as_much() -> None:
    server = Server()

    async def work(answering: LiteLLMModel) -> None:
        server.usual = 10.0
        before = server.asked
        await many(answering, 1_000)
        # Ten that were saved up, of 64 that are slow at once; from then on that is usual.
        assert server.asked - before - 1_000 == 10

    after(2_000, work, server, limited=False)


def test_a_request_that_is_cancelled_ends_both_and_frees_what_was_put_aside() -> None:
    server, tracker = Server({LIKE_OTHERS: AGES, LIKE_OTHERS + 1: AGES}), Tracker()

    async def work(answering: LiteLLMModel) -> None:
        with anyio.move_on_after(10):
            await ask(answering, tracker=tracker)
        # All places are free again.
        await many(answering, 50)

    after(LIKE_OTHERS, work, server)
    assert sorted(server.broken_off) == [LIKE_OTHERS, LIKE_OTHERS + 1]
    assert tracker.log == ["reserved", "reserved", "released", "released"]


def test_what_is_broken_off_is_neither_an_answer_nor_a_fault_to_the_limiter() -> None:
    seen = list[RateLimiterState]()

    async def work(answering: LiteLLMModel) -> None:
        await ask(answering)
        await many(answering, 50)
        seen.append(answering.limiter.state)

    for takes in ({LIKE_OTHERS: AGES}, {}):
        after(LIKE_OTHERS, work, Server(takes))
    assert seen[0] == seen[1]
    assert seen[0].in_flight == 0


def test_a_second_one_waits_for_a_place_and_is_not_sent_when_the_first_one_leaves_it_the_only_one() -> None:
    server, memory = Server({LIKE_OTHERS: AGES}), Dictionary()

    async def work(answering: LiteLLMModel) -> None:
        assert await ask(answering, memory=memory) == f"answer {LIKE_OTHERS}"
        state = answering.limiter.state
        assert (state.in_flight, state.waiting) == (0, 0)

    after(LIKE_OTHERS, work, server, most=1)
    assert server.asked == LIKE_OTHERS + 1
    assert [name for name, _, _ in bill(memory)] == [""]


def test_an_answer_that_makes_it_known_what_is_long_is_not_asked_for_again() -> None:
    server = Server({LIKE_OTHERS - 1: AGES})

    async def work(answering: LiteLLMModel) -> None:
        assert await ask(answering) == f"answer {LIKE_OTHERS - 1}"

    after(LIKE_OTHERS - 1, work, server)
    assert server.asked == LIKE_OTHERS


def test_of_two_answers_at_once_both_are_billed_as_they_are() -> None:
    server, memory = Server({LIKE_OTHERS: 4.0}), Dictionary()

    async def work(answering: LiteLLMModel) -> None:
        assert await ask(answering, memory=memory) == f"answer {LIKE_OTHERS}"

    after(LIKE_OTHERS, work, server)
    assert server.broken_off == []
    assert bill(memory) == [("", 12, 6.0), (SECOND_UNUSED, 12, 6.0)]


def test_where_both_fail_the_first_says_why_and_nothing_is_billed() -> None:
    server, memory, tracker = Server({LIKE_OTHERS: 20.0, LIKE_OTHERS + 1: 40.0}), Dictionary(), Tracker()

    class Failing(Server):
        async def __call__(self, **request: object) -> object:
            number = server.asked
            answer = await server(**request)
            if number >= LIKE_OTHERS:
                raise Refused(400, f"refused {number}")
            return answer

    async def work(answering: LiteLLMModel) -> None:
        with pytest.raises(EpisodeAbandoned, match=f"refused {LIKE_OTHERS}"):
            await ask(answering, memory=memory, tracker=tracker)

    after(LIKE_OTHERS, work, Failing())
    assert server.asked == LIKE_OTHERS + 2
    assert not paid(memory)
    assert tracker.log == ["reserved", "reserved", "released", "released"]


@pytest.mark.parametrize("twice", [False, True])
def test_an_answer_is_kept_although_its_caller_is_cancelled_before_it_has_it(twice: bool) -> None:
    memory, tracker, scopes = Dictionary(), Tracker(), list[anyio.CancelScope]()

    class Cancelling(Server):
        async def __call__(self, **request: object) -> object:
            answer = await super().__call__(**request)
            for scope in scopes:
                scope.cancel()
            return answer

    async def work(answering: LiteLLMModel) -> None:
        with anyio.CancelScope() as scope:
            scopes.append(scope)
            await ask(answering, memory=memory, tracker=tracker)
        assert scope.cancelled_caught

    after(LIKE_OTHERS, work, Cancelling({LIKE_OTHERS: AGES} if twice else {}))
    assert [name for name, _, _ in bill(memory)] == (["", FIRST_UNUSED] if twice else [""])
    assert "released" not in tracker.log
