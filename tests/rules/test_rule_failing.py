"""A rule of somebody's own that raises is named, with its place; a fault of the package stays one."""

from collections.abc import Iterator
from typing import Any

import pytest
from samples import POT

from refinesynth import rules
from refinesynth.errors import RuleFailed
from refinesynth.rules import BaseRule, Violation
from refinesynth.trajectory import Draft

DRAFT = Draft(script=POT)


class Raising(BaseRule):
    def __call__(self, draft: Draft, /) -> Iterator[Violation]:
        raise KeyError("pot")
        yield self.violation(len(draft.turns), "x", "y")


class Calling(BaseRule):
    def __init__(self, rule: Any) -> None:
        self.rule = rule

    def __call__(self, draft: Draft, /) -> Iterator[Violation]:
        yield from rules.all_of(self.rule)(draft)


def returns_nothing(draft: Draft) -> None:
    assert not draft.turns


def finds_texts(draft: Draft) -> list[str]:
    return ["wrong"] * (len(draft.turns) + 1)


def takes_nothing() -> Iterator[Violation]:
    yield from ()


@pytest.mark.parametrize("given", [Raising(), returns_nothing, finds_texts, takes_nothing])
@pytest.mark.parametrize("composed", ["alone", "and", "or", "not", "warn", "called"])
def test_it_is_named(given: Any, composed: str) -> None:
    chains: dict[str, Any] = {
        "alone": given,
        "and": rules.strict() & given,
        "or": Raising() | Raising(),
        "not": ~rules.all_of(given),
        "warn": rules.warn(given),
        "called": Calling(given),
    }
    draft = DRAFT.model_copy(update={"finished": True})
    with pytest.raises(RuleFailed, match=r"the rule \w+.* raised (KeyError|TypeError|AttributeError)") as raised:
        rules.verify(draft, chains[composed])
    name = getattr(given, "__name__", type(given).__name__)
    if composed != "or":
        assert f"the rule {name}" in str(raised.value)
    if given is finds_texts and composed != "or":
        assert "it yields 'wrong', which is no Violation" in str(raised.value)
    if given not in {returns_nothing, finds_texts, takes_nothing}:
        assert __file__ in str(raised.value)


def test_a_fault_of_the_package_is_not_blamed_on_the_user() -> None:
    ours: dict[str, Any] = {"__name__": "refinesynth.rules.faulty", "BaseRule": BaseRule}
    exec("class Faulty(BaseRule):\n    def __call__(self, draft):\n        raise KeyError(draft)", ours)
    with pytest.raises(KeyError):
        rules.verify(DRAFT, rules.strict() & ours["Faulty"]())
