"""Intervals against closed forms, tests against enumeration."""

import math
from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from refinesynth.evaluate.comparing import comparison
from refinesynth.evaluate.comparing.comparison import Floats, estimate, mean_and_deviation, sign_test


def of_signs(differences: Floats | list[float]) -> tuple[float, str]:
    found = sign_test([(1.0, np.array(differences))])
    return found.p, found.test


def test_the_interval_is_that_of_the_central_limit_theorem() -> None:
    values = np.random.default_rng(1).normal(size=400)
    found = estimate([(1.0, values)])
    error = values.std() / math.sqrt(len(values))
    assert found.low is not None
    assert found.high is not None
    assert found.mean == pytest.approx(values.mean())
    assert found.low == pytest.approx(values.mean() - 1.96 * error, abs=0.05 * error)
    assert found.high == pytest.approx(values.mean() + 1.96 * error, abs=0.05 * error)


def test_a_weighted_interval_adds_the_variances_of_its_tasks() -> None:
    generator = np.random.default_rng(2)
    one, other = generator.normal(size=300), 2 * generator.normal(size=200)
    found = estimate([(0.6, one), (0.4, other)])
    error = math.hypot(0.6 * one.std() / math.sqrt(300), 0.4 * other.std() / math.sqrt(200))
    assert found.mean == pytest.approx(0.6 * one.mean() + 0.4 * other.mean())
    assert found.low is not None
    assert found.low == pytest.approx(found.mean - 1.96 * error, abs=0.05 * error)


@pytest.mark.parametrize(("instances", "least"), [(112, 0.925), (20, 0.89)])
def test_about_95_of_100_intervals_hold_the_truth(
    instances: int, least: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(comparison, "_RESAMPLES", 1_000)
    generator = np.random.default_rng(3)
    covered = 0
    for _ in range(600):
        found = estimate([(1.0, generator.beta(1.0, 1.0, size=instances))])
        assert found.low is not None
        assert found.high is not None
        covered += found.low <= 0.5 <= found.high
    # 600 draws of a rate of 0.95 have a standard deviation of 0.9 points.
    assert least <= covered / 600 <= 0.975


def test_where_all_give_the_same_there_is_no_interval() -> None:
    assert estimate([(1.0, np.zeros(20))]) == comparison.Estimate(0.0, None, None)


def enumerated(differences: list[float]) -> float:
    """All signs, one by one."""
    observed = abs(math.fsum(differences))
    sums = [
        abs(math.fsum(sign * one for sign, one in zip(signs, differences, strict=True)))
        for signs in product((1, -1), repeat=len(differences))
    ]
    return sum(total >= observed - 1e-9 for total in sums) / len(sums)


@given(st.lists(st.integers(-12, 12), min_size=1, max_size=9))
def test_the_exact_test_is_the_enumeration_of_all_signs(twelfths: list[int]) -> None:
    differences = [one / 12 for one in twelfths]
    assert of_signs(differences)[0] == pytest.approx(enumerated(differences))


@given(st.integers(0, 9), st.integers(0, 9), st.integers(1, 30))
def test_of_single_epochs_it_is_mcnemars_test(better: int, worse: int, same: int) -> None:
    p, test = of_signs([1.0] * better + [-1.0] * worse + [0.0] * same)
    n, k = better + worse, min(better, worse)
    closed = min(1.0, 2 * sum(math.comb(n, one) for one in range(k + 1)) / 2**n) if n else 1.0
    assert p == pytest.approx(closed)
    assert test == ("McNemar, exact" if n else "no differences")


def test_of_many_instances_hundreds_count_exactly() -> None:
    assert of_signs([1.0] * 2_000 + [-1.0] * 10)[0] < 1e-100


def test_drawn_signs_agree_with_all_signs(monkeypatch: pytest.MonkeyPatch) -> None:
    differences = np.array([0.1, 0.5, -0.2, 0.7, 0.3, -0.4, 0.9, 0.25, 0.15, -0.05, 0.35, 0.6])
    exact, test = of_signs(differences)
    assert test == "sign flips, exact"
    monkeypatch.setattr(comparison, "_MAX_ENUMERATED", 5)
    monkeypatch.setattr(comparison, "_MAX_DRAWS", 1_000)
    drawn, test = of_signs(differences)
    assert test == "sign flips, drawn"
    assert drawn == pytest.approx(exact, abs=4 * math.sqrt(exact / 20_000))


def test_weights_of_tasks_weigh_in_the_test() -> None:
    parts = [(0.9, np.array([0.5, 0.5, 1.0])), (0.1, np.array([-1.0, -1.0]))]
    assert estimate(parts).mean == pytest.approx(0.9 * 2 / 3 - 0.1)
    assert sign_test(parts).p == pytest.approx(enumerated([0.15, 0.15, 0.3, -0.05, -0.05]))


def test_both_standard_deviations() -> None:
    assert mean_and_deviation([1.0, 3.0]) == comparison.MeanAndDeviation(2.0, 1.0, math.sqrt(2))
    assert mean_and_deviation([1.0]) == comparison.MeanAndDeviation(1.0, 0.0, None)
