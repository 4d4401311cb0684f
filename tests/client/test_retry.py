"""One layer of retries, with budgets by kind and waits that honour the server."""

import logging
import subprocess
import sys
from collections.abc import Awaitable, Callable

import anyio
import pytest
from backend_doubles import Waits

from refinesynth.backends import Backend
from refinesynth.client.classify_error import AnswerFault, Fault, FaultKind, FaultStep
from refinesynth.client.retry import GaveUp, retry
from refinesynth.errors import RunStopped


class RateLimited(Exception):
    status_code = 429

    def __init__(self, after: str | None = None) -> None:
        super().__init__("slow down")
        self.litellm_response_headers = {"retry-after": after} if after else {}


def not_yet() -> bool:
    return False


EMPTY = AnswerFault(FaultStep.RETRY, FaultKind.CONTENT, "gave an empty answer")
REFUSED = AnswerFault(FaultStep.ABANDON, FaultKind.POLICY, "refuses")
ODD = AnswerFault(FaultStep.RETRY, FaultKind.DEFECT, "odd")


def raising(*faults: Exception) -> tuple[Callable[[int], Awaitable[str]], list[int]]:
    """An attempt that raises these in turn and then answers; and the content faults it was told of, call by call."""
    left, told = list(faults), list[int]()

    async def attempt(content_faults: int) -> str:
        told.append(content_faults)
        if left:
            raise left.pop(0)
        return "answer"

    return attempt, told


async def test_what_succeeds_is_asked_once(waits: Waits) -> None:
    attempt, told = raising()
    assert await retry(attempt, Backend(model="m"), sleep=waits) == "answer"
    assert (told, waits) == ([0], [])


async def test_every_fault_within_the_budget_is_tried_again(waits: Waits) -> None:
    attempt, told = raising(*[OSError()] * 3)
    assert await retry(attempt, Backend(model="m", retries=3), sleep=waits) == "answer"
    assert told == [0, 0, 0, 0]
    assert len(waits) == 3


async def test_a_spent_budget_gives_up_with_the_last_fault(waits: Waits) -> None:
    attempt, told = raising(*[OSError()] * 9)
    with pytest.raises(GaveUp) as gave_up:
        await retry(attempt, Backend(model="m", retries=3), sleep=waits)
    assert (gave_up.value.attempts, len(told)) == (4, 4)
    assert gave_up.value.fault.kind is FaultKind.SERVER


@pytest.mark.parametrize("fault", [EMPTY, ODD])
async def test_content_and_defects_have_a_budget_of_their_own(fault: AnswerFault, waits: Waits) -> None:
    attempt, _ = raising(OSError(), fault, OSError(), fault)
    assert await retry(attempt, Backend(model="m", retries=2, content_retries=2), sleep=waits) == "answer"
    attempt, told = raising(fault, fault, fault)
    with pytest.raises(GaveUp):
        await retry(attempt, Backend(model="m", retries=9, content_retries=2), sleep=waits)
    assert len(told) == 3


async def test_a_server_that_was_never_there_is_given_up_on_in_seconds() -> None:
    for _ in range(20):
        waits = Waits()
        attempt, told = raising(*[ConnectionRefusedError()] * 9)
        with pytest.raises(GaveUp) as gave_up:
            await retry(attempt, Backend(model="m"), met=not_yet, sleep=waits)
        assert (gave_up.value.fault.kind, len(told)) == (FaultKind.UNREACHED, 4)
        assert 5 <= sum(waits) <= 9


async def test_a_server_that_answered_before_has_the_full_budget(waits: Waits) -> None:
    attempt, told = raising(*[ConnectionRefusedError()] * 8)
    assert await retry(attempt, Backend(model="m"), met=lambda: len(told) > 3, sleep=waits) == "answer"
    assert len(told) == 9


@pytest.mark.parametrize("fault", [RateLimited(), TimeoutError(), ConnectionResetError()])
async def test_only_a_server_that_is_not_there_is_given_up_on_early(fault: Exception, waits: Waits) -> None:
    attempt, told = raising(*[fault] * 8)
    assert await retry(attempt, Backend(model="m"), met=not_yet, sleep=waits) == "answer"
    assert len(told) == 9


async def test_first_contact_has_no_more_retries_than_the_backend_allows(waits: Waits) -> None:
    attempt, told = raising(*[ConnectionRefusedError()] * 9)
    with pytest.raises(GaveUp):
        await retry(attempt, Backend(model="m", retries=1, longest_wait=0.5), met=not_yet, sleep=waits)
    assert len(told) == 2
    assert max(waits) <= 0.5


