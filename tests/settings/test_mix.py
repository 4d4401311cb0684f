"""The mix of features: shares are met in any stretch of a run, and depend on nothing but index and seed."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from refinesynth.errors import ConfigurationError
from refinesynth.settings.grounding import FEATURES, Mix, choice_of

SHARES = st.floats(0, 1, allow_nan=False)


@given(
    shares=st.fixed_dictionaries(dict.fromkeys(FEATURES, SHARES)),
    seed=st.integers(0, 2**40),
    start=st.integers(0, 10**9),
    count=st.integers(1, 400),
)
def test_any_stretch_of_a_run_meets_each_share(shares: dict[str, float], seed: int, start: int, count: int) -> None:
    mix = Mix(**shares)
    wanted = [mix.wanted(index, seed) for index in range(start, start + count)]
    for feature, share in shares.items():
        asked = sum(feature in features for features in wanted)
        assert abs(asked - share * count) <= 8


@given(index=st.integers(0, 10**12), seed=st.integers())
def test_the_extremes_are_exact(index: int, seed: int) -> None:
    assert Mix(distractors=0, irreversible=0, hidden=0, preconditions=0).wanted(index, seed) == ()
    assert Mix(distractors=1, irreversible=1, hidden=1, preconditions=1).wanted(index, seed) == FEATURES


def test_features_and_seeds_are_independent() -> None:
    half = Mix(distractors=0.5, irreversible=0.5, hidden=0.5, preconditions=0.5)
    seen = [half.wanted(index, 7) for index in range(1_600)]
    for features in set(seen):
        assert 60 <= seen.count(features) <= 145, "each of the sixteen combinations comes about as often as the others"
    assert len(set(seen)) == 16
    assert seen[:50] != [half.wanted(index, 8) for index in range(50)]
    assert seen == [half.wanted(index, 7) for index in range(1_600)]


def test_choices_come_up_equally_often_and_do_not_go_together() -> None:
    drawn = [tuple(choice_of(6, root=root, index=index, seed=7) for root in (11, 13)) for index in range(1_440)]
    for pair in set(drawn):
        assert 25 <= drawn.count(pair) <= 55, "each of the thirty-six pairs comes about as often as the others"
    assert len(set(drawn)) == 36
    firsts = [first for first, _ in drawn]
    assert all(38 <= firsts[begin : begin + 240].count(one) <= 42 for begin in (0, 700, 1_200) for one in range(6))
    assert firsts[:50] != [choice_of(6, root=11, index=index, seed=8) for index in range(50)]


def test_a_mix_is_read_from_text() -> None:
    assert Mix.parse("hidden=0.5, irreversible=0.2") == Mix(hidden=0.5, irreversible=0.2)
    assert Mix.parse("") == Mix()
    assert Mix.parse(",".join(f"{name}={getattr(Mix(), name)}" for name in FEATURES)) == Mix()


@pytest.mark.parametrize(
    "text", ["hidden", "hidden=", "secret=0.5", "hidden=1.5", "hidden=-1", "hidden=nan", "hidden=1,hidden=0"]
)
def test_what_is_no_mix_is_refused_with_what_was_expected(text: str) -> None:
    with pytest.raises(ConfigurationError, match=re.escape("expected feature=share with a share from 0 to 1")):
        Mix.parse(text)
