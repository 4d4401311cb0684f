"""Composition: what the operators make, and what they show."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import pytest
from rule_drafts import END, draft, plain, right

from refinesynth.rules import (
    All,
    BaseRule,
    Either,
    FirstFailure,
    Not,
    ReadableText,
    Rule,
    Severity,
    TaskSucceed,
    TurnLimit,
    Violation,
    all_of,
    available,
    first_failure,
    verify,
    warn,
)
from refinesynth.rules.registry import numbers
from refinesynth.trajectory import Draft

A, B, C = ReadableText(), TaskSucceed(), TurnLimit(most=7)


@pytest.mark.parametrize(
    ("rule", "shown"),
    [
        (A & B, "ReadableText() & TaskSucceed(phrase='Task Succeed')"),
        ((A | C) & ~C, "(ReadableText() | TurnLimit(most=7)) & ~TurnLimit(most=7)"),
        (A & C | A, "(ReadableText() & TurnLimit(most=7)) | ReadableText()"),
        (A | (C | A), "ReadableText() | (TurnLimit(most=7) | ReadableText())"),
        (~(A & C), "~(ReadableText() & TurnLimit(most=7))"),
        (first_failure(A, C) & warn(C), "first_failure(ReadableText(), TurnLimit(most=7)) & warn(TurnLimit(most=7))"),
        (all_of(), "all_of()"),
        (all_of(A), "all_of(ReadableText())"),
    ],
)
def test_repr_shows_the_chain(rule: Rule, shown: str) -> None:
    assert repr(rule) == shown


def test_any_callable_composes_from_either_side() -> None:
    assert plain & A == All((plain, A))
    assert A & plain == All((A, plain))
    assert plain | A == Either(plain, A)
    assert A | plain == Either(A, plain)


def test_a_rule_must_define_its_check() -> None:
    with pytest.raises(TypeError, match="defines no __call__"):
        BaseRule()(draft())


def test_either_reports_only_the_side_that_passes() -> None:
    refused = draft(right("look"))
    assert [violation.rule for violation in (warn(B) | A)(refused)] == ["TaskSucceed"]
    [warning] = (B | warn(TurnLimit(most=1)))(refused)
    assert warning.severity is Severity.WARN
    assert [violation.rule for violation in (B | TurnLimit(most=1))(refused)] == ["TaskSucceed", "TurnLimit"]


def test_not_keeps_no_prefix_and_leaves_parts_alone() -> None:
    verdict = verify(draft(END), ~B)
    assert (verdict.accepted, verdict.verified_turns) == (False, 0)
    assert verdict.violations[0].code == "satisfied"
    assert verify(draft(END, finished=False), ~B).accepted
    assert Not(~B)(draft(END))


def test_first_failure_passes_warnings_on() -> None:
    found = list(first_failure(warn(TurnLimit(most=1)), B)(draft(right("look"))))
    assert [(violation.rule, violation.severity) for violation in found] == [
        ("TurnLimit", Severity.WARN),
        ("TaskSucceed", Severity.REJECT),
    ]


def test_a_violation_beyond_the_end_keeps_all_turns() -> None:
    class Beyond(BaseRule):
        def __call__(self, draft: Draft, /) -> Iterator[Violation]:
            yield self.violation(len(draft.turns) + 5, "beyond", "Go on.")

    assert verify(draft(END), Beyond()).verified_turns == 2


def compositions(other: Any) -> Iterator[Callable[[], object]]:
    rule = TurnLimit()
    yield lambda: rule & other
    yield lambda: other & rule
    yield lambda: rule | other
    yield lambda: other | rule
    yield lambda: all_of(rule, other)
    yield lambda: first_failure(other)
    yield lambda: warn(other)
    yield lambda: verify(draft(), other)


@pytest.mark.parametrize(
    ("other", "says"),
    [("TurnLimit()", r"rules\.parse\('TurnLimit\(\)'\)"), (None, "None is no rule"), (TurnLimit, "call the class")],
)
def test_what_is_no_rule_is_refused_when_it_is_composed(other: object, says: str) -> None:
    for compose in compositions(other):
        with pytest.raises(TypeError, match=says):
            compose()


def test_a_composition_takes_several_rules_only_where_it_holds_several() -> None:
    given: Any = [A, B]
    assert All(given) == A & B
    assert repr(FirstFailure(given)) == repr(first_failure(A, B))
    several: Any = (A,)
    composed: tuple[Callable[[], object], ...] = (lambda: Not(several), lambda: warn(several), lambda: A | several)
    for compose in composed:
        with pytest.raises(TypeError, match="is no rule; a rule is callable"):
            compose()


def test_a_subclass_of_a_built_in_rule_is_not_built_in() -> None:
    class Named(TurnLimit):
        """A user's own."""

    @dataclass(frozen=True)
    class Fewer(TurnLimit):
        least: int = 3

    assert repr(Fewer(most=9)).endswith("Fewer(most=9, least=3)")
    assert not {"Named", "Fewer"} & available().keys()
    assert numbers(Named(), Fewer()) == {}
