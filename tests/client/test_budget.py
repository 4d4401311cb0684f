"""Budgets as people write them."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from refinesynth.client.budget.budget import Budget
from refinesynth.errors import InputError


@pytest.mark.parametrize(
    ("text", "usd", "tokens"),
    [
        ("50usd", 50, None),
        (".5 USD", 0.5, None),
        ("$50", 50, None),
        ("20Mtok", None, 20e6),
        ("800ktok", None, 800e3),
        ("1e6 tok", None, 1e6),
        ("1.5Gtok", None, 1.5e9),
        ("50usd,20Mtok", 50, 20e6),
        (" 20Mtok , $50 ", 50, 20e6),
    ],
)
def test_a_budget_is_read_as_it_is_written(text: str, usd: float | None, tokens: float | None) -> None:
    assert Budget.parse(text) == Budget(usd=usd, tokens=tokens)


@pytest.mark.parametrize(
    "text",
    [
        "", "50", "usd", "fifty usd", "50eur", "-5usd", "0usd", "0.0 USD", "nan usd", "inf usd", "1e999usd", "1__0usd",
        "5usd,5usd", "5usd,", "20M", "20Mtok,1ktok", "5usd 20Mtok", "50usdtok", "$", "$5usd",
    ],
)  # fmt: skip
def test_anything_else_is_refused_with_examples(text: str) -> None:
    with pytest.raises(InputError, match="50usd, 20Mtok"):
        Budget.parse(text)


@given(st.text(max_size=30))
def test_any_text_is_a_budget_or_an_input_error(text: str) -> None:
    try:
        budget = Budget.parse(text)
    except InputError:
        return
    assert budget.usd is None or 0 < budget.usd < math.inf
    assert budget.tokens is None or 0 < budget.tokens < math.inf


@pytest.mark.parametrize("value", [0, -1, math.nan, math.inf, True, "5"])
def test_a_limit_is_a_number_above_zero(value: float) -> None:
    for limits in ({"usd": value}, {"tokens": value}):
        with pytest.raises(InputError, match="above 0"):
            Budget(**limits)


def test_a_budget_reads_as_a_sentence_has_it() -> None:
    assert str(Budget(usd=0.5)) == "0.5 USD"
    assert str(Budget(usd=1234.5, tokens=2e7)) == "1,234.50 USD and 20,000,000 tokens"
    assert str(Budget()) == "no limit"
