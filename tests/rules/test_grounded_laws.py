"""Laws of grounded drafts: what was played by the rulebook is accepted, and nothing else is."""

import pytest
from grounded_corruptions import GROUNDED_CORRUPTIONS, grounded_corruptions
from hypothesis import given, settings
from hypothesis import strategies as st
from rule_drafts import accepts, assert_caught
from rulebook_corruptions import RULEBOOK_CORRUPTIONS, rulebook_corruptions

from refinesynth import rules, testing
from refinesynth.rules.registry import BUILT_IN
from refinesynth.testing import Corruption
from refinesynth.trajectory import Draft, DungeonMasterTurn, Script

FEWER = settings(max_examples=max(8, settings().max_examples // 8))
"""For laws that play a world for each example."""

CHAIN = rules.grounded()
STAGES = rules.grounded_script(difficulty=(2, 40))


@FEWER
@given(testing.valid_grounded_drafts())
def test_what_was_played_by_the_rulebook_is_accepted(draft: Draft) -> None:
    whole = rules.Verdict(accepted=True, violations=(), verified_turns=len(draft.turns))
    assert rules.verify(draft, CHAIN) == whole
    assert rules.verify(Draft.from_json(draft.to_json()), CHAIN) == whole, (
        "also when it was written down and read again"
    )


@FEWER
@given(testing.valid_grounded_drafts())
def test_every_prefix_of_it_verifies(draft: Draft) -> None:
    for length in range(len(draft.turns) + 1):
        assert accepts(CHAIN, draft.prefix(length))


@pytest.mark.parametrize("name", GROUNDED_CORRUPTIONS)
@FEWER
@given(data=st.data())
def test_no_corruption_is_accepted(name: str, data: st.DataObject) -> None:
    corruption = data.draw(grounded_corruptions(name))
    assert_caught(corruption, CHAIN)
    kept = corruption.draft.prefix(rules.verify(corruption.draft, CHAIN).verified_turns)
    assert accepts(CHAIN, kept), "what was kept of it may be gone on with"


@pytest.mark.parametrize("name", RULEBOOK_CORRUPTIONS)
@FEWER
@given(data=st.data())
def test_every_broken_rulebook_is_caught_at_the_stage_named_for_it(name: str, data: st.DataObject) -> None:
    assert_caught(data.draw(rulebook_corruptions(name)), STAGES)


@FEWER
@given(rulebook_corruptions())
def test_one_stage_speaks_at_a_time(corruption: Corruption) -> None:
    stages = [
        v.rule for v in rules.verify(corruption.draft, STAGES).violations if isinstance(BUILT_IN[v.rule](), rules.Stage)
    ]
    assert len(set(stages)) <= 1


@FEWER
@given(testing.valid_grounded_scripts())
def test_sound_rulebooks_pass_every_stage(script: Script) -> None:
    assert rules.verify(Draft(script=script, finished=False), STAGES).violations == ()


@FEWER
@given(testing.valid_grounded_scripts())
def test_a_script_that_is_to_be_imagined_passes_the_other_rules_as_before(script: Script) -> None:
    assert accepts(rules.script(), Draft(script=script.imagined()))
    assert not accepts(STAGES, Draft(script=script.imagined()))


@FEWER
@given(testing.valid_grounded_drafts(), testing.drafts(), st.data())
def test_nothing_that_is_mixed_in_is_believed(valid: Draft, other: Draft, data: st.DataObject) -> None:
    at = data.draw(st.integers(0, len(valid.turns)))
    mixed = valid.model_copy(update={"turns": (*valid.turns[:at], *other.turns, *valid.turns[at:])})
    verdict = rules.verify(mixed, CHAIN)
    assert all(accepts(CHAIN, mixed.prefix(length)) for length in range(verdict.verified_turns + 1))


@FEWER
@given(testing.valid_grounded_drafts(), st.data())
def test_a_verdict_does_not_depend_on_what_was_played_before_it(draft: Draft, data: st.DataObject) -> None:
    """The last play in a world is remembered; another one in between changes nothing."""
    other = data.draw(st.lists(st.sampled_from(draft.turns), max_size=12))
    first = rules.verify(draft, CHAIN)
    rules.verify(draft.model_copy(update={"turns": tuple(other)}), CHAIN)
    assert rules.verify(draft, CHAIN) == first


@FEWER
@given(testing.valid_grounded_drafts())
def test_transient_failures_are_no_mistakes(draft: Draft) -> None:
    """Taken out or left in: neither counts as a mistake, nor as its repair, nor as a repetition."""
    quiet = [
        turn
        for act, answer in zip(draft.turns, (*draft.turns[1:], None), strict=True)
        for turn in ((act,) if not _fails(act) and not _fails(answer) else ())
    ]
    for rule in (rules.EnoughMistakes(), rules.RealRefinement(), rules.NoRepeatedMistake(), CHAIN):
        assert accepts(rule, draft)
        assert accepts(rule, draft.model_copy(update={"turns": tuple(quiet)}))


def _fails(turn: object) -> bool:
    return isinstance(turn, DungeonMasterTurn) and turn.transient
