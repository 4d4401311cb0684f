"""A draft that grows: reading only what is new gives no other answer than reading it all."""

from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rule_drafts import dm, draft, player, right, wrong

from refinesynth import rules, testing
from refinesynth.rules import Rule, verify
from refinesynth.rules.growth import still_passes
from refinesynth.rules.registry import BUILT_IN
from refinesynth.trajectory import Draft, MalformedTurn

MADE: tuple[Rule, ...] = (
    *(factory() for factory in BUILT_IN.values()),
    rules.warn(rules.NoLeaks()),
    ~rules.TurnLimit(most=4),
)


@given(testing.drafts(), testing.valid_drafts(), st.data())
def test_what_still_passes_is_accepted(other: Draft, valid: Draft, data: st.DataObject) -> None:
    at = data.draw(st.integers(0, len(valid.turns)))
    grown = valid.model_copy(update={"turns": (*valid.turns[:at], *other.turns, *valid.turns[at:])})
    verified = data.draw(st.integers(0, len(grown.turns)))
    for rule in MADE:
        if verify(grown.prefix(verified), rule).accepted and still_passes(grown, rule, verified=verified):
            assert verify(grown, rule).accepted, rule


@given(testing.valid_drafts())
def test_a_valid_draft_is_never_read_twice_while_it_grows(valid: Draft) -> None:
    first = 0 if valid.turns[0].role == "Player" else 1
    for length in range(first + 2, len(valid.turns), 2):
        assert still_passes(valid.prefix(length), rules.strict(), verified=length - 2)


def test_an_answer_that_comes_later_is_seen() -> None:
    grown = draft(right("look"), player("fly"), dm("You fly."), finished=False)
    for rule in (rules.strict(), rules.agentrefine(), rules.ValidActions()):
        assert verify(grown.prefix(3), rule).accepted
        assert not still_passes(grown, rule, verified=3)


@pytest.mark.parametrize("rule", [rules.strict(), rules.NoRepeatedMistake(), rules.strict() | rules.agentrefine()])
def test_rules_that_look_back_are_given_everything(rule: Rule) -> None:
    grown = draft(wrong("go to cellar"), wrong("go to cellar"), finished=False)
    assert still_passes(grown, rule, verified=2) == verify(grown, rule).accepted


def test_a_rule_of_ones_own_is_given_everything() -> None:
    seen: list[int] = []

    def counts(subject: Draft) -> Iterator[rules.Violation]:
        seen.append(len(subject.turns))
        yield from ()

    assert still_passes(draft(right("look"), right("look")), rules.all_of(counts, rules.NoLeaks()), verified=2)
    assert seen == [4]


def test_whatever_the_turns_are_nothing_is_raised() -> None:
    odd = draft(MalformedTurn(raw="{}", problem="?"), dm("Hello."), finished=False)
    assert not still_passes(odd, rules.strict(), verified=0)
    assert still_passes(odd, rules.ReadsBack(), verified=2)
