"""Why episodes gave none: alike reasons are one, and there are never many."""

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from refinesynth.run.stats import count_reason


def counted(*reasons: str) -> Counter[str]:
    counts: Counter[str] = Counter()
    for reason in reasons:
        count_reason(counts, reason)
    return counts


def test_reasons_that_differ_in_names_and_numbers_are_counted_under_the_first() -> None:
    first = "no draft was accepted in 4 attempts; the last: ValidActions: 'take pot' is none"
    assert counted(first, first.replace("4", "3"), first.replace("take pot", "drop pan"), "other") == {
        first: 3,
        "other": 1,
    }


@given(st.lists(st.text(max_size=400)))
def test_what_is_kept_is_bounded_and_counts_no_episode_twice(reasons: list[str]) -> None:
    counts = counted(*reasons)
    assert len(counts) <= 16
    assert all(len(reason) <= 300 for reason in counts)
    assert counts.total() <= len(reasons)


@given(st.lists(st.text("abc", min_size=3, max_size=6)))
def test_a_reason_of_most_episodes_is_found_among_ever_new_ones(others: list[str]) -> None:
    mixed = [reason for other in others for reason in ("the key is refused", other, "the key is refused")]
    if mixed:
        assert counted(*mixed).most_common(1)[0][0] == "the key is refused"
