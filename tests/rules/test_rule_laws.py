"""Laws of all rules: they never raise, agree with themselves, keep prefixes that hold, and compose as logic does."""

import pytest
from grounded_corruptions import GROUNDED_CORRUPTIONS
from hypothesis import given, settings
from hypothesis import strategies as st
from rule_drafts import accepts, assert_caught
from rulebook_corruptions import RULEBOOK_CORRUPTIONS

from refinesynth import rules, testing
from refinesynth.rules.registry import BUILT_IN
from refinesynth.rules.rule import BaseRule, Rule
from refinesynth.testing import CORRUPTIONS, Corruption
from refinesynth.trajectory import Draft

MADE: dict[str, Rule] = {name: factory() for name, factory in BUILT_IN.items()}
SCRIPT_CHAINS = (rules.script(), rules.grounded_script(), rules.DifficultyBand())
OF_SCRIPTS = {*map(repr, SCRIPT_CHAINS), *(repr(rule) for chain in SCRIPT_CHAINS[:2] for rule in chain.rules)}
TIGHT: tuple[BaseRule, ...] = (
    rules.RealRefinement(within=1),
    rules.FreshObservations(times=1),
    rules.EnoughMistakes(minimum=1),
    rules.TurnLimit(most=3),
    rules.SizeLimits(turn=30, total=90),
    rules.NoLeaks(voices=("DM", "Player")),
)
"""Rules set so tight that they find something in many drafts."""
SOME: st.SearchStrategy[BaseRule] = st.sampled_from(
    (*(rule for rule in MADE.values() if isinstance(rule, BaseRule)), *TIGHT)
)


