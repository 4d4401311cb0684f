"""The breaker: when a backend counts as down, and how it is tried."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from limited_servers import BROKEN, DOWN, LATE

from refinesynth.client.classify_error import ClassifiedError
from refinesynth.client.limiter.limits import CircuitBreaker


def longest(_least: float, most: float) -> float:
    return most


def closed() -> CircuitBreaker:
    return CircuitBreaker(longest_wait=60, outage=600, jitter=longest)


def fail(breaker: CircuitBreaker, *faults: ClassifiedError, now: float = 0.0) -> None:
    for index, fault in enumerate(faults):
        breaker.failed(fault, episode=index, now=now)


@pytest.mark.parametrize("fault", [DOWN, BROKEN, LATE])
def test_five_faults_in_a_row_among_several_episodes_open_it(fault: ClassifiedError) -> None:
    breaker = closed()
    fail(breaker, *[fault] * 4)
    assert breaker.down_since is None
    assert breaker.failed(fault, episode=9, now=3.0)
    assert (breaker.is_trying, breaker.down_since, breaker.gives_up_at) == (False, 3.0, 603.0)


@given(st.lists(st.sampled_from([DOWN, BROKEN, LATE, None]), max_size=60))
def test_no_five_in_a_row_no_outage(events: list[ClassifiedError | None]) -> None:
    breaker, row = closed(), 0
    for index, fault in enumerate(events):
        row = 0 if fault is None else row + 1
        if row >= 5:
            return
        if fault is None:
            assert not breaker.answered()
        else:
            assert not breaker.failed(fault, episode=index, now=0.0)
        assert breaker.down_since is None


def test_one_episode_alone_opens_it_only_where_no_prompt_can_be_at_fault() -> None:
    for fault, down in ((BROKEN, False), (LATE, False), (DOWN, True)):
        breaker = closed()
        for _ in range(20):
            breaker.failed(fault, episode=1, now=0.0)
        assert (breaker.down_since is not None) == down


def test_between_trials_it_waits_twice_as_long_each_time_up_to_the_longest_wait() -> None:
    breaker, now, waits = closed(), 0.0, list[float]()
    fail(breaker, *[DOWN] * 5)
    for _ in range(9):
        waits.append(breaker.next_trial - now)
        now = breaker.next_trial
        assert not breaker.may_try(now - 0.001)
        assert breaker.may_try(now)
        breaker.is_trying = True
        assert not breaker.may_try(now + 999)
        assert not breaker.failed(DOWN, episode=1, now=now, is_trial=True)
    assert waits == [1, 2, 4, 8, 16, 32, 60, 60, 60]


def test_those_that_were_under_way_when_it_opened_change_nothing() -> None:
    breaker = closed()
    fail(breaker, *[DOWN] * 5)
    expected = breaker.next_trial
    fail(breaker, *[DOWN] * 50, now=0.5)
    assert breaker.next_trial == expected
    breaker.is_trying = True
    fail(breaker, DOWN, now=0.5)
    assert breaker.is_trying
