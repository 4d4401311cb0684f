"""Rate limits as arithmetic: even spacing and debts."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from refinesynth.client.limiter.limits import TokenBuckets


def starts(buckets: TokenBuckets, *, tokens: float = 0.0, count: int = 100, until: float = float("inf")) -> list[float]:
    """When requests go that are all there from the beginning, one after the other, each as early as it may."""
    now, times = 0.0, list[float]()
    while len(times) < count:
        now = max(now, buckets.ready_at(tokens))
        if now > until:
            break
        buckets.charge(now, tokens)
        times.append(now)
    return times


def test_without_limits_every_request_goes_at_once() -> None:
    assert starts(TokenBuckets()) == [0.0] * 100


@given(st.floats(0.5, 100_000))
def test_requests_are_spaced_evenly_and_never_come_in_bursts(per_minute: float) -> None:
    times = starts(TokenBuckets(requests_per_minute=per_minute))
    gaps = [after - before for before, after in pairwise(times)]
    assert gaps == pytest.approx([60 / per_minute] * 99)


@given(st.floats(1_000, 1e7), st.floats(1, 20_000))
def test_tokens_never_pass_the_limit_by_more_than_their_window_and_one_request(
    per_minute: float, prompt: float
) -> None:
    each = prompt + 500
    times = starts(TokenBuckets(tokens_per_minute=per_minute), tokens=prompt)
    for index, time in enumerate(times):
        assert (index + 1) * each <= per_minute * (time + 6) / 60 + each + 1


def test_a_request_larger_than_the_window_still_gets_its_turn() -> None:
    buckets = TokenBuckets(tokens_per_minute=60_000)
    assert starts(buckets, tokens=100_000, count=2) == pytest.approx([0.0, 100.5])


def test_what_was_charged_too_much_is_given_back_and_too_little_is_owed() -> None:
    buckets = TokenBuckets(tokens_per_minute=60_000)
    charged = buckets.charge(0.0, 5_500)
    assert charged == 6_000
    assert buckets.ready_at(5_500) == 6.0
    buckets.settle(0.0, charged, billed=3_000)
    assert buckets.ready_at(5_500) == 3.0
    buckets.settle(0.0, 0.0, billed=4_000)
    assert buckets.ready_at(5_500) == 7.0


def test_answers_are_expected_to_be_as_long_as_they_were() -> None:
    buckets = TokenBuckets(tokens_per_minute=60_000)
    for _ in range(100):
        buckets.settle(0.0, 0.0, billed=0.0, answer=80)
    assert buckets.charge(0.0, 20) == pytest.approx(100, abs=0.1)