FEWER = settings(max_examples=max(10, settings().max_examples // 4))
"""For laws that run once for each corruption."""


def _both(a: BaseRule, b: BaseRule) -> BaseRule:
    return a & b


def _either(a: BaseRule, b: BaseRule) -> BaseRule:
    return a | b


def _composed(inner: st.SearchStrategy[BaseRule]) -> st.SearchStrategy[BaseRule]:
    return st.one_of(
        st.lists(inner, max_size=3).map(lambda parts: rules.first_failure(*parts)),
        st.builds(_both, inner, inner),
        st.builds(_either, inner, inner),
        inner.map(rules.Not),
        inner.map(rules.warn),
    )


COMPOSITIONS = st.recursive(SOME, _composed, max_leaves=5)


@given(testing.drafts())
def test_no_rule_ever_raises(draft: Draft) -> None:
    for rule in (*MADE.values(), *TIGHT):
        for violation in rule(draft):
            assert 0 <= violation.turn <= len(draft.turns)
            assert violation.code
            assert violation.message.encode()


@given(testing.drafts(), COMPOSITIONS)
def test_verify_is_deterministic(draft: Draft, rule: rules.Rule) -> None:
    assert rules.verify(draft, rule) == rules.verify(draft, rule) == rules.verify(draft.model_copy(), rule)


@given(testing.drafts(), st.data())
def test_the_verified_prefix_verifies_as_a_prefix(draft: Draft, data: st.DataObject) -> None:
    shorter = data.draw(st.integers(0, len(draft.turns)))
    for rule in (*MADE.values(), *TIGHT):
        verdict = rules.verify(draft, rule)
        if repr(rule) in OF_SCRIPTS:
            assert verdict.verified_turns == (len(draft.turns) if verdict.accepted else 0)
        else:
            assert accepts(rule, draft.prefix(verdict.verified_turns))
            assert accepts(rule, draft.prefix(min(shorter, verdict.verified_turns)))


@given(testing.drafts() | testing.valid_drafts(), COMPOSITIONS, COMPOSITIONS)
def test_adding_a_rule_never_accepts_more(draft: Draft, a: BaseRule, b: BaseRule) -> None:
    both = rules.verify(draft, a & b)
    for alone in (rules.verify(draft, a), rules.verify(draft, b)):
        assert alone.accepted or not both.accepted
        assert both.verified_turns <= alone.verified_turns


@given(testing.drafts() | testing.valid_drafts(), COMPOSITIONS, COMPOSITIONS, COMPOSITIONS)
def test_and_is_associative(draft: Draft, a: BaseRule, b: BaseRule, c: BaseRule) -> None:
    assert (a & b) & c == a & (b & c)
    assert rules.verify(draft, (a & b) & c) == rules.verify(draft, a & (b & c))


@given(testing.drafts() | testing.valid_drafts(), COMPOSITIONS, COMPOSITIONS)
def test_and_or_not_are_those_of_logic(draft: Draft, a: BaseRule, b: BaseRule) -> None:
    whole = draft.model_copy(update={"finished": True})
    assert accepts(a & b, whole) == (accepts(a, whole) and accepts(b, whole))
    assert accepts(a | b, whole) == (accepts(a, whole) or accepts(b, whole))
    assert accepts(~a, whole) != accepts(a, whole)
    assert accepts(~(a & b), whole) == accepts(~a | ~b, whole)
    assert accepts(~(a | b), whole) == accepts(~a & ~b, whole)
    assert accepts(rules.first_failure(a, b), whole) == accepts(a & b, whole)
    assert accepts(rules.warn(a), whole)


@given(testing.drafts(), COMPOSITIONS, COMPOSITIONS)
def test_first_failure_finds_what_and_finds_first(draft: Draft, a: BaseRule, b: BaseRule) -> None:
    everything = [violation for violation in (a & b)(draft) if rules.rejects(violation)]
    first = [violation for violation in rules.first_failure(a, b)(draft) if rules.rejects(violation)]
    assert first == ([min(everything, key=lambda violation: violation.turn)] if everything else [])


@given(testing.drafts(), COMPOSITIONS)
def test_warnings_say_the_same_and_refuse_nothing(draft: Draft, rule: rules.Rule) -> None:
    warned = rules.verify(draft, rules.warn(rule))
    assert warned.accepted
    assert warned.verified_turns == len(draft.turns)
    assert [violation.message for violation in warned.violations] == [violation.message for violation in rule(draft)]


@given(testing.valid_drafts())
def test_valid_drafts_are_valid(draft: Draft) -> None:
    assert rules.verify(draft, rules.strict()) == rules.Verdict(
        accepted=True, violations=(), verified_turns=len(draft.turns)
    )
    assert accepts(rules.script(), draft)


@given(testing.valid_drafts())
def test_every_prefix_of_a_valid_draft_verifies(draft: Draft) -> None:
    assert all(accepts(rules.strict(), draft.prefix(length)) for length in range(len(draft.turns) + 1))


@pytest.mark.parametrize("name", CORRUPTIONS)
@FEWER
@given(data=st.data())
def test_every_corruption_is_caught_by_the_rule_named_for_it(name: str, data: st.DataObject) -> None:
    assert_caught(data.draw(testing.corruptions(name)), rules.strict(2))


def test_every_rule_has_its_corruption() -> None:
    chains = {"agentrefine", "strict", "grounded", "script", "grounded_script"}
    of_texts = {"ToTheLetter"}  # asks how a draft was read, not what it says
    of_shape = {type(rule).__name__ for rule in rules.script().rules}  # test_script_rules.py has examples
    caught = {rule for names in (CORRUPTIONS, GROUNDED_CORRUPTIONS, RULEBOOK_CORRUPTIONS) for rule in names.values()}
    assert caught == set(BUILT_IN) - chains - of_texts - of_shape


@given(testing.corruptions())
def test_what_was_kept_of_a_broken_draft_may_be_gone_on_with(corruption: Corruption) -> None:
    verdict = rules.verify(corruption.draft, rules.strict())
    assert accepts(rules.strict(), corruption.draft.prefix(verdict.verified_turns))
