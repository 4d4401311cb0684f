"""One layer of retries, with budgets by kind and waits that honour the server."""

import logging

import anyio
import pytest
from backend_doubles import Scripted, Waits
from chat_server import completion
from pydantic_ai.direct import model_request
from pydantic_ai.messages import ModelRequest

from refinesynth.backends import Backend
from refinesynth.client.classify_error import ErrorCategory, UnusableAnswer, classify_error
from refinesynth.client.failure_policy import FailurePolicy, PendingRequest
from refinesynth.client.limiter.rate_limiter import RateLimiter
from refinesynth.client.model import BackendModel
from refinesynth.client.session import RequestContext
from refinesynth.errors import RunStopped


class RateLimited(Exception):
    status_code = 429

    def __init__(self, after: str | None = None) -> None:
        super().__init__("slow down")
        self.litellm_response_headers = {"retry-after": after} if after else {}


class Loading(Exception):
    status_code = 503

    def __init__(self, text: str = '{"error": {"message": "Loading model", "type": "unavailable_error"}}') -> None:
        super().__init__(text)


EMPTY = UnusableAnswer("gave an empty answer")
ODD = UnusableAnswer("odd", ErrorCategory.DEFECT)


def waits(*errors: Exception, met: bool = True, attempt: int = 1, **settings: float) -> list[float]:
    """The waits after attempts that fail with these, up to the one that is the last."""
    backend = Backend.model_validate({"model": "m", **settings})
    limiter = RateLimiter("m")
    limiter.has_answered = met
    policy, found = FailurePolicy(backend, limiter), list[float]()
    call = PendingRequest(RequestContext(), attempt=attempt)
    for error in errors:
        wait = policy.wait(classify_error(error, backend), call, {})
        if wait is None:
            break
        found.append(wait)
    return found


def asking(*answers: object) -> tuple[BackendModel, Scripted, Waits]:
    call, slept = Scripted(*answers), Waits()
    return BackendModel(Backend(model="m"), call=call, sleep=slept), call, slept


async def ask(model: BackendModel) -> str | None:
    return (await model_request(model, [ModelRequest.user_text_prompt("Hello")])).text


def test_every_fault_within_the_budget_is_tried_again() -> None:
    assert len(waits(*[OSError()] * 9, retries=3)) == 3
    assert len(waits(*[ConnectionRefusedError()] * 9)) == 8
    for fault in (EMPTY, ODD):
        assert len(waits(OSError(), fault, OSError(), fault, retries=2, content_retries=2)) == 4
        assert len(waits(*[fault] * 9, retries=9, content_retries=2)) == 2


async def test_a_server_that_breaks_off_every_answer_stops_the_run() -> None:
    model, call, _ = asking(*[completion(finish_reason="abort")] * 18)
    async with anyio.create_task_group() as group:
        for _ in range(2):

            async def expect() -> None:
                with pytest.raises(RunStopped, match=r"broke off its answer .* it stays down"):
                    await ask(model)

            group.start_soon(expect)
    assert len(call.requests) == 18


def test_a_server_that_was_never_there_is_given_up_on_in_seconds() -> None:
    for _ in range(20):
        waited = waits(*[ConnectionRefusedError()] * 9, met=False)
        assert len(waited) == 3
        assert 5 <= sum(waited) <= 9
    waited = waits(*[ConnectionRefusedError()] * 9, met=False, retries=1, longest_wait=0.5)
    assert len(waited) == 1
    assert max(waited) <= 0.5


def test_only_a_server_that_is_not_there_is_given_up_on_early() -> None:
    for fault in (RateLimited(), TimeoutError(), ConnectionResetError()):
        assert len(waits(*[fault] * 9, met=False)) == 8, fault


async def test_each_retry_is_a_line_in_the_log_without_keys(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CANARY_API_KEY", "canary-0123456789")
    model, _, slept = asking(OSError("100% canary-0123456789\nlost"), completion(""), completion("answer"))
    with caplog.at_level(logging.WARNING, "refinesynth.backends"):
        assert await ask(model) == "answer"
    said = [record.getMessage() for record in caplog.records if "attempt" in record.getMessage()]
    assert said[0] == f"m broke off the connection (100% *** lost); attempt 1, the next in {slept[0]:.1f} s"
    assert said[1].endswith("attempt 2, the next in 0.0 s")


def test_no_wait_is_shorter_than_retry_after_nor_of_itself_longer_than_the_longest() -> None:
    waited = waits(RateLimited("7"), RateLimited("300"), *[RateLimited()] * 6, longest_wait=20, outage=300)
    assert len(waited) == 8
    assert 7 <= waited[0] <= 20
    assert waited[1] == 300
    assert all(0 <= wait <= 20 for wait in waited[2:])
    assert waits(RateLimited("301"), outage=300) == []


@pytest.mark.parametrize("text", ["Loading model", "Model m/x is currently loading", "the model is not loaded yet"])
def test_a_server_that_loads_its_model_is_waited_for_without_a_retry(text: str) -> None:
    assert waits(*[Loading(text)] * 200, retries=0, outage=600) == [5.0] * 120
    assert waits(*[Loading(text)] * 200, retries=0, outage=60, met=False) == [5.0] * 12
    assert len(waits(*[Loading(text)] * 9, OSError(), OSError(), retries=1)) == 10


async def test_a_model_that_never_loads_stops_the_run_with_advice(caplog: pytest.LogCaptureFixture) -> None:
    model, _, slept = asking(*[Loading()] * 200)
    with pytest.raises(RunStopped, match=r"is loading its model .*wait longer than 600 s with --set outage="):
        await ask(model)
    assert sum(slept) == 600
    assert [line for line in caplog.messages if "it is waited for, up to 600 s" in line] == caplog.messages
