"""How many at once: laws of the arithmetic alone, without noise and without a clock."""

from collections import deque
from collections.abc import Callable
from math import inf
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from refinesynth.client.limiter.limits import ConcurrencyLimit

Server = Callable[[int], float]
"""Seconds that an answer of 100 tokens takes with so many in flight."""


def queueing(capacity: int) -> Server:
    """Works on so many at once and queues the rest."""
    return lambda in_flight: max(1.0, in_flight / capacity)


class Traffic:
    """Requests against a server that answers in the order of their coming; as many as the limit and the demand
    allow."""

    def __init__(self, limit: ConcurrencyLimit) -> None:
        self.limit = limit
        self.under_way = deque[int]()

    def answers(self, server: Server, count: int, *, demand: float = inf, kind: str = "any") -> list[int]:
        """The limit after each of so many answers."""
        seen = list[int]()
        for _ in range(count):
            self.fill(demand)
            in_flight = len(self.under_way)
            number = self.under_way.popleft()
            self.limit.answered(number, seconds=server(in_flight), tokens=100, kind=kind, in_flight=in_flight)
            self.limit.ended(number)
            seen.append(self.limit.current)
        return seen

    def fill(self, demand: float = inf) -> None:
        while len(self.under_way) < min(self.limit.current, demand):
            self.under_way.append(self.limit.begin())

    def fault(self, *, at_once: bool = False) -> None:
        """The oldest request fails; or the newest is refused at once."""
        self.fill()
        number = self.under_way.pop() if at_once else self.under_way.popleft()
        self.limit.failed(number)
        self.limit.ended(number)


def middle(numbers: list[int]) -> int:
    return sorted(numbers)[len(numbers) // 2]


def even(_in_flight: int) -> float:
    """A server that takes whatever comes."""
    return 1.0


@pytest.mark.long
@settings(max_examples=15)
@given(st.integers(9, 300))
def test_a_server_that_queues_is_left_between_nearly_full_and_a_seventh_too_full(capacity: int) -> None:
    traffic, round_trip = Traffic(ConcurrencyLimit()), max(capacity, 64)
    traffic.answers(queueing(capacity), 100 * round_trip)
    late = traffic.answers(queueing(capacity), 50 * round_trip)
    # One more for whole numbers; and while another limit is tried, a fifth more or less.
    assert 0.84 * capacity - 1 <= middle(late) <= 1.14 * capacity + 1
    assert 0.84 * capacity / 1.2 - 2 <= min(late)
    assert max(late) <= 1.2 * 1.14 * capacity + 2


def test_a_server_that_shrinks_is_followed() -> None:
    traffic = Traffic(ConcurrencyLimit())
    traffic.answers(queueing(200), 60_000)
    late = traffic.answers(queueing(50), 30_000)[-10_000:]
    assert 0.75 * 50 <= middle(late) <= 1.3 * 50


def test_a_server_that_gets_slower_for_all_alike_is_not_taken_for_full() -> None:
    traffic = Traffic(ConcurrencyLimit(ceiling=400))
    traffic.answers(even, 20_000)
    late = traffic.answers(lambda _: 3.0, 40_000)[-20_000:]
    assert middle(late) >= 0.75 * 400


def test_a_mix_that_changes_is_no_change_of_the_server() -> None:
    limit, seen = ConcurrencyLimit(ceiling=64), list[int]()
    for index in range(40_000):
        # Short answers are slow per token.
        kind, seconds, tokens = ("short", 1.0, 10) if (index // 1_000) % 2 else ("long", 10.0, 1_000)
        number = limit.begin()
        limit.answered(number, seconds=seconds, tokens=tokens, kind=kind, in_flight=limit.current)
        limit.ended(number)
        seen.append(limit.current)
    assert min(seen[1_000:]) >= 51


def test_without_demand_nothing_is_learnt_and_nothing_grows() -> None:
    assert max(Traffic(ConcurrencyLimit(start=16)).answers(even, 20_000, demand=16)) <= 32


def test_requests_that_are_cancelled_do_not_stop_a_round() -> None:
    traffic = Traffic(ConcurrencyLimit(start=16, ceiling=200))
    for _ in range(2_000):
        traffic.answers(even, 2)
        traffic.limit.ended(traffic.under_way.popleft())
    assert traffic.limit.current >= 160


@given(st.lists(st.sampled_from(["answer", "fault", "restart"]), max_size=400), st.integers(1, 50))
def test_it_stays_between_one_and_its_ceiling(events: list[str], ceiling: int) -> None:
    traffic = Traffic(ConcurrencyLimit(ceiling=ceiling))
    for event in events:
        if event == "answer":
            traffic.answers(queueing(10), 3)
        elif event == "fault":
            traffic.fault()
        else:
            traffic.limit.restart()
        assert 1 <= traffic.limit.current <= ceiling


@settings(max_examples=8)
@given(st.integers(0, 500), st.floats(0, 0.2))
def test_faults_that_come_whatever_the_load_do_not_keep_it_from_growing(seed: int, share: float) -> None:
    traffic, random, seen = Traffic(ConcurrencyLimit(ceiling=256)), Random(seed), list[int]()
    for _ in range(20_000):
        if random.random() < share:
            traffic.fault()
        else:
            seen += traffic.answers(even, 1)
    assert sum(seen) / len(seen) >= 0.7 * 256


@pytest.mark.long
@settings(max_examples=8)
@given(st.integers(16, 200), st.sampled_from([0, 0.03, 0.15]))
def test_a_server_that_refuses_is_kept_near_its_limit_with_bad_luck_or_without(most: int, luck: float) -> None:
    traffic, random, refusals, seen = Traffic(ConcurrencyLimit()), Random(most), 0, list[int]()
    for _ in range(200 * max(most, 64)):
        traffic.fill()
        if len(traffic.under_way) > most:
            refusals += 1
            traffic.fault(at_once=True)
        elif random.random() < luck:
            traffic.fault()
        seen += traffic.answers(even, 1)
    late = seen[len(seen) // 2 :]
    assert 0.85 * most - 1 <= middle(late) <= most
    assert sum(late) / len(late) >= 0.85 * most - 1
    assert refusals <= (0.04 if luck > 0.1 else 0.017) * len(seen)


def test_a_fault_in_the_middle_of_a_trial_that_nothing_was_begun_in_is_one_fault() -> None:
    traffic = Traffic(ConcurrencyLimit(start=16))
    traffic.answers(even, 16)
    traffic.fill()
    assert traffic.limit.current == 32
    # None of a whole round says how it ended, so the next one begins with what is in flight.
    for _ in range(32 + 15):
        traffic.under_way.append(traffic.limit.begin())
        traffic.limit.ended(traffic.under_way.popleft())
    traffic.limit.failed(traffic.under_way[0])
    assert traffic.limit.current == 32