async def test_each_retry_is_a_line_in_the_log_without_keys(
    waits: Waits, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CANARY_API_KEY", "canary-0123456789")
    attempt, _ = raising(OSError("100% canary-0123456789\nlost"), EMPTY)
    with caplog.at_level(logging.WARNING, "refinesynth.backends"):
        await retry(attempt, Backend(model="m"), sleep=waits)
    assert [record.getMessage() for record in caplog.records] == [
        f"m broke off the connection (100% *** lost); attempt 1, the next in {waits[0]:.1f} s",
        "m gave an empty answer; attempt 2, the next in 0.0 s",
    ]


def test_the_log_is_silent_until_someone_configures_it() -> None:
    program = "import logging, refinesynth.client.retry; logging.getLogger('refinesynth.backends').warning('x')"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, check=True, text=True)
    assert (done.stdout, done.stderr) == ("", "")


async def test_content_faults_are_counted_and_not_waited_for(waits: Waits) -> None:
    attempt, told = raising(EMPTY, OSError(), EMPTY)
    await retry(attempt, Backend(model="m"), sleep=waits)
    assert told == [0, 1, 1, 2]
    assert waits[0] == waits[2] == 0


async def test_what_is_excused_uses_up_no_retry_and_is_not_waited_for(waits: Waits) -> None:
    down = ConnectionRefusedError()
    attempt, told = raising(*[down] * 50, TimeoutError(), EMPTY, *[down] * 50)
    backend = Backend(model="m", retries=1, content_retries=1)

    def excuses(fault: Fault) -> bool:
        return fault.kind is FaultKind.UNREACHED

    assert await retry(attempt, backend, excuses=excuses, sleep=waits) == "answer"
    assert (len(told), len(waits)) == (103, 2)


async def test_nothing_excuses_what_no_retry_mends(waits: Waits) -> None:
    attempt, told = raising(REFUSED)
    with pytest.raises(GaveUp):
        await retry(attempt, Backend(model="m"), excuses=lambda _fault: True, sleep=waits)
    assert told == [0]


async def test_what_no_retry_mends_is_not_retried(waits: Waits) -> None:
    attempt, told = raising(REFUSED)
    with pytest.raises(GaveUp) as gave_up:
        await retry(attempt, Backend(model="m"), sleep=waits)
    assert (told, waits, gave_up.value.fault.step) == ([0], [], FaultStep.ABANDON)


async def test_no_wait_is_shorter_than_retry_after_nor_of_itself_longer_than_the_longest(waits: Waits) -> None:
    attempt, _ = raising(RateLimited("7"), RateLimited("300"), *[RateLimited()] * 6)
    await retry(attempt, Backend(model="m", longest_wait=20), patience=300, sleep=waits)
    assert 7 <= waits[0] <= 20
    assert waits[1] == 300
    assert all(0 <= wait <= 20 for wait in waits[2:])


async def test_a_server_that_asks_for_more_patience_than_there_is_is_given_up(waits: Waits) -> None:
    attempt, told = raising(RateLimited("301"))
    with pytest.raises(GaveUp):
        await retry(attempt, Backend(model="m"), patience=300, sleep=waits)
    assert (told, waits) == ([0], [])


async def test_waits_differ_so_that_many_do_not_come_back_at_once() -> None:
    seen: set[float] = set()
    for _ in range(8):
        waits = Waits()
        attempt, _ = raising(*[OSError()] * 5)
        await retry(attempt, Backend(model="m"), sleep=waits)
        seen.add(waits[-1])
    assert len(seen) > 1


async def test_the_original_exception_does_not_hang_on_the_last() -> None:
    attempt, _ = raising(TypeError("secret"))
    with pytest.raises(GaveUp) as gave_up:
        await retry(attempt, Backend(model="m"))
    assert gave_up.value.__context__ is None
    assert gave_up.value.__cause__ is None


async def test_what_already_says_what_it_means_passes_through(waits: Waits) -> None:
    attempt, told = raising(RunStopped("the budget is spent"))
    with pytest.raises(RunStopped, match="the budget is spent"):
        await retry(attempt, Backend(model="m"), sleep=waits)
    assert (told, waits) == ([0], [])


async def test_cancellation_passes_through() -> None:
    async def attempt(_content_faults: int) -> str:
        await anyio.sleep_forever()
        return "never"

    with anyio.move_on_after(0.01) as scope:
        await retry(attempt, Backend(model="m"))
    assert scope.cancelled_caught
