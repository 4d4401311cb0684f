"""Rate and time left of a run."""

import pytest
from cli_records import moment
from hypothesis import given
from hypothesis import strategies as st

from refinesynth.cli.display import Pace


def test_nothing_seen_promises_nothing() -> None:
    pace = Pace()
    assert pace.rate(5) == 0
    assert pace.remaining(5) is None


def test_a_steady_run() -> None:
    pace = Pace()
    for second in range(11):
        pace.observe(moment(2 * second, second))
    assert pace.rate(10) == pytest.approx(2)
    assert pace.remaining(10) == pytest.approx(40)


def test_a_stall_lowers_the_rate() -> None:
    pace = Pace()
    pace.observe(moment(20, 10))
    assert pace.rate(40) == pytest.approx(0.5)


def test_only_the_last_minute_counts() -> None:
    pace = Pace()
    pace.observe(moment(1000, 1, n=10_000))
    for second in range(2, 600):
        pace.observe(moment(1000 + second, second, n=10_000))
    assert pace.rate(599) == pytest.approx(1, rel=0.02)


def test_a_resumed_run_does_not_count_what_was_there() -> None:
    pace = Pace()
    pace.observe(moment(90, 0, before=90))
    pace.observe(moment(95, 10, before=90))
    assert pace.rate(10) == pytest.approx(0.5)
    assert pace.remaining(10) == pytest.approx(10)


@given(st.lists(st.tuples(st.integers(0, 5), st.floats(0, 30)), max_size=100), st.floats(0, 1000))
def test_neither_rate_nor_time_left_is_ever_negative(steps: list[tuple[int, float]], wait: float) -> None:
    pace, accepted, elapsed = Pace(), 0, 0.0
    for more, seconds in steps:
        accepted, elapsed = accepted + more, elapsed + seconds
        pace.observe(moment(accepted, elapsed))
    assert pace.rate(elapsed + wait) >= 0
    assert (pace.remaining(elapsed + wait) or 0) >= 0
