"""Several patterns at once: the same answers as one by one, and none that is wrong where memory runs out."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from refinesynth.actions import patterns
from refinesynth.actions.patterns import Pattern, PatternSet

PATTERNS = tuple(
    map(
        Pattern, ("^go to (.+)$", "(?i)go (.+?)", "", "(?s).*", r"take (?P<item>\w+)", "a|b|", r"\C+", "é+", r"(?m)^x$")
    )
)
TEXTS = st.lists(st.sampled_from(["go", " ", "to", "hall", "take", "é", "a", "x", "\n", "GO"]), max_size=5).map("".join)


@given(st.lists(st.sampled_from(PATTERNS), max_size=6), TEXTS)
def test_at_once_or_one_by_one(chosen: list[Pattern], text: str) -> None:
    together = PatternSet(chosen)
    expected = [number for number, pattern in enumerate(chosen) if pattern.fullmatch(text.encode()) is not None]
    assert sorted(together.match_together(text.encode())) == list(together.match_each(text.encode())) == expected


def test_an_automaton_that_does_not_fit_finds_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(patterns, "_SET_MEMORY", 2_000)
    together = PatternSet([*PATTERNS, Pattern("(a|b)*" * 40)])
    assert list(together.match_together(b"go to hall")) == []
    assert list(together.match_each(b"go to hall")) == [0, 1, 3, 6]
