"""Where in a play mistakes stand: laws of the histogram."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from samples import dm, player

from refinesynth.trajectory import DungeonMasterTurn, PlayerTurn
from refinesynth.trajectory.turns import TENTHS, is_lopsided, mistakes_by_tenth, summed


def played(flags: list[bool]) -> list[PlayerTurn | DungeonMasterTurn]:
    return [turn for flag in flags for turn in (player("wait"), dm("Hm.", "logic" if flag else ""))]


@given(st.lists(st.booleans(), max_size=60))
def test_the_sum_is_the_number_of_mistakes(flags: list[bool]) -> None:
    assert sum(mistakes_by_tenth(played(flags))) == pytest.approx(sum(flags))


@given(st.integers(1, 60))
def test_where_every_turn_is_a_mistake_all_tenths_hold_as_many(length: int) -> None:
    assert mistakes_by_tenth(played([True] * length)) == pytest.approx([length / TENTHS] * TENTHS)


def test_a_turn_counts_for_the_part_of_the_play_that_it_covers() -> None:
    assert mistakes_by_tenth(played([True] + [False] * 7)) == pytest.approx([0.8, 0.2] + [0.0] * 8)
    assert mistakes_by_tenth(played([False] * 9 + [True])) == pytest.approx([0.0] * 9 + [1.0])


def test_a_histogram_is_lopsided_where_a_middle_tenth_holds_more_than_twice_another() -> None:
    assert not is_lopsided([0, *[40] * 7, 21, 0])
    assert is_lopsided([0, *[40] * 7, 19, 0])
    assert not is_lopsided([0, *[4] * 7, 1, 0]), "too few to say"
    assert summed([]) == (0.0,) * TENTHS
