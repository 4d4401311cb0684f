"""Narrated play: whole trajectories in one answer, continued from any verified prefix."""

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st
from rehearsal_stage import PERFECT, SEEDS, STRANGE, SUCCESS, codes, tell, write

from refinesynth import rules
from refinesynth.trajectory import Draft, DungeonMasterTurn, MistakeKind, PlayerTurn, flagged_turns


@given(SEEDS, st.integers(0, 5))
def test_a_narrated_trajectory_is_accepted_with_as_many_mistakes_as_asked_for(seed: int, minimum: int) -> None:
    script = write(PERFECT, "somebody", seed=seed)
    turns = tell(PERFECT, script, minimum=minimum, seed=seed)
    verdict = rules.verify(Draft(script=script, turns=turns), rules.strict(min_refinements=minimum))
    assert codes(verdict.violations) == []
    assert len(flagged_turns(turns)) == minimum


@given(SEEDS, st.integers(0, 99))
def test_it_goes_on_from_any_verified_prefix(seed: int, share: int) -> None:
    script = write(PERFECT, "somebody", seed=seed)
    whole = tell(PERFECT, script, seed=seed)
    kept = whole[: len(whole) * share // 100]
    rest = tell(PERFECT, script, kept, seed=seed + 1)
    last = rules.verify(Draft(script=script, turns=(*kept, *rest)), rules.strict())
    assert codes(last.violations) == []


def test_the_kinds_of_mistakes_are_mixed() -> None:
    for seed in range(5):
        turns = tell(PERFECT, write(PERFECT, "somebody", seed=seed), minimum=3, seed=seed)
        made = Counter(turn.mistake_kind for turn in turns if isinstance(turn, DungeonMasterTurn) and turn.flagged)
        assert made[MistakeKind.PARAMETER] == 1
        assert made.total() == len(MistakeKind)


def test_the_first_turn_is_no_mistake() -> None:
    for seed in range(10):
        turns = tell(PERFECT, write(PERFECT, "somebody", seed=seed), minimum=4, seed=seed)
        assert isinstance(turns[1], DungeonMasterTurn)
        assert not turns[1].flagged


def test_a_finished_prefix_is_brought_to_an_end() -> None:
    script = write(PERFECT, "somebody")
    whole = tell(PERFECT, script, minimum=2)
    mute = whole[-1].model_copy(update={"observation": "It is done."})
    rest = tell(PERFECT, script, (*whole[:-1], mute), minimum=3)
    assert rules.verify(Draft(script=script, turns=(*whole[:-1], mute, *rest)), rules.strict(3)).accepted
    answered = tell(PERFECT, script, whole[:-1])
    assert len(answered) == 1
    assert isinstance(answered[0], DungeonMasterTurn)
    assert SUCCESS in answered[0].observation


def test_a_strange_script_is_told_without_an_end() -> None:
    turns = tell(PERFECT, STRANGE)
    assert [type(turn) for turn in turns] == [PlayerTurn, DungeonMasterTurn] * 6
    assert all(SUCCESS not in turn.observation for turn in turns if isinstance(turn, DungeonMasterTurn))
