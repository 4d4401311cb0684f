"""Rate limits as arithmetic: even spacing, debts, and what a server says is left."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from refinesynth.client.limiter.rate_limits import Quota, RateHeaders, TokenBuckets


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


def test_pauses_are_not_made_up_for() -> None:
    buckets = TokenBuckets(requests_per_minute=60)
    starts(buckets, count=1)
    buckets.charge(100.0, 0)
    assert buckets.ready_at(0) == 101.0


@given(st.floats(1_000, 1e7), st.floats(1, 20_000))
def test_tokens_never_pass_the_limit_by_more_than_their_window_and_one_request(
    per_minute: float, prompt: float
) -> None:
    each = prompt + 500
    times = starts(TokenBuckets(tokens_per_minute=per_minute), tokens=prompt)
    for index, time in enumerate(times):
        assert (index + 1) * each <= per_minute * (time + 6) / 60 + each + 1


def test_tokens_come_at_their_rate() -> None:
    times = starts(TokenBuckets(tokens_per_minute=60_000), tokens=500, count=101)
    assert times[-1] == pytest.approx(100 - 5)


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


def test_what_the_server_says_is_left_is_spread_over_the_time_until_the_reset() -> None:
    buckets = TokenBuckets()
    buckets.learn(0.0, RateHeaders(requests=Quota(remaining=10, reset=20)))
    times = starts(buckets, count=10)
    assert times[:3] == pytest.approx([0, 2, 4])
    assert max(times) <= 20


def test_what_is_plentiful_slows_nothing_down() -> None:
    buckets = TokenBuckets()
    buckets.learn(0.0, RateHeaders(requests=Quota(9_999, 0.006), tokens=Quota(2_000_000, 1)))
    assert starts(buckets, tokens=100) == [0.0] * 100


def test_what_is_used_up_waits_for_the_reset_but_not_for_ever() -> None:
    buckets = TokenBuckets(longest_wait=60)
    buckets.learn(0.0, RateHeaders(requests=Quota(0, 7)))
    assert buckets.ready_at(0) == 7.0
    buckets.learn(0.0, RateHeaders(tokens=Quota(0, 86_400)))
    assert buckets.ready_at(0) == 60.0


def test_after_a_request_without_headers_the_next_one_waits_no_longer() -> None:
    buckets = TokenBuckets(longest_wait=60)
    buckets.learn(0.0, RateHeaders(requests=Quota(0, 86_400), tokens=Quota(0, 86_400)))
    assert starts(buckets, count=3) == [60.0, 120.0, 180.0]


def test_the_last_word_of_the_server_counts() -> None:
    buckets = TokenBuckets()
    buckets.learn(0.0, RateHeaders(requests=Quota(0, 50)))
    buckets.learn(1.0, RateHeaders(requests=Quota(1_000, 1)))
    assert buckets.ready_at(0) <= 2.0


def test_after_the_reset_nothing_is_known_any_more() -> None:
    buckets = TokenBuckets()
    buckets.learn(0.0, RateHeaders(requests=Quota(1, 10)))
    buckets.charge(11.0, 0)
    assert buckets.ready_at(0) <= 11.0


def test_a_bucket_that_refills_is_used_at_its_rate() -> None:
    # 500 a minute, refilled steadily, as OpenAI's are: what is spent in the long run is what comes in.
    buckets, level, now, count = TokenBuckets(), 500.0, 0.0, 0
    while now < 600:
        now = max(now + 0.001, buckets.ready_at(0))
        level = min(500.0, 500 * now / 60 + 500 - count)
        assert level >= 1, "it ran dry"
        count += 1
        buckets.charge(now, 0)
        left = level - 1
        buckets.learn(now, RateHeaders(requests=Quota(int(left), (500 - left) * 60 / 500)))
    assert 0.95 * 5_000 <= count <= 5_500
