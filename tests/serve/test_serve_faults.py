"""Faults and durations as a command line gives them."""

import contextlib
import re
from collections import Counter
from random import Random
from typing import Any, get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from refinesynth.cli.serve import Fail
from refinesynth.errors import InputError
from refinesynth.serve import NAMES, HttpFaults, parse_duration, parse_faults


def test_the_documented_spelling_is_read() -> None:
    faults = parse_faults("429=0.05,500=0.01, hang = 0.001 ,GARBAGE=0.01,")
    assert faults == HttpFaults(statuses={429: 0.05, 500: 0.01}, hang=0.001, garbage=0.01)
    assert parse_faults("  ") == HttpFaults()


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("429", "equals sign"),
        ("429=lots", "no number"),
        ("429=", "no number"),
        ("hag=0.1", "did you mean hang"),
        ("midle=0.1", "did you mean middle"),
        ("statuses=0.1", "no kind of fault"),
        ("teapot=0.1", "no kind of fault"),
        ("42=0.1", "no kind of fault"),
        ("200=0.1", "400 to 599"),
        ("429=1.5", "between 0 and 1"),
        ("429=-0.5", "between 0 and 1"),
        ("hang=nan", "between 0 and 1"),
        ("429=0.6,500=0.6", "add up to 1.2"),
        ("429=0.1,429=0.1", "twice"),
        ("hang=0.1,Hang=0.1", "twice"),
    ],
)
def test_what_cannot_be_is_explained(text: str, says: str) -> None:
    with pytest.raises(InputError, match=says):
        parse_faults(text)


@pytest.mark.parametrize("name", NAMES)
def test_every_named_fault_is_read_drawn_and_told_in_the_help(name: str) -> None:
    faults = parse_faults(f"{name}=1")
    assert faults == HttpFaults.model_validate({name: 1.0})
    assert faults.draw(Random(1)) == name
    option: Any = get_args(Fail)[1]
    assert re.search(rf"\b{name}\b", option.help)


@given(
    st.text(max_size=30)
    | st.lists(st.sampled_from(("429", "=", ",", ".", "0", "1", "-", *NAMES)), max_size=8).map("".join)
)
def test_any_text_is_faults_or_an_input_error(text: str) -> None:
    faults = None
    with contextlib.suppress(InputError):
        faults = parse_faults(text)
    total = 0.0 if faults is None else sum(faults.statuses.values()) + sum(getattr(faults, name) for name in NAMES)
    assert total <= 1 + 1e-9


def test_faults_come_at_their_rates() -> None:
    faults = HttpFaults(statuses={429: 0.2, 503: 0.1}, hang=0.05, garbage=0.15)
    random = Random(7)
    met = Counter(faults.draw(random) for _ in range(20_000))
    shares = {fault: count / 20_000 for fault, count in met.items()}
    expected = {429: 0.2, 503: 0.1, "hang": 0.05, "garbage": 0.15, None: 0.5}
    assert shares.keys() == expected.keys()
    assert all(abs(shares[fault] - share) < 0.02 for fault, share in expected.items())


@given(st.integers(0, 2**32), st.floats(0, 1))
def test_certain_faults_always_come_and_impossible_ones_never(seed: int, share: float) -> None:
    assert HttpFaults(statuses={500: share}, garbage=1 - share).draw(Random(seed)) is not None
    assert HttpFaults().draw(Random(seed)) is None


def test_a_draw_takes_one_number_whatever_the_shares() -> None:
    one, other = Random(3), Random(3)
    HttpFaults().draw(one)
    HttpFaults(statuses={400: 0.1, 500: 0.4}, hang=0.5).draw(other)
    assert one.random() == other.random()


def test_unknown_fields_are_refused() -> None:
    with pytest.raises(ValidationError):
        HttpFaults.model_validate({"slow": 0.5})


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("200ms", 0.2),
        ("1.5s", 1.5),
        ("2m", 120.0),
        ("0", 0.0),
        (" 0.0 ", 0.0),
        ("0s", 0.0),
        ("3 S", 3.0),
        ("60m", 3_600.0),
    ],
)
def test_durations_are_read(text: str, seconds: float) -> None:
    assert parse_duration(text) == pytest.approx(seconds)


@pytest.mark.parametrize(
    "text", ["", "200", "-1s", "1h", "ms", "1.5.2s", "61m", "9" * 400 + "s", "\uff11s", "1s2s", "nan s"]
)
def test_other_durations_are_input_errors(text: str) -> None:
    with pytest.raises(InputError, match=r"duration|too long"):
        parse_duration(text)
