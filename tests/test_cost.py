"""What is shared out adds up again: not a token is lost or made."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from refinesynth.outcome import Cost
from refinesynth.trajectory import Usage

counts = st.integers(0, 10**9)
usages = st.builds(Usage, requests=counts, input_tokens=counts, cached_tokens=counts, output_tokens=counts)
amounts = st.builds(Cost, usage=usages, cost_usd=st.none() | st.floats(0, 10**6))


@given(amounts, st.integers(1, 9))
def test_equal_parts_add_up(spent: Cost, parts: int) -> None:
    shares = spent.divided(parts)
    whole = sum(shares, Cost())
    assert len(shares) == parts
    assert whole.usage == spent.usage
    assert whole.cost_usd == (None if spent.cost_usd is None else pytest.approx(spent.cost_usd, abs=1e-9))


@given(amounts, st.integers(0, 9), st.integers(1, 9))
def test_a_share_and_the_rest_add_up(spent: Cost, part: int, of: int) -> None:
    share = spent.share(min(part, of), of)
    again = share + (spent - share)
    assert again.usage == spent.usage
    assert all(count >= 0 for _, count in (spent - share).usage)
    if spent.cost_usd is not None:
        assert again.cost_usd == pytest.approx(spent.cost_usd, abs=1e-9)


@given(amounts, amounts)
def test_one_unknown_price_makes_the_sum_unknown(one: Cost, other: Cost) -> None:
    assert ((one + other).cost_usd is None) == (one.cost_usd is None or other.cost_usd is None)
    assert (one + other).tokens == one.tokens + other.tokens


def test_nothing_is_nothing_and_rounding_is_no_money() -> None:
    assert Cost().divided(0) == []
    assert (Cost(cost_usd=0.1) + Cost(cost_usd=0.2) - Cost(cost_usd=0.3)).cost_usd == 0.0
    assert Cost.from_json(Cost(cost_usd=None).to_json()) == Cost(cost_usd=None)
