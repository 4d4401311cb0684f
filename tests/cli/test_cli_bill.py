"""The bill of a run that goes on: what it will cost, and how far a budget reaches."""

from dataclasses import replace

import pytest
from cli_records import moment
from hypothesis import given
from hypothesis import strategies as st

from refinesynth.cli import display as bill
from refinesynth.client.budget.budget import Budget
from refinesynth.cost import Cost
from refinesynth.synthesis.progress import Progress, Surroundings
from refinesynth.trajectory import Usage


def around(usd: float | None, tokens: int = 0, budget: Budget | None = None) -> Surroundings:
    return Surroundings(paid=Cost(usage=Usage(requests=2, input_tokens=tokens), cost_usd=usd), budget=budget)


def test_the_forecast_is_what_was_paid_and_the_missing_ones_at_the_price_of_those_so_far() -> None:
    assert bill.cost(moment(25, 10, cost=0.5), around(0.7)) == "0.7000 USD, 0.0200 USD each, about 2.20 USD in all"


@pytest.mark.parametrize(
    ("progress", "paid", "text"),
    [
        (moment(25, 10, cost=None), None, "unknown"),
        (moment(25, 10, cost=0.0), 0.0, "0.00 USD"),
        (moment(0, 10, cost=0.3), 0.3, "0.3000 USD"),
    ],
)
def test_no_forecast_without_a_price_or_a_trajectory(progress: Progress, paid: float | None, text: str) -> None:
    assert bill.cost(progress, around(paid)) == text


def test_a_budget_that_suffices_changes_nothing_and_one_that_does_not_is_said() -> None:
    progress = moment(10, 10, cost=1.0)
    assert bill.cost(progress, around(1.0, budget=Budget(usd=20))).endswith(
        "of 20.00 USD, 0.1000 USD each, about 10.00 USD in all"
    )
    assert bill.cost(progress, around(1.0, budget=Budget(usd=5))).endswith("about 50 of 100 on this budget")
    progress = replace(progress, usage=Usage(input_tokens=1_000))
    assert bill.tokens(progress, around(1.0, 2_000, Budget(tokens=4_000))).endswith(
        "2 requests; 2.00k of 4.00k, about 30 of 100 on this budget"
    )


@given(st.integers(0, 200), st.none() | st.floats(0, 1e6), st.none() | st.floats(0, 1e6), st.floats(1e-6, 1e9))
def test_any_bill_can_be_written(accepted: int, cost: float | None, paid: float | None, limit: float) -> None:
    progress, now = moment(accepted, 1, cost=cost), around(paid, 10**9, Budget(usd=limit, tokens=limit))
    assert bill.cost(progress, now)
    assert bill.tokens(progress, now)
